"""A task commits where it has read to, and not beyond the end of its range."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.blocks import EncodeSettings
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options import source_options
from spark_kafka_eos.real_time import task as tasks
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.cycle import Written
from spark_kafka_eos.real_time.task import RealTimeTask

T0 = TopicPartition("t", 0)
RECORDS = 30


class OneRecordBatch:
    """A log of one record batch, as a fetcher returns it: whole."""

    def fetch(self, ranges):
        log = encode(pa.nulls(RECORDS, pa.binary()), pa.array([b"%d" % n for n in range(RECORDS)], pa.binary()), 0)
        buffer = memoryview(bytes(log))
        yield Fetched(
            partition=T0,
            buffer=buffer,
            batches=list(scan(buffer)),
            aborted=(),
            next_offset=RECORDS,
            high_watermark=RECORDS,
            last_stable_offset=RECORDS,
        )


class Transactions:
    """Notes what is committed."""

    def __init__(self):
        self.values, self.positions, self.dead_letters = [], {}, {}

    def ask_for_markers(self):
        """Nothing was written before."""

    def commit(self, rows, positions):
        self.values += [value for part in rows for value in part["value"].to_pylist()]
        self.positions.update(positions)
        return Written(records=len(self.values), bytes=0)


@pytest.mark.parametrize("end", [10, RECORDS])
def test_a_range_that_ends_inside_of_a_record_batch_is_committed_up_to_there(monkeypatch, end):
    transactions = Transactions()
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: OneRecordBatch())
    monkeypatch.setattr(tasks, "_transactions", lambda *_: transactions)
    options = source_options({"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"})
    identity = ProducerIdentity(transactional_id="id", producer_id=1, epoch=0, transaction_version=2)
    task = RealTimeTask(
        buckets=(Bucket(number=0, identity=identity, ranges=(OffsetRange(partition=T0, start=0, end=end),)),),
        source=replace(options, columns=("key", "value")),
        client=options.client,
        settings=EncodeSettings(topic="t", targets={}, dead_letters=None),
        group_id="group",
        mark="mark",
        seconds=0,
    )
    nowhere: Any = lambda _: nullcontext()  # noqa: E731 - the type is that of a cluster
    report = tasks.run(task, lambda read, _: read, connect=nowhere)
    assert (report.error, report.records_read) == (None, end)
    assert transactions.values == [b"%d" % number for number in range(end)]
    assert transactions.positions == {T0: end}
