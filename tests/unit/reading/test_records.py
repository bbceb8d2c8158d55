"""From a Fetch response's part to rows, without a broker: what is cut, joined, or left out when data is lost."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_eos.errors import CorruptRecordBatch, DataLoss, UndecodableRecord, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.record_batch import scan, stamp
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading import records as reading
from tests.model_kafka import KafkaModel

T0 = TopicPartition("t", 0)
RECEIVED = 1_700_000_000_123


def options(**given):
    return source_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"} | given)


def part(first, *sizes, partition=T0, width=0):
    """Record batches of `sizes` records from offset `first` on; each value is its offset, odd ones have a header.

    `width`: so many bytes at least in each value, blanks before the number.
    """
    buffer = bytearray()
    offset = first
    for size in sizes:
        values = pa.array([str(number).rjust(width).encode() for number in range(offset, offset + size)], pa.binary())
        headers = [[{"key": "n", "value": value}] if int(value[-9:]) % 2 else [] for value in values.to_pylist()]
        batch = encode(pa.nulls(size, pa.binary()), values, RECEIVED, pa.array(headers, HEADERS))
        batch[:8] = offset.to_bytes(8, "big")
        buffer += batch
        offset += size
    return Fetched(
        partition=partition,
        buffer=memoryview(buffer),
        batches=tuple(scan(buffer)),
        aborted=(),
        next_offset=offset,
        high_watermark=offset,
        last_stable_offset=offset,
    )


class ScriptedFetcher:
    """Each call of `fetch` gives the next answer's parts, and raises what it ends with; `asked` are the ranges."""

    def __init__(self):
        self.answers, self.asked = [], []

    def __call__(self, *answers):
        self.answers += answers
        return self.asked

    def fetch(self, ranges):
        self.asked.append(ranges)
        for item in self.answers.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item


@pytest.fixture
def fetches():
    """`fetches(answers…)`: what is fetched."""
    return ScriptedFetcher()


@pytest.fixture
def kafka():
    return KafkaModel(2, {"t": 1, "u": 1})


def wanted(start, end, partition=T0):
    return OffsetRange(partition=partition, start=start, end=end)


@pytest.fixture
def read(fetches, kafka):
    def run(ranges, *, decompressed_bytes=256 << 20, columns=(), **given):
        scripted: Any = {"fetcher": lambda *_, **__: fetches, "decompressed_bytes": decompressed_bytes}
        chosen = replace(options(**given), columns=columns)
        batches = reading.read(ranges, chosen, kafka.cluster(), **scripted)
        return list(batches)

    return run


def offsets(batches):
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_a_row_has_the_built_in_sources_columns(fetches, read):
    fetches([part(5, 1)])
    [row] = read([wanted(5, 6)])[0].to_pylist()
    assert row.pop("timestamp").timestamp() == RECEIVED / 1000
    assert row == {"key": None, "value": b"5", "topic": "t", "partition": 0, "offset": 5, "timestampType": 0}


def test_a_row_has_the_chosen_columns_in_their_order(fetches, read):
    fetches([part(5, 1)])
    chosen = read([wanted(5, 6)], columns=("topic", "value"))
    assert [batch.to_pydict() for batch in chosen] == [{"topic": ["t"], "value": [b"5"]}]


@pytest.mark.parametrize(("start", "end"), [(10, 30), (13, 27), (10, 11), (29, 30), (15, 25), (19, 21)])
def test_record_batches_that_straddle_a_range_are_cut_by_offset(fetches, read, start, end):
    fetches([part(10, 10, 10)])
    assert offsets(read([wanted(start, end)])) == list(range(start, end))


def test_headers_stay_with_their_rows_when_a_batch_is_cut(fetches, read):
    fetches([part(0, 10)])
    [batch] = read([wanted(3, 6)], includeHeaders="true")
    assert batch["headers"].to_pylist() == [[{"key": "n", "value": b"3"}], None, [{"key": "n", "value": b"5"}]]


def test_a_part_outside_the_range_makes_no_batch(fetches, read):
    fetches([part(10, 5), part(15, 5)])
    assert offsets(read([wanted(15, 20)])) == list(range(15, 20))


def test_small_parts_of_many_partitions_are_joined_in_order(fetches, read):
    partitions = [TopicPartition("t", number) for number in range(200)]
    fetches([part(0, 2, partition=partition) for partition in partitions])
    [joined] = read([wanted(0, 2, partition) for partition in partitions])
    assert joined["partition"].to_pylist() == sorted(list(range(200)) * 2)
    assert joined["offset"].to_pylist() == [0, 1] * 200


def test_large_parts_are_cut_and_keep_their_order(fetches, read):
    fetches([part(0, 100), part(100, 70_000), part(70_100, 70_000)])
    batches = read([wanted(0, 140_100)])
    assert offsets(batches) == list(range(140_100))
    assert max(batch.num_rows for batch in batches) <= 65_536
    assert len(batches) == 4


def test_parts_of_large_values_are_passed_on_unchanged(fetches, read):
    fetches([part(first, 2, width=2_500_000) for first in (0, 2, 4)])
    batches = read([wanted(0, 6)])
    assert [batch["offset"].to_pylist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]


def test_damaged_bytes_name_the_partition(fetches, read):
    damaged = part(0, 3)
    damaged.buffer[-1] ^= 1
    fetches([damaged])
    with pytest.raises(CorruptRecordBatch, match="t-0.*offset 0"):
        read([wanted(0, 3)])


def with_timestamps(*timestamps):
    """A part with a record for each of these, in milliseconds."""
    count = len(timestamps)
    buffer = encode(pa.nulls(count, pa.binary()), pa.array([b"a"] * count, pa.binary()), np.array(timestamps))
    return replace(part(0, count), buffer=memoryview(buffer), batches=tuple(scan(buffer)))


NANOSECONDS = RECEIVED * 1_000_000
LAST_MS = 9_223_372_036_854_775


@pytest.mark.parametrize(
    ("timestamps", "named"),
    [
        ((RECEIVED, NANOSECONDS, NANOSECONDS + 5), f"offset 1 has timestamp {NANOSECONDS} ms"),
        ((LAST_MS + 1, 2**62), f"offset 0 has timestamp {LAST_MS + 1} ms"),
        ((RECEIVED, -LAST_MS - 1, -(2**62)), f"offset 1 has timestamp {-LAST_MS - 1} ms"),
    ],
)
def test_a_timestamp_that_spark_cannot_hold_names_the_first_such_record(fetches, read, timestamps, named):
    fetches([with_timestamps(*timestamps)])
    with pytest.raises(UndecodableRecord, match=f"t-0: the record at {named}") as raised:
        read([wanted(0, len(timestamps))])
    assert ("in nanoseconds it would be in 20" in str(raised.value)) == (NANOSECONDS in timestamps)


def test_records_whose_timestamps_spark_cannot_hold_are_read_without_the_column(fetches, read):
    fetches([with_timestamps(RECEIVED, NANOSECONDS)])
    assert offsets(read([wanted(0, 2)], columns=("value", "offset"))) == [0, 1]


def test_the_first_and_the_last_timestamp_that_spark_can_hold_are_read(fetches, read):
    fetches([with_timestamps(-LAST_MS, -1, LAST_MS)])
    (batch,) = read([wanted(0, 3)])
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [-LAST_MS * 1_000, -1_000, LAST_MS * 1_000]


def test_the_crc_is_not_looked_at_when_it_is_switched_off(fetches, read):
    damaged = part(0, 3)
    damaged.buffer[-2] ^= 1
    fetches([damaged])
    assert offsets(read([wanted(0, 3)], **{"kafka.check.crcs": "false"})) == [0, 1, 2]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_small_batch_that_would_decompress_to_far_too_much_is_refused(fetches, read, codec):
    buffer = encode(pa.nulls(1, pa.binary()), pa.array([bytes(2 << 20)]), RECEIVED, compression_type=codec)
    bomb = replace(part(0, 1), buffer=memoryview(buffer), batches=tuple(scan(buffer)))
    option = "kafka.max.partition.fetch.bytes"
    fetches([bomb])
    with pytest.raises(CorruptRecordBatch, match=f"t-0: .* more than 1000000 bytes.*{option}"):
        read([wanted(0, 1)], decompressed_bytes=1_000_000, **{option: 1_000})
    fetches([bomb])
    assert offsets(read([wanted(0, 1)], decompressed_bytes=1_000_000, **{option: 100_000})) == [0]


def holds(kafka, earliest, latest):
    """What the brokers still hold of every partition."""
    for log in kafka.partitions.values():
        log.append_plain((None,) * latest)
        log.delete_before(earliest)


def test_offsets_lost_while_reading_fail_the_task(fetches, read):
    fetches([part(0, 5), DataLoss("gone")])
    with pytest.raises(DataLoss, match="gone"):
        read([wanted(0, 20)])


def test_offsets_lost_while_reading_are_left_out_on_request(fetches, read, kafka):
    asked = fetches([part(0, 5), DataLoss("gone")], [part(12, 8)])
    holds(kafka, 12, 20)
    assert offsets(read([wanted(0, 20)], failOnDataLoss="false")) == [0, 1, 2, 3, 4, *range(12, 20)]
    assert asked == [(wanted(0, 20),), (wanted(12, 20),)]


def test_what_is_lost_is_logged_range_by_range(fetches, read, kafka, caplog):
    fetches([DataLoss("gone")], [part(12, 4)])
    holds(kafka, 12, 16)
    read([wanted(0, 20)], failOnDataLoss="false")
    assert "t-0 from 0 to 12 (deleted by retention, or by request)" in caplog.text
    assert "t-0 from 16 to 20 (the log ends at 16)" in caplog.text


def test_what_is_deleted_in_the_middle_of_a_record_batch_does_not_come_back_with_it(fetches, read, kafka):
    fetches([DataLoss("gone")], [part(10, 10)])
    holds(kafka, 15, 20)
    assert offsets(read([wanted(0, 20)], failOnDataLoss="false")) == [15, 16, 17, 18, 19]


def test_a_topic_created_again_is_left_out_on_request_and_the_others_are_read_on(fetches, read, kafka, caplog):
    other = TopicPartition("u", 0)
    fetches([DataLoss("another id")], [part(0, 5, partition=other)])
    holds(kafka, 0, 20)
    both = [replace(wanted(3, 9), topic_id=uuid.UUID(int=99)), wanted(0, 5, other)]
    assert [row["topic"] for batch in read(both, failOnDataLoss="false") for row in batch.to_pylist()] == ["u"] * 5
    assert "t-0 from 3 to 9 (the partition is gone)" in caplog.text


def test_a_topic_deleted_while_it_is_read_is_data_loss(fetches, read):
    fetches([part(0, 5), UnknownTopic("no topic 't'")])
    with pytest.raises(DataLoss, match=r"a topic was deleted.*no topic 't'.*t-0 from 5 to 20"):
        read([wanted(0, 20)])


def test_a_topic_deleted_while_it_is_read_is_left_out_on_request(fetches, read, kafka, caplog):
    fetches([part(0, 5), UnknownTopic("no topic 't'")])
    for tp in list(kafka.partitions):
        kafka.topics.delete(tp.topic)
    assert offsets(read([wanted(0, 20)], failOnDataLoss="false")) == [0, 1, 2, 3, 4]
    assert "t-0 from 5 to 20 (the partition is gone)" in caplog.text


def test_a_loss_that_cannot_be_located_fails_the_task_when_it_comes_again(fetches, read, kafka):
    fetches([DataLoss("stuck")], [DataLoss("stuck")])
    holds(kafka, 0, 20)
    with pytest.raises(DataLoss, match="stuck"):
        read([wanted(0, 20)], failOnDataLoss="false")


@pytest.mark.parametrize("include_headers", ["false", "true"])
@pytest.mark.parametrize("sizes", [[(1,), (2, 3), (4,)], [(), (5, 1), ()], [(3,), (), (1, 1, 1)]])
def test_parts_that_are_decoded_together_have_the_rows_of_each(sizes, include_headers):
    fetched = [part(10, *size, partition=TopicPartition("t", number)) for number, size in enumerate(sizes)]
    ranges = {each.partition: wanted(11, 14, each.partition) for each in fetched}
    source = options(includeHeaders=include_headers)
    each = [rows for one in fetched for rows in reading.rows_of([one], ranges, source)]
    together = reading.rows_of(fetched, ranges, source)
    assert [row for rows in together for row in rows.to_pylist()] == [row for rows in each for row in rows.to_pylist()]
    assert sum(rows.num_rows for rows in together) == sum(min(3, max(0, sum(size) - 1)) for size in sizes)


def test_of_parts_that_are_decoded_together_an_error_names_the_corrupt_one():
    fetched = [part(0, 3, partition=TopicPartition("t", number)) for number in range(3)]
    fetched[1].buffer[-1] ^= 1
    ranges = {each.partition: wanted(0, 3, each.partition) for each in fetched}
    with pytest.raises(CorruptRecordBatch, match=r"t-1: .*offset 0"):
        reading.rows_of(fetched, ranges, options())


def test_of_parts_that_are_decoded_together_an_aborted_transactions_records_are_left_out():
    partitions = [TopicPartition("t", number) for number in range(2)]
    buffer = bytearray(part(0, 3).buffer)
    stamp(buffer, producer_id=7, epoch=0, base_sequence=0, transactional=True)
    aborted = replace(
        part(0, 3),
        buffer=memoryview(buffer),
        batches=tuple(scan(buffer)),
        aborted=(AbortedTransaction(producer_id=7, first_offset=0),),
    )
    fetched = [aborted, part(0, 2, partition=partitions[1])]
    rows = reading.rows_of(fetched, {tp: wanted(0, 3, tp) for tp in partitions}, options())
    assert [row["partition"] for batch in rows for row in batch.to_pylist()] == [1, 1]
