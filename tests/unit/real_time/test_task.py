"""A task commits where it has read to, and not beyond the end of its range."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import NO_END, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.real_time import task as tasks
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.cycle import Written
from spark_kafka_eos.real_time.task import RealTimeTask

T0 = TopicPartition("t", 0)
RECORDS, EPOCH = 30, 3
IDENTITY = ProducerIdentity(transactional_id="id", producer_id=1, epoch=0, transaction_version=2)


def nowhere(_: Any) -> Any:
    """Connections of a task that needs no cluster."""
    return nullcontext()


def fetched(values, first, end, epoch=-1):
    """A record batch with these values from this offset on, of a log with this end."""
    log = encode(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), 0)
    log[:8] = first.to_bytes(8, "big")
    log[12:16] = epoch.to_bytes(4, "big", signed=True)  # as a leader stores it
    buffer = memoryview(bytes(log))
    return Fetched(
        partition=T0,
        buffer=buffer,
        batches=list(scan(buffer)),
        aborted=(),
        next_offset=first + len(values),
        high_watermark=end,
        last_stable_offset=end,
    )


def one_record(number, end=2):
    return fetched([b"a"], number, end)


class OneRecordBatch:
    """A log of one record batch, as a fetcher returns it: whole."""

    def fetch(self, ranges):
        yield fetched([b"%d" % number for number in range(RECORDS)], 0, RECORDS, EPOCH)


class Transactions:
    """Notes what is committed, and when the group gets a copy of the offsets."""

    def __init__(self, time=None):
        self.values, self.positions, self.epochs, self.dead_letters = [], {}, {}, {}
        self.time, self.uncopied, self.copies = time, False, []
        self.identity, self.sequences = IDENTITY, {T0: 4}

    def ask_for_markers(self):
        """Nothing was written before."""

    def commit(self, rows, positions, epochs):
        self.values += [value for part in rows for value in part["value"].to_pylist()]
        self.positions.update(positions)
        self.epochs.update(epochs)
        self.uncopied = True
        return Written(records=len(self.values), bytes=0)

    def copy_offsets(self):
        if self.uncopied:
            self.copies.append((None if self.time is None else self.time.now, dict(self.positions)))
        copied, self.uncopied = self.uncopied, False
        return copied


def task_of(*ranges, seconds=0.0, commit_interval=None):
    options = source_options({"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"})
    return RealTimeTask(
        buckets=(Bucket(number=0, identity=IDENTITY, ranges=ranges),),
        source=replace(options, columns=("key", "value")),
        client=options.client,
        settings=EncodeSettings(topic="t", targets={}, dead_letters=None),
        group_id="group",
        mark="mark",
        seconds=seconds,
        commit_interval=commit_interval,
    )


@pytest.mark.parametrize("end", [10, RECORDS])
def test_a_range_that_ends_inside_of_a_record_batch_is_committed_up_to_there(monkeypatch, end):
    transactions = Transactions()
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: OneRecordBatch())
    monkeypatch.setattr(tasks, "_transactions", lambda *_: transactions)
    task = task_of(OffsetRange(partition=T0, start=0, end=end))
    report = tasks.run(task, lambda read, _: read, connect=nowhere)
    assert (report.error, report.records_read) == (None, end)
    assert transactions.values == [b"%d" % number for number in range(end)]
    assert transactions.positions == {T0: end}
    assert transactions.copies == [(None, {T0: end})]
    assert transactions.epochs == {T0: EPOCH}
    (bucket,) = report.ended
    assert (bucket.identity, bucket.sequences) == (IDENTITY, {T0: 4})
    assert [(each.partition, each.start, each.last_epoch) for each in bucket.ranges] == [(T0, end, EPOCH)]


def test_a_row_for_a_topic_that_is_not_declared_fails_its_task_before_anything_is_committed(monkeypatch):
    """The driver looks for markers that are missing, and for loops, only where the options say that it may write."""

    def commits(bucket, task, _cluster):
        class Encoding(Transactions):
            def commit(self, rows, positions, epochs):
                encoder = BlockEncoder(task.settings, bucket.number, lambda _: Target(partitions=1), lambda: 0)
                for part in rows:
                    list(encoder.add(part))
                return super().commit([], positions, epochs)

        return Encoding()

    def to_the_source(rows, _settings):
        yield from (part.append_column("topic", pa.array(["t"] * part.num_rows)) for part in rows)

    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: OneRecordBatch())
    monkeypatch.setattr(tasks, "_transactions", commits)
    options = {"kafka.bootstrap.servers": "nowhere:9092", "kafka.transactional.id": "id", "outputTopics": "out"}
    settings = EncodeSettings(topic=None, targets={}, output_topics=sink_options(options).output_topics)
    task = replace(task_of(OffsetRange(partition=T0, start=0, end=RECORDS)), settings=settings)
    report = tasks.run(task, to_the_source, connect=nowhere)
    assert isinstance(report.error, InvalidRow)
    assert "topic 't', which is not in outputTopics (out)" in report.error.what
    assert (report.transactions, report.ended) == (0, ())


class TwoRecords:
    """A log of two record batches with a record each."""

    def fetch(self, ranges):
        for number in range(2):
            yield one_record(number)


def test_ranges_that_end_are_read_to_their_ends_however_long_it_takes(monkeypatch):
    transactions = Transactions()
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: TwoRecords())
    monkeypatch.setattr(tasks, "_transactions", lambda *_: transactions)
    task = task_of(OffsetRange(partition=T0, start=0, end=2), seconds=0.0)
    report = tasks.run(task, lambda read, _: read, connect=nowhere)
    assert (report.error, report.records_read, transactions.positions) == (None, 2, {T0: 2})


def test_a_task_that_fails_has_ended_no_bucket(monkeypatch):
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: OneRecordBatch())
    monkeypatch.setattr(tasks, "_transactions", lambda *_: Transactions())

    def fails(_rows, _settings):
        raise ValueError("no")

    report = tasks.run(task_of(OffsetRange(partition=T0, start=0, end=RECORDS)), fails, connect=nowhere)
    assert report.error is not None
    assert report.ended == ()


class Time:
    """A clock; commits take `commit_s`, sleeping the time that it is for."""

    def __init__(self, commit_s):
        self.now, self.commit_s, self.slept = 0.0, commit_s, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Following:
    """Answers that each have one record; after the one with `more`, there was more in the log."""

    def __init__(self, time, more):
        self.time, self.more = time, more

    def follow(self, ranges, seconds_left):
        for number in range(3):
            yield [one_record(number, number + 1 + (number == self.more))]
            yield []


@pytest.mark.parametrize(
    ("commit_s", "commit_interval", "rests"),
    [
        (0.01, None, [0.0025, 0.0025]),
        (0.4, None, [0.05, 0.05]),
        (0.01, 0.1, [0.09, 0.09]),
        (0.2, 0.1, [0.0, 0.0]),
    ],
)
def test_a_task_rests_after_a_commit_unless_there_is_more_in_the_log(monkeypatch, commit_s, commit_interval, rests):
    time = Time(commit_s)

    class Taking(Transactions):
        def commit(self, rows, positions, epochs):
            time.now += commit_s
            return super().commit(rows, positions, epochs)

    transactions = Taking()
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: Following(time, more=1))
    monkeypatch.setattr(tasks, "_transactions", lambda *_: transactions)
    task = task_of(OffsetRange(partition=T0, start=0, end=NO_END), seconds=10, commit_interval=commit_interval)
    connect: Any = lambda _: nullcontext(time)  # noqa: E731 - the type is that of a cluster
    report = tasks.run(task, lambda read, _: read, connect=connect, clock=lambda: time.now)
    assert report.error is None
    assert time.slept == pytest.approx(rests)


def test_a_task_rests_no_longer_than_its_time(monkeypatch):
    time = Time(0)
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: Following(time, more=None))
    monkeypatch.setattr(tasks, "_transactions", lambda *_: Transactions())
    task = task_of(OffsetRange(partition=T0, start=0, end=NO_END), seconds=1.5, commit_interval=1.0)
    connect: Any = lambda _: nullcontext(time)  # noqa: E731 - the type is that of a cluster
    assert tasks.run(task, lambda read, _: read, connect=connect, clock=lambda: time.now).error is None
    assert time.slept == pytest.approx([1.0, 0.5])


class Ticking:
    """Answers at these seconds: of each, how many records it has."""

    def __init__(self, time, records):
        self.time, self.records = time, records

    def follow(self, ranges, seconds_left):
        end = 0
        for at, count in self.records.items():
            self.time.now = at
            if not count:
                yield []
                continue
            log = encode(pa.nulls(count, pa.binary()), pa.array([b"a"] * count, pa.binary()), 0)
            log[:8] = end.to_bytes(8, "big")  # their first offset
            end += count
            buffer = memoryview(bytes(log))
            part = {"buffer": buffer, "batches": list(scan(buffer)), "aborted": (), "next_offset": end}
            # With more in the log, so that nothing rests.
            yield [Fetched(partition=T0, **part, high_watermark=end + 1, last_stable_offset=end + 1)]


@pytest.mark.parametrize(
    ("records", "copies"),
    [
        ({0.1: 1, 0.5: 1, 1.2: 1, 1.7: 1, 2.3: 1}, [(1.2, 3), (2.3, 5)]),
        ({0.1: 1, 0.9: 0, 1.0: 0, 1.5: 0}, [(1.0, 1)]),  # also while nothing comes, and only what is new
        ({3.0: 1, 3.1: 1, 3.2: 0}, [(3.0, 1), (3.2, 2)]),  # the last one, because the task ends
        ({1.5: 0}, []),
    ],
)
def test_the_group_gets_a_copy_of_the_offsets_once_a_second_and_when_the_task_ends(monkeypatch, records, copies):
    time = Time(0)
    transactions = Transactions(time)
    monkeypatch.setattr(tasks, "fetcher_for", lambda *_: Ticking(time, records))
    monkeypatch.setattr(tasks, "_transactions", lambda *_: transactions)
    task = task_of(OffsetRange(partition=T0, start=0, end=NO_END), seconds=10)
    connect: Any = lambda _: nullcontext(time)  # noqa: E731 - the type is that of a cluster
    assert tasks.run(task, lambda read, _: read, connect=connect, clock=lambda: time.now).error is None
    assert transactions.copies == [(at, {T0: end}) for at, end in copies]
