"""Each row of the table in `tools.operators.settle`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger.diagnosis import Diagnosis
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Skip, Write
from spark_kafka_eos.participants.decide import Again, Finish
from spark_kafka_eos.participants.diagnosis import TableDiagnosis
from spark_kafka_eos.participants.participant import TableVersion
from spark_kafka_eos.participants.token import Token
from spark_kafka_eos.tools.operators.settle import settle

ENTRY = LedgerEntry(query_id="query", batch_id=3, digest="d", serial=4)
TOKEN = Token(
    identity=ProducerIdentity(transactional_id="id", producer_id=7, epoch=4),
    query_id="query",
    batch_id=4,
    digest="d",
    serial=5,
    records=1,
    bytes=1,
)
IDLE = TransactionFacts(state="CompleteCommit", producer_id=7, epoch=5, timeout_ms=1)
OPEN = TransactionFacts(
    state="Ongoing", producer_id=7, epoch=5, timeout_ms=60_000, started_ms=1_000, described_ms=31_000
)
SAME = Skip(reason="table and Kafka have it")


def settled(standing, owner=IDLE, entry=ENTRY, *, token=TOKEN, fence_owner=False):
    found = TableDiagnosis(
        table=TableVersion(version=9),
        token=token,
        transaction="over",
        kafka=Diagnosis(entry=entry, owner=owner),
        standing=standing,
    )
    done = settle(found, fence_owner=fence_owner)
    return done.step, done.settled, done.reason


@pytest.mark.parametrize("fence_owner", [False, True])
def test_a_transaction_that_the_table_has_is_committed_and_never_fenced(fence_owner):
    assert settled(Finish(token=TOKEN), OPEN, fence_owner=fence_owner)[:2] == ("commit", True)


@pytest.mark.parametrize("fence_owner", [False, True])
@pytest.mark.parametrize(
    "standing",
    [
        Again(reason="the table has it, and its transaction is over", token=TOKEN),
        Refuse(reason="r", meaning="m", actions=("a",)),
    ],
    ids=["over", "refused"],
)
def test_what_only_the_query_or_nobody_can_complete_is_left_alone(standing, fence_owner):
    step, is_settled, reason = settled(standing, fence_owner=fence_owner)
    assert (step, is_settled) == (None, False)
    assert reason.startswith(standing.reason)


@pytest.mark.parametrize("owner", [IDLE, None], ids=["idle", "expired"])
@pytest.mark.parametrize(
    ("token", "entry", "reason"),
    [
        (TOKEN, ENTRY, "table and Kafka have the same batches"),
        (None, None, "table and Kafka have the same batches"),
        (None, ENTRY, "the table has no token: it joins with the query's next batch"),
    ],
    ids=["same", "nothing", "no token"],
)
def test_nothing_open_is_nothing_to_settle(token, entry, reason, owner):
    standing = SAME if token else Write(reason="the table has no token")
    assert settled(standing, owner, entry, token=token) == (None, True, reason)


@pytest.mark.parametrize("fence_owner", [False, True])
@pytest.mark.parametrize("owner", [IDLE, OPEN], ids=["idle", "open"])
def test_a_table_without_a_token_is_not_taken_for_the_one_that_took_part(owner, fence_owner):
    """It may be another one, by a wrong name: it has none of the batches, and a fence of it fences nobody."""
    standing, entry = Write(reason="the table has no token"), replace(ENTRY, table=3)
    step, is_settled, reason = settled(standing, owner, entry, token=None, fence_owner=fence_owner)
    assert (step, is_settled) == (None, False)
    assert reason.startswith("the table has no token, and batch 3 of query query was committed with version 3 of a ")


def test_an_open_batch_that_the_table_lacks_needs_the_word_of_the_operator():
    step, is_settled, reason = settled(SAME, OPEN)
    assert (step, is_settled) == (None, False)
    assert "epoch 5 is open for 30 s" in reason
    assert settled(SAME, OPEN, fence_owner=True)[:2] == ("fence", True)
    assert settled(SAME, IDLE, fence_owner=True)[:2] == ("fence", True), "a late driver can no longer commit"


@pytest.mark.parametrize("fence_owner", [False, True])
def test_what_cannot_be_read_is_not_settled(fence_owner):
    unreadable = UnreadableEntry(description="?", digest="d")
    assert settled(SAME, OPEN, unreadable, fence_owner=fence_owner)[:2] == (None, False)
    assert settled(SAME, Unavailable(reason="DENIED", grant="Write"), fence_owner=fence_owner)[:2] == (None, False)
