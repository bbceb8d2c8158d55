"""Positions by time, against the model of Kafka: what brokers name, and what a reader sees of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from lab.simulation.partition import Partition
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan, stamp
from spark_kafka_eos.reading import by_time
from spark_kafka_eos.reading.by_time import OffsetsByTime
from tests.model_kafka import KafkaModel

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_000_000  # the brokers' clock, long after the records' times


class Brokers(KafkaModel):
    """Brokers whose logs have transactions; by time, they name a record of any kind, as Kafka does."""

    def __init__(self, partitions=1):
        super().__init__(topics={"t": partitions}, nodes=1)
        self._sequence = 0
        self.segments = []  # the offsets where further segments begin
        self.deleted = []  # offset and time of what the first segment has below the log's start

    def write(self, *times, tp=T0, end="commit", producer=7):
        """A transaction with a record of each time."""
        log = self.partitions[tp]
        batch = encode(pa.nulls(len(times), pa.binary()), pa.array([b"v"] * len(times)), np.array(times, np.int64))
        stamp(batch, producer_id=producer, epoch=0, base_sequence=self._sequence, transactional=True)
        code, _ = log.append(producer, 0, None, (b"v",) * len(times), batch=bytes(batch))
        assert code == 0
        if end != "open":
            log.mark(producer, 0, end == "commit", timestamp_ms=NOW)

    def handle(self, node, api, version, request):
        if api == "ListOffsets" and request.topics[0].partitions[0].timestamp not in (-1, -2):
            [topic] = request.topics
            partitions = [self._named(partition, request.isolation_level) for partition in topic.partitions]
            return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=partitions)])
        return super().handle(node, api, version, request)

    def _named(self, asked, isolation_level):
        log = self.partitions[TopicPartition("t", asked.partition_index)]
        records = [*self.deleted, *_times(log)]
        if asked.timestamp == -3:
            newest = max((time for _, time in records), default=-1)
            return SimpleNamespace(partition_index=asked.partition_index, error_code=0, offset=0, timestamp=newest)
        first = next((at for at, time in records if time >= asked.timestamp), log.end_offset)
        behind = next((at for at in self.segments if at > first), log.end_offset)  # no other segment is looked at
        within = (at for at, time in records if time >= asked.timestamp and log.start_offset <= at < behind)
        offset = next(within, -1)
        end = log.last_stable_offset if isolation_level else log.end_offset
        return SimpleNamespace(
            partition_index=asked.partition_index, error_code=0, offset=offset if offset < end else -1
        )


def _times(log: Partition):
    for entry in log.log:
        if entry.commit is not None:
            yield entry.offset, entry.timestamp_ms
        else:
            times = decode(entry.batch, scan(entry.batch))["timestamp"].to_pylist()
            yield from zip(range(entry.offset, entry.next_offset), times, strict=True)


@pytest.fixture
def brokers():
    """Offsets 0, 1 and a marker; 3, 4 (aborted) and a marker; 6, 7, 8 and a marker."""
    brokers = Brokers()
    brokers.write(10, 20)
    brokers.write(50, 60, end="abort")
    brokers.write(30, 50, 40)
    return brokers


def at(brokers, time, level="read_committed", tp=T0):
    return OffsetsByTime(brokers.cluster(), level).offsets({tp: time})[tp]


@pytest.mark.parametrize(("time", "offset"), [(10, 0), (11, 1), (20, 1), (21, 6), (31, 7), (50, 7), (51, None)])
def test_a_marker_or_an_aborted_record_is_not_the_first_record_of_a_time(brokers, time, offset):
    assert at(brokers, time) == offset


@pytest.mark.parametrize(("time", "offset"), [(20, 1), (21, 3), (51, 4), (61, None)])
def test_an_aborted_record_is_one_to_whoever_reads_uncommitted(brokers, time, offset):
    assert at(brokers, time, "read_uncommitted") == offset


def test_what_is_behind_the_last_stable_offset_is_no_record_yet(brokers):
    brokers.write(70, end="open")
    assert at(brokers, 55) is None
    brokers.partitions[T0].mark(7, 0, True, timestamp_ms=NOW)
    assert at(brokers, 55) == 10


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(("time", "offset"), [(10, 6), (25, 6), (31, 7), (41, 7), (51, None)])
def test_a_record_is_found_that_brokers_do_not_name_since_an_older_segment_had_one_that_was_deleted(
    brokers, time, offset, level
):
    log = brokers.partitions[T0]
    log.log[3] = log.log[3]._replace(timestamp_ms=0)
    brokers.segments, brokers.deleted = [6], [(at, time) for at, time in _times(log) if at < 5]
    log.delete_before(5)  # of the first segment this old marker is left
    assert at(brokers, time, level) == offset


def test_partitions_are_looked_up_together_whatever_is_named_there():
    brokers = Brokers(partitions=3)
    for number, times in enumerate([(10, 20), (30, 40), (1, 2)]):
        brokers.write(*times, tp=TopicPartition("t", number))
    brokers.write(35, tp=T0)
    partitions = [TopicPartition("t", number) for number in range(3)]
    expected = dict(zip(partitions, [3, 0, None], strict=True))
    assert OffsetsByTime(brokers.cluster()).offsets(dict.fromkeys(partitions, 25)) == expected


def test_a_record_that_is_named_costs_one_small_request(brokers):
    at(brokers, 11)
    assert len(brokers.sent("Fetch")) == 1


def test_a_stream_that_asks_again_looks_only_at_what_is_new(brokers):
    lookup = OffsetsByTime(brokers.cluster())
    assert lookup.offsets({T0: 100}) == {T0: None}
    asked = len(brokers.sent("Fetch"))
    assert lookup.offsets({T0: 100}) == {T0: None}
    assert len(brokers.sent("Fetch")) == asked
    brokers.write(90, 100)
    assert lookup.offsets({T0: 100}) == {T0: 11}
    [only] = brokers.sent("Fetch")[asked:]
    assert only.topics[0].partitions[0].fetch_offset == 10
    lookup.forget((), [T0])
    assert lookup.offsets({T0: 45}) == {T0: 7}


def test_a_long_look_is_reported(brokers, monkeypatch, caplog):
    monkeypatch.setattr(by_time, "_MUCH", 5)
    monkeypatch.setattr(by_time, "_FIRST_STEP", 2)
    assert at(brokers, 100) is None
    assert "for the first record of t-0 at or after a time" in caplog.text


def test_what_is_deleted_while_it_is_looked_at_is_asked_for_again(brokers):
    brokers.before("Fetch", lambda: brokers.partitions[T0].delete_before(7))
    assert at(brokers, 15) == 7
