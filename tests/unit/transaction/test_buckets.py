"""What is known of a bucket's last transaction once the bucket is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.sequences import LAST_EPOCH
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.transaction.buckets import known_of, known_once_taken, last_outcome

COMMITTED = TransactionFacts(
    transactional_id="copy.bucket-0",
    coordinator=1,
    state="CompleteCommit",
    producer_id=7,
    epoch=3,
    timeout_ms=10_000,
    started_ms=None,
    described_ms=0,
    partitions=(),
)
TAKEN = ProducerIdentity(transactional_id="copy.bucket-0", producer_id=7, epoch=4)


def test_how_the_last_transaction_ended_is_known_if_the_next_epoch_is_given() -> None:
    assert last_outcome(known_once_taken(COMMITTED, TAKEN)) == "committed"
    aborted = replace(COMMITTED, state="CompleteAbort")
    assert last_outcome(known_once_taken(aborted, TAKEN)) == "aborted"


@pytest.mark.parametrize(
    ("epoch", "given"),
    [(3, (7, 5)), (LAST_EPOCH - 1, (8, 0)), (3, (7, 3))],
    ids=["an epoch was taken in between", "one may have been the last one of the producer id", "an outdated broker"],
)
def test_it_is_not_known_if_another_transaction_may_have_ended_since(epoch: int, given: tuple[int, int]) -> None:
    producer_id, given_epoch = given
    taken = replace(TAKEN, producer_id=producer_id, epoch=given_epoch)
    assert last_outcome(known_once_taken(replace(COMMITTED, epoch=epoch), taken)) == "unknown"


def test_it_stays_known_of_an_id_that_is_as_this_process_has_taken_it() -> None:
    empty = replace(COMMITTED, state="Empty", epoch=4)
    known = known_of(COMMITTED, empty, TAKEN)
    assert known == replace(COMMITTED, epoch=4)
    assert last_outcome(known_once_taken(known, replace(TAKEN, epoch=5))) == "committed"


@pytest.mark.parametrize("taken", [None, replace(TAKEN, epoch=3), replace(TAKEN, producer_id=6)])
def test_it_is_not_known_of_an_id_that_another_process_has_taken(taken: ProducerIdentity | None) -> None:
    assert last_outcome(known_of(COMMITTED, replace(COMMITTED, state="Empty", epoch=4), taken)) == "unknown"
