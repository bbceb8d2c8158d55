"""The ledger's records by transactional.id: which are committed, pending or from outside, however they are stored."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lab.simulation.partition import Partition
from lab.simulation.stored import stored
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan, stamp
from spark_kafka_eos.ledger.records import LedgerRecords, RecordLog

AT = TopicPartition("ledger", 0)


class Log:
    """A partition of the ledger topic; `read` takes it into a RecordLog."""

    def __init__(self) -> None:
        self.partition = Partition()

    def add(
        self, key: str | None, value: str | None, *, producer: int = -1, epoch: int = 0, codec: str = "none"
    ) -> int:
        """Append a record, in a transaction of this producer or else outside of transactions; its offset."""
        keys, values = (pa.array([None if each is None else each.encode()], pa.binary()) for each in (key, value))
        batch = encode(keys, values, 1_700, compression_type=codec)
        if producer < 0:
            return self.partition.append_plain((value,), batch=bytes(batch))
        stamp(batch, producer_id=producer, epoch=epoch, base_sequence=0, transactional=True)
        return self.partition.append(producer, epoch, None, (value,), batch=bytes(batch))[1]

    def end(self, producer: int, *, commit: bool, epoch: int = 0) -> None:
        self.partition.mark(producer, epoch, commit)

    def read(self, log: RecordLog, *, end: int | None = None, settled: bool = True) -> RecordLog:
        buffer = memoryview(b"".join(stored(entry) for entry in self.partition.log))
        log.take(
            Fetched(
                partition=AT,
                buffer=buffer,
                batches=tuple(scan(buffer)),
                aborted=(),
                next_offset=self.partition.end_offset,
                high_watermark=self.partition.end_offset,
                last_stable_offset=self.partition.last_stable_offset,
            ),
            self.partition.end_offset if end is None else end,
        )
        if settled:
            log.settle(self.partition.last_stable_offset)
        return log


@pytest.fixture
def log() -> Log:
    return Log()


def committed(found: LedgerRecords) -> list[bytes | None]:
    return [record.value for record in found.committed]


def test_a_record_is_that_of_its_key_and_says_who_wrote_it_when(log: Log) -> None:
    offset = log.add("id", "a", producer=7, epoch=3)
    log.end(7, epoch=3, commit=True)
    (found,) = log.read(RecordLog()).by_id["id"].committed
    assert (found.offset, found.timestamp_ms, found.value) == (offset, 1_700, b"a")
    assert (found.producer_id, found.epoch) == (7, 3)


def test_markers_decide_what_is_committed(log: Log) -> None:
    log.add("one", "a", producer=1)
    log.add("other", "x", producer=2)
    log.add("third", "?", producer=3)
    log.end(2, commit=False)
    log.end(1, commit=True)
    found = log.read(RecordLog(), settled=False).by_id
    assert {name: (committed(each), len(each.pending)) for name, each in found.items()} == {
        "one": ([b"a"], 0),
        "other": ([], 0),
        "third": ([], 1),
    }


def test_what_has_no_marker_below_the_last_stable_offset_is_committed(log: Log) -> None:
    log.add("id", "a", producer=1)
    log.add("id", "b", producer=2)
    found = RecordLog(keep=2)
    log.read(found, settled=False)
    found.settle(1)
    assert (committed(found.by_id["id"]), len(found.by_id["id"].pending)) == ([b"a"], 1)
    found.settle(2)
    assert (committed(found.by_id["id"]), found.by_id["id"].pending) == ([b"a", b"b"], [])


def test_only_the_last_ones_are_kept_and_each_offset_once(log: Log) -> None:
    for value in "abc":
        log.add("id", value, producer=1)
        log.end(1, commit=True)
    found = RecordLog(keep=2)
    for _ in range(2):
        log.read(found)
    assert committed(found.by_id["id"]) == [b"b", b"c"]


def test_what_begins_at_the_end_or_after_it_is_left_for_later(log: Log) -> None:
    log.add("id", "a", producer=1)
    log.end(1, commit=True)
    log.add("id", "b")
    assert committed(log.read(RecordLog(), end=2).by_id["id"]) == [b"a"]


def test_the_last_record_from_outside_of_transactions_is_noted_and_a_tombstone_does_not_hide_it(log: Log) -> None:
    log.add("id", None)
    assert log.read(RecordLog()).by_id["id"].outside is None
    log.add("id", "a")
    outside = log.add("id", "b")
    log.add("id", None)
    found = log.read(RecordLog()).by_id["id"]
    assert found.outside is not None
    assert (found.outside.offset, found.outside.value) == (outside, b"b")
    assert (found.outside.producer_id, found.outside.epoch) == (-1, -1)
    assert committed(found) == [None]


def test_what_a_transaction_wrote_is_not_from_outside(log: Log) -> None:
    log.add("id", "a", producer=1)
    log.end(1, commit=True)
    assert log.read(RecordLog()).by_id["id"].outside is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_of_one_id_all_records_are_found_and_no_others_whatever_their_compression(log: Log, codec: str) -> None:
    log.add("id", "a" * 1_000, codec=codec)
    log.add("other", "names id, but is not its record", codec=codec)
    log.add(None, "id", codec=codec)
    found = log.read(RecordLog(only="id")).by_id
    assert {name: committed(each) for name, each in found.items()} == {"id": [b"a" * 1_000]}


def test_the_uncompressed_records_of_other_ids_are_not_even_decoded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_kafka_eos.kafka.wire import single

    decoded: list[int] = []
    real = single.records

    def counted(buffer: Any, header: Any) -> Any:
        decoded.append(header.base_offset)
        return real(buffer, header)

    log.add("other", "x")
    mine = log.add("id", "a")
    monkeypatch.setattr(single, "records", counted)
    log.read(RecordLog(only="id"))
    assert decoded == [mine]
