"""What the coordinators answer once they have given a transaction up by themselves, for its timeout."""

from __future__ import annotations

import itertools
import re

import pytest

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from tests.coordinating import TransactionCoordinator

pytestmark = pytest.mark.broker

NONE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED = 0, 47, 48, 90
# EndTxn's answers by transaction.version. Releases with KAFKA-20785, after 4.4.0, answer a commit in TV2 as one in TV1.
COMMIT = {2: INVALID_TXN_STATE, 0: PRODUCER_FENCED}
ABORT = {2: NONE, 0: PRODUCER_FENCED}

numbers = itertools.count(1)


@pytest.fixture
def tp(either_kafka):
    return TopicPartition(either_kafka.create_topic(f"timed-out-{next(numbers)}"), 0)


def answered(call):
    """The code of the error that `call` ends with, 0 if it succeeds."""
    try:
        call()
    except KafkaEosError as error:
        (code,) = re.findall(r"answered \w+ \((-?\d+)\)", error.what)
        return int(code)
    return NONE


def test_a_commit_after_the_timeout_is_void_and_neither_offsets_nor_records_can_be_added(
    cluster, tp, record_batch, consumed, await_state
):
    transaction = TransactionCoordinator(cluster, f"id-{tp.topic}", timeout_ms=1_000)
    group = GroupCoordinator(cluster, f"group-{tp.topic}")
    version = transaction.transaction_version
    identity = transaction.init_producer_id()

    def append(sequence):
        with Appender(cluster, identity) as appender:
            appender.append(tp, record_batch(identity, sequence, [b"given up"]), 1, sequence)
            appender.flush()

    def send_offsets():
        offsets = {tp: OffsetAndMetadata(offset=5, metadata="")}
        group.commit_in_transaction(identity, offsets, transaction_version=version)

    transaction.add_partitions(identity, [tp])
    append(0)
    transaction.add_offsets(identity, group.group_id)
    send_offsets()
    await_state(identity.transactional_id, "CompleteAbort")

    assert answered(lambda: append(1)) == INVALID_PRODUCER_EPOCH
    assert answered(send_offsets) == INVALID_PRODUCER_EPOCH
    assert answered(lambda: transaction.end(identity, commit=True)) == COMMIT[version]
    assert answered(lambda: transaction.end(identity, commit=False)) == ABORT[version]
    assert consumed(tp.topic) == []
    assert group.fetch_offsets([tp]) == {tp: None}
