"""What an operator may abort, and what to do instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.tools.operators.abort import CLOCKS_DIFFER_MS, abort_whole, end_part
from spark_kafka_eos.tools.operators.survey import Ending, LastOutcome, OpenPart, outcome

T0 = TopicPartition("orders", 0)
FACTS = TransactionFacts(
    transactional_id="copy",
    coordinator=2,
    state="Ongoing",
    producer_id=9,
    epoch=4,
    timeout_ms=60_000,
    started_ms=1_000,
    described_ms=21_000,
    partitions=(T0,),
)
DONE = replace(FACTS, state="CompleteCommit", partitions=())
ABORTED = replace(DONE, state="CompleteAbort")
COMMIT = "it here, too: kafka-eos transactions abort --topic orders --partition 0 --start-offset 20 --commit"


def part(ending, facts, *, producer_id=9, epoch=4, version=1):
    producer = ProducerState(partition=T0, producer_id=producer_id, epoch=epoch, start_offset=20)
    ended = outcome(producer, facts, version)
    return OpenPart(producer=producer, facts=facts, ending=ending, log_ends=None, holds=True, outcome=ended)


def test_a_transaction_without_a_timeout_is_nobodys_to_wait_for():
    decision = abort_whole("copy", replace(FACTS, timeout_ms=2**31 - 1), fence_owner=False)
    assert not decision.abort
    assert decision.reason.endswith("its timeout is none (two-phase commit)")
    assert decision.action.startswith("The coordinator never aborts it by itself. ")


@pytest.mark.parametrize(
    ("found", "reason", "action"),
    [
        (
            part(Ending.OWNER, FACTS),
            "open as 'copy' for 20 s",
            "aborts it by itself in 40 s. To abort the whole transaction",
        ),
        (part(Ending.COORDINATOR, replace(FACTS, state="PrepareCommit")), "decided (PrepareCommit)", "why broker 2"),
        (part(Ending.UNKNOWN, None), "is unknown", "needs Describe on all transactional ids"),
        (part(Ending.NOBODY, DONE), "still has its producer epoch", "kafka-eos transactions abort copy --fence-owner"),
        (part(Ending.NOBODY, DONE, epoch=5), "still has its producer epoch", "--fence-owner"),
    ],
)
def test_a_part_that_somebody_may_still_end_or_extend_is_not_aborted(found, reason, action):
    decision = end_part(found)
    assert (decision.abort, reason in decision.reason, action in decision.action) == (False, True, True), decision


@pytest.mark.parametrize(
    "found",
    [
        part(Ending.NOBODY, None),
        part(Ending.NOBODY, DONE, epoch=3),  # fenced: its owner has a newer epoch
        part(Ending.NOBODY, DONE, producer_id=8),
        part(Ending.NOBODY, DONE, producer_id=8, epoch=3, version=2),
        part(Ending.NOBODY, DONE, epoch=2, version=2),  # nobody knows any more how it ended
        part(Ending.NOBODY, replace(DONE, state="Empty"), epoch=3, version=2),
        part(Ending.NOBODY, ABORTED, epoch=3, version=2),
    ],
)
def test_a_part_that_nobody_can_end_or_extend_is_aborted(found):
    assert end_part(found).abort


@pytest.mark.parametrize(
    ("committed", "reason", "action"),
    [
        (LedgerEntry(query_id="q", batch_id=7, digest="d", serial=8), "batch 7 of query q was committed", "Start the"),
        (
            UnreadableEntry(description="it is newer", digest="d"),
            "by the ledger, a batch was committed in it",
            "Start the query",
        ),
        (
            BucketRecord(serial=1, offsets={}, topic_ids={}),
            "records of a query in real time were committed",
            f"Commit {COMMIT}",
        ),
    ],
)
def test_a_part_whose_batch_was_committed_is_not_aborted(committed, reason, action):
    found = part(Ending.NOBODY, DONE, epoch=3)
    decision = end_part(found, committed)
    assert (decision.abort, reason in decision.reason, action in decision.action) == (False, True, True), decision
    assert end_part(found, committed, commit=True).abort


def test_what_its_coordinator_has_committed_is_not_aborted_but_committed():
    found = part(Ending.NOBODY, DONE, epoch=3, version=2)
    decision = end_part(found)
    assert not decision.abort
    assert "its coordinator says that the last transaction of 'copy', which this is, was committed" in decision.reason
    assert decision.action == f"Commit {COMMIT}"
    assert found.end_command == decision.action.removeprefix("Commit it here, too: ")
    assert end_part(found, commit=True).abort


def test_what_its_coordinator_has_aborted_is_not_committed_but_aborted():
    found = part(Ending.NOBODY, ABORTED, epoch=3, version=2)
    decision = end_part(found, commit=True)
    assert not decision.abort
    assert "which this is, was aborted: a commit would show records that were taken back" in decision.reason
    assert decision.action == f"Abort {COMMIT.removesuffix(' --commit')}"
    assert end_part(found).abort


def test_where_the_last_transaction_of_the_same_epoch_was_committed_an_operator_is_told_to_look_before_the_fence():
    told = ", with --commit if this is a part of the owner's last transaction, which was committed"
    assert told in end_part(part(Ending.NOBODY, DONE)).action
    assert told not in end_part(part(Ending.NOBODY, ABORTED)).action


@pytest.mark.parametrize(
    ("version", "state", "epoch", "ended"),
    [
        (2, "CompleteCommit", 3, LastOutcome.COMMITTED),
        (2, "CompleteAbort", 3, LastOutcome.ABORTED),
        (2, "Empty", 3, None),
        (2, "Ongoing", 3, None),
        (2, "CompleteCommit", 4, None),
        (2, "CompleteCommit", 2, None),
        (1, "CompleteCommit", 3, None),
    ],
)
def test_how_a_hanging_transaction_ended_is_known_if_its_coordinator_had_no_later_one(version, state, epoch, ended):
    assert part(Ending.NOBODY, replace(DONE, state=state), epoch=epoch, version=version).outcome is ended


OVERDUE = replace(FACTS, described_ms=1_000 + 60_000 + CLOCKS_DIFFER_MS)


@pytest.mark.parametrize(
    ("facts", "fence_owner", "abort", "reason"),
    [
        (None, False, False, "no coordinator knows"),
        (None, True, False, "no coordinator knows"),
        (FACTS, False, False, "its owner may be alive: the transaction has been open for 20 s"),
        (FACTS, True, True, "even if it is running"),
        (replace(OVERDUE, described_ms=OVERDUE.described_ms - 1), False, False, "its owner may be alive"),
        (OVERDUE, False, True, "its timeout passed 60 s ago"),
        (replace(FACTS, started_ms=None), False, False, "its owner may be alive"),
        (replace(FACTS, state="PrepareCommit"), True, False, "already decided (PrepareCommit)"),
        (replace(FACTS, state="PrepareAbort"), True, False, "already decided (PrepareAbort)"),
        (DONE, False, False, "it has no open transaction (CompleteCommit)"),
        (DONE, True, True, "even if it is running"),
    ],
)
def test_a_whole_transaction_is_taken_from_its_owner_only_if_it_is_overdue_or_told_to(
    facts, fence_owner, abort, reason
):
    decision = abort_whole("copy", facts, fence_owner=fence_owner)
    assert (decision.abort, reason in decision.reason) == (abort, True), decision
    assert decision.abort or decision.action


@pytest.mark.parametrize("fence_owner", [False, True])
def test_a_transaction_whose_batch_a_table_may_have_is_not_aborted(fence_owner):
    entry = LedgerEntry(query_id="query", batch_id=7, digest="d", serial=8, table=3)
    decision = abort_whole("copy", FACTS, fence_owner=fence_owner, with_table=entry)
    assert not decision.abort
    assert "may have batch 7 of query query" in decision.reason
    assert "kafka-eos query resolve copy --table MODULE:NAME --settle" in decision.action
