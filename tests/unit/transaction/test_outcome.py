"""How a transaction ended that a leader still has open."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import NOBODY, ProducerEpoch
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.ledger.entry import LedgerEntry, unreadable
from spark_kafka_eos.transaction.outcome import outcome

ENTRY = LedgerEntry(query_id="q", batch_id=1, digest="d", serial=2, sources=())


def left(producer_id, epoch):
    return ProducerState(partition=TopicPartition("out", 0), producer_id=producer_id, epoch=epoch, start_offset=3)


@pytest.mark.parametrize(
    ("entry", "committed_under", "ended"),
    [
        pytest.param(ENTRY, ProducerEpoch(7, 5), "committed", id="the last commit's own epoch"),
        pytest.param(ENTRY, ProducerEpoch(7, 4), "aborted", id="a later one, which has no entry"),
        pytest.param(ENTRY, ProducerEpoch(6, 9), "aborted", id="a producer id that followed the last commit's"),
        pytest.param(ENTRY, ProducerEpoch(7, 6), "unknown", id="an earlier one, whose entry is no longer there"),
        pytest.param(ENTRY, NOBODY, "unknown", id="the last commit's epoch is unknown"),
        pytest.param(None, NOBODY, "aborted", id="nothing was ever committed"),
        pytest.param(unreadable("?", 2), ProducerEpoch(7, 5), "unknown", id="an entry of a later release"),
    ],
)
def test_the_ledger_says_how_a_transaction_ended(entry, committed_under, ended):
    assert outcome(left(7, 5), entry, committed_under) == ended
