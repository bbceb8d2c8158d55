"""Each row of the table in `participants.decide`, and what the orders of answers in between lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Repeat, Skip, Verdict, Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.participants.decide import Again, Finish, Prepared, decide
from spark_kafka_eos.participants.token import Token, UnreadableToken

WRITE, SKIP = Write(reason="it is the next one"), Skip(reason="it is committed")
REPEAT = Repeat(reason="a second call")
REFUSED = Refuse(reason="r", meaning="m", actions=("a",))
BATCH = MicroBatch(query_id="query", batch_id=4, digest="digest 4")


def entry(number: int, *, table: int | None = None, query_id: str = "query") -> LedgerEntry:
    return LedgerEntry(query_id=query_id, batch_id=number, digest=f"digest {number}", serial=100 + number, table=table)


def token(
    number: int, *, query_id: str = "query", digest: str | None = None, name: str = "id", cluster: str = ""
) -> Token:
    return Token(
        identity=ProducerIdentity(transactional_id=name, producer_id=7, epoch=number),
        query_id=query_id,
        batch_id=number,
        digest=digest or f"digest {number}",
        serial=100 + number,
        records=1,
        bytes=1,
        cluster=cluster,
    )


def decided(
    held: Token | UnreadableToken | None,
    last: LedgerEntry | UnreadableEntry | None,
    verdict: Verdict,
    transaction: Prepared = "over",
    version: int = 9,
    cluster: str = "here",
) -> Verdict | Finish:
    return decide(version, held, transaction, last, BATCH, verdict, transactional_id="id", cluster=cluster)


def refusal(found: Verdict | Finish) -> str:
    assert isinstance(found, Refuse)
    assert not found.resolutions, "the option resolve has no word for the table"
    return found.reason


EVERY_STATE: tuple[Prepared, ...] = ("open", "over", "not known")
EVERY_VERDICT = (WRITE, SKIP, REPEAT, REFUSED)


@pytest.mark.parametrize("transaction", EVERY_STATE)
@pytest.mark.parametrize("verdict", EVERY_VERDICT)
def test_what_is_not_a_token_of_this_id_is_refused(verdict: Verdict, transaction: Prepared) -> None:
    unreadable = UnreadableToken(reason="another program has written it")
    assert "another program" in refusal(decided(unreadable, entry(3), verdict, transaction))
    assert "'other'" in refusal(decided(token(3, name="other"), entry(3), verdict, transaction))


UNREADABLE = UnreadableEntry(description="?", digest="d", serial=103)


@pytest.mark.parametrize("transaction", EVERY_STATE)
@pytest.mark.parametrize("verdict", EVERY_VERDICT)
@pytest.mark.parametrize("last", [None, entry(3), entry(9), UNREADABLE])
@pytest.mark.parametrize("number", [3, 4, 5])
def test_where_the_table_has_a_batch_of_another_cluster_nothing_is_written_finished_or_said_to_be_missing(
    number: int, last: LedgerEntry | UnreadableEntry | None, verdict: Verdict, transaction: Prepared
) -> None:
    if number == 3 and last == entry(3):
        last = entry(2)
    found = decided(token(number, cluster="there"), last, verdict, transaction)
    assert "written together with the Kafka cluster there, but the sink's is here" in refusal(found)
    assert isinstance(found, Refuse)
    assert ("delete the batch's rows" in " ".join(found.actions)) == (number == 4), "only this one is written again"


@pytest.mark.parametrize("verdict", [WRITE, SKIP])
def test_a_cluster_to_which_the_ledger_was_copied_goes_on_after_the_same_batch(verdict: Verdict) -> None:
    assert decided(token(3, cluster="there"), entry(3, table=9), verdict) is verdict


@pytest.mark.parametrize(("cluster", "sink"), [("here", "here"), ("", "here"), ("there", ""), ("", "")])
def test_a_token_of_the_same_cluster_or_where_one_is_not_known_counts(cluster: str, sink: str) -> None:
    held = token(5, cluster=cluster)
    assert decided(held, entry(3), WRITE, "open", cluster=sink) == Finish(token=held)


@pytest.mark.parametrize("held", [None, token(3), token(4), token(5)])
@pytest.mark.parametrize("transaction", ["over", "not known"])
@pytest.mark.parametrize("verdict", [REPEAT, REFUSED])
def test_what_the_ledger_refuses_is_refused(held: Token | None, verdict: Verdict, transaction: Prepared) -> None:
    assert decided(held, entry(3), verdict, transaction) is verdict


@pytest.mark.parametrize("verdict", [WRITE, SKIP])
def test_a_table_without_a_token_that_took_part_before_is_refused(verdict: Verdict) -> None:
    assert "version 9 of the table, but the table is at version 0" in refusal(
        decided(None, entry(3, table=9), verdict, version=0)
    )


@pytest.mark.parametrize("verdict", [WRITE, SKIP])
def test_a_table_joins_a_query_that_had_none(verdict: Verdict) -> None:
    for last in (None, entry(3)):
        assert decided(None, last, verdict, version=0) is verdict


def test_a_table_whose_token_the_operator_has_removed_goes_on() -> None:
    assert decided(None, entry(3, table=9), WRITE, version=10) is WRITE


@pytest.mark.parametrize("verdict", [WRITE, SKIP])
@pytest.mark.parametrize("last", [entry(3, table=9), entry(3)])
def test_a_table_with_an_older_batch_than_the_ledgers_is_refused(verdict: Verdict, last: LedgerEntry) -> None:
    assert "the table has batch 2 of query query, but Kafka has batch 3" in refusal(decided(token(2), last, verdict))


@pytest.mark.parametrize("transaction", EVERY_STATE)
def test_after_the_same_batch_in_both_the_next_one_is_written_to_both(transaction: Prepared) -> None:
    assert decided(token(3), entry(3, table=9), WRITE, transaction) is WRITE


def test_a_batch_that_both_have_is_skipped() -> None:
    assert decided(token(4), entry(4, table=9), SKIP) is SKIP


def test_a_transaction_that_somebody_has_opened_again_under_a_committed_epoch_is_left_alone() -> None:
    assert decided(token(3), entry(3, table=9), WRITE, "open") is WRITE


def test_an_entry_that_records_an_incomplete_batch_is_the_same_batch() -> None:
    last = replace(entry(3), serial=104, incomplete=True)
    assert decided(token(3), last, WRITE) is WRITE


@pytest.mark.parametrize("transaction", ["over", "not known"])
def test_a_late_driver_skips_its_batch_whatever_the_live_one_does(transaction: Prepared) -> None:
    assert decided(token(5), entry(4), SKIP, transaction) is SKIP


@pytest.mark.parametrize(
    "held",
    [token(4), token(4, digest="planned by another driver"), token(5), token(0, query_id="other")],
    ids=["this batch", "another plan", "a later batch", "another query"],
)
@pytest.mark.parametrize("last", [entry(3), None])
def test_a_transaction_whose_rows_the_table_has_is_finished_by_whoever_finds_it_open(
    held: Token, last: LedgerEntry | None
) -> None:
    held = replace(held, serial=104)
    for verdict in EVERY_VERDICT:
        assert decided(held, last, verdict, "open") == Finish(token=held)
    assert "do not say" in refusal(decided(held, entry(3), WRITE, "not known"))


@pytest.mark.parametrize("last", [entry(3), None])
def test_a_batch_that_only_the_table_has_is_appended_again(last: LedgerEntry | None) -> None:
    found = decided(token(4), last, WRITE)
    assert isinstance(found, Again)
    assert found.token == token(4)


def test_with_another_plan_it_is_refused() -> None:
    assert "digest other, now digest 4" in refusal(decided(token(4, digest="other"), entry(3), WRITE))


@pytest.mark.parametrize("held", [token(5), replace(token(0, query_id="other"), serial=104)])
def test_nobody_but_its_query_can_append_a_batch_again(held: Token) -> None:
    assert "but this is batch 4 of query query" in refusal(decided(held, entry(3), WRITE))


def test_where_the_ledger_is_unreadable_the_operators_word_does_not_cover_the_table() -> None:
    refused = decided(token(3), UNREADABLE, WRITE)
    assert "the ledger cannot be read" in refusal(refused)
    assert isinstance(refused, Refuse)
    assert "ledgerKey" in refused.remedy
    assert decided(None, UNREADABLE, WRITE) is WRITE
