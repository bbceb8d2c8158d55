"""Who ends an open transaction, what it holds back, and the counts."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, ProducerState, TransactionFacts
from spark_kafka_eos.tools.operators.survey import (
    Ending,
    ProducerCounts,
    Survey,
    TransactionListing,
    active_ids,
    ending,
    producer_counts,
)

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def facts(state="Ongoing", *, partitions=(T0,), started_ms=1_000, described_ms=5_000, name="copy", producer_id=9):
    return TransactionFacts(
        transactional_id=name,
        coordinator=1,
        state=state,
        producer_id=producer_id,
        epoch=4,
        timeout_ms=60_000,
        started_ms=started_ms,
        described_ms=described_ms,
        partitions=partitions,
    )


def producer(at, producer_id=9, partition=T0):
    return ProducerState(
        partition=partition, producer_id=producer_id, epoch=4, last_timestamp_ms=2_000, start_offset=at
    )


@pytest.mark.parametrize(
    ("known", "complete", "expected"),
    [
        (facts(), True, Ending.OWNER),
        (facts("PrepareCommit"), True, Ending.COORDINATOR),
        (facts("PrepareAbort"), True, Ending.COORDINATOR),
        (facts("PrepareCommit", partitions=(T1,)), True, Ending.NOBODY),  # its marker was written here
        (facts(partitions=(T1,)), True, Ending.NOBODY),
        (facts("CompleteCommit", partitions=()), True, Ending.NOBODY),
        (facts("Empty", partitions=()), False, Ending.NOBODY),
        (None, True, Ending.NOBODY),
        (None, False, Ending.UNKNOWN),  # another coordinator may have it, or nobody may tell us
    ],
)
def test_a_transaction_hangs_only_where_no_coordinator_will_end_it(known, complete, expected):
    assert ending(producer(7), known, complete=complete) is expected


def test_only_the_oldest_open_transaction_holds_the_last_stable_offset():
    survey = Survey(
        taken_ms=5_000,
        listings=(TransactionListing(transactional_id="copy", producer_id=9, state="Ongoing", coordinator=1),),
        transactions={"copy": facts()},
        producers={T0: (producer(30, producer_id=9), producer(None, producer_id=8), producer(20, producer_id=7))},
        log_ends={T0: LogEnds(last_stable_offset=20, high_watermark=50)},
        complete=True,
    )
    older, younger = survey.open_parts
    assert (older.producer.producer_id, older.holds, older.held_offsets, older.ending) == (7, True, 30, Ending.NOBODY)
    assert (younger.producer.producer_id, younger.holds, younger.held_offsets) == (9, False, 0)
    assert (older.since_ms, younger.since_ms) == (2_000, 1_000)
    assert survey.hanging == [older]
    assert survey.parts_of("copy") == [younger]


@pytest.mark.parametrize("offset", [20, None])
def test_what_a_transaction_holds_is_unknown_where_a_partition_does_not_say_it(offset):
    """Its leader is silent, or says what is open and not where the log ends."""
    survey = Survey(
        taken_ms=0,
        listings=(TransactionListing(transactional_id="copy", producer_id=9, state="Ongoing", coordinator=1),),
        transactions={"copy": facts()},
        producers={} if offset is None else {T0: (producer(offset, producer_id=9),)},
        unavailable={T0: "no answer"} if offset is None else {},
    )
    assert survey.held_by("copy") is None


def test_what_is_not_known_is_not_judged():
    listing = TransactionListing(transactional_id="copy", producer_id=9, state="Ongoing", coordinator=1)
    [part] = Survey(taken_ms=0, listings=(listing,), producers={T0: (producer(3),)}, complete=True).open_parts
    assert (part.ending, part.held_offsets) == (Ending.UNKNOWN, None), "it is listed, but was not described"


def test_a_timeout_runs_only_while_the_transaction_is_ongoing():
    assert (facts().age_ms, facts().timeout_left_ms) == (4_000, 56_000)
    assert facts(described_ms=70_000).timeout_left_ms == -9_000
    assert facts("PrepareCommit").timeout_left_ms is None
    assert facts(started_ms=None).timeout_left_ms is None


def test_the_oldest_open_transaction_comes_first():
    found = [facts(name="b", started_ms=2_000), facts(name="a"), facts("CompleteAbort", name="c")]
    survey = Survey(taken_ms=0, transactions={each.transactional_id: each for each in found})
    assert [each.transactional_id for each in survey.open_transactions] == ["a", "b"]


def test_the_counts_are_per_partition_and_per_coordinator():
    assert producer_counts({T0: (producer(3), producer(None, 8)), T1: ()}) == {
        T0: ProducerCounts(producer_ids=2, open_transactions=1),
        T1: ProducerCounts(producer_ids=0, open_transactions=0),
    }
    listings = [
        TransactionListing(transactional_id=name, producer_id=at, state=state, coordinator=node)
        for at, (name, state, node) in enumerate([("a", "Ongoing", 1), ("b", "Empty", 1), ("c", "Ongoing", 2)])
    ]
    assert active_ids(listings) == {1: {"Ongoing": 1, "Empty": 1}, 2: {"Ongoing": 1}}
