"""A topic that keeps one record for each transaction, in the same transaction: written and read back by the product."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lab.simulation.query import Row, block_of, contents_of
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.wire.decode import control_marker, decode
from spark_kafka_eos.kafka.wire.encode import encode
from tests.coordinating import TransactionCoordinator
from tests.transacting import ModelSide

TOPIC = "books"  # append() writes no ledger
KEY = b"id"
LEDGER = TopicPartition(TOPIC, 2)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def side(request):
    side = ModelSide(request.param)
    side.kafka.topics.create(TOPIC, 3)
    return side


def record(number):
    return encode(pa.array([KEY], pa.binary()), pa.array([b'{"batch":%d}' % number], pa.binary()), 0)


def write(side, number, *, commit):
    coordinator = TransactionCoordinator(side.cluster, KEY.decode(), 60_000)
    identity = coordinator.init_producer_id()
    row = encode(pa.array([None], pa.binary()), pa.array([b"row"], pa.binary()), 0)
    append(side.cluster, identity, [(TopicPartition("out", 0), 1, row), (LEDGER, 1, record(number))])
    coordinator.end(identity, commit=commit)


def told(side):
    """What a new owner makes of the ledger's partition: the values that are committed, in order."""
    first = offsets.earliest(side.cluster, [LEDGER])[LEDGER]
    end = offsets.latest(side.cluster, [LEDGER], isolation_level="read_uncommitted")[LEDGER]
    pending: dict[int, list[Any]] = {}
    committed = []
    for fetched in Fetcher(side.cluster, isolation_level="read_uncommitted").fetch(
        [OffsetRange(partition=LEDGER, start=first, end=end)]
    ):
        for header in fetched.batches:
            waiting = pending.setdefault(header.producer_id, [])
            if not header.is_control:
                waiting += decode(fetched.buffer, [header])["value"].to_pylist()
                continue
            if control_marker(fetched.buffer, header) == "commit":
                committed += waiting
            waiting.clear()
    return committed


def test_a_new_owner_reads_what_is_committed_and_nothing_else(side):
    write(side, 0, commit=True)
    write(side, 1, commit=False)
    write(side, 1, commit=True)
    _, *held = side.init("id")  # of an owner that died
    if side.version < 2:
        side.add("id", held, 0)
    side.produce("id", held, 0, 0, [b"open"])
    TransactionCoordinator(side.cluster, KEY.decode(), 60_000).init_producer_id()
    assert told(side) == [b'{"batch":0}', b'{"batch":1}']
    assert not side.kafka.open()


def test_contents_are_rows_or_keys_and_values():
    assert contents_of(LEDGER, bytes(record(3))) == ((KEY, b'{"batch":3}'),)
    rows = (Row(0, 7), Row(1, 8))
    assert contents_of(TopicPartition("out", 0), block_of(rows)) == rows
