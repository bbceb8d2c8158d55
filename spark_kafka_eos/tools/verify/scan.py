"""Reads whole topics with this package's fetcher and decoder into the columns for a check."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_eos.dead_letters.headers import header_name, letter_of
from spark_kafka_eos.errors import CorruptRecordBatch, ToolFailed
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader
from spark_kafka_eos.kafka.wire.decode import Marker, control_marker, decode_in_parts
from spark_kafka_eos.kafka.wire.digests import digests
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.tools.verify.evidence import Contents, PartitionLog, Seen
from spark_kafka_eos.tools.verify.outcomes import BatchKind, BatchTable
from spark_kafka_eos.tools.verify.provenance_bytes import MAGIC, PROVENANCE, Provenance, unpack
from spark_kafka_eos.tools.verify.table import ComparedColumns, RowDigests

ScanProgress = Callable[[int], None]  # gets the number of offsets that were read since
TakeContents = Literal["never", "without provenance", "always"]

_KINDS: Mapping[Marker, BatchKind] = {"commit": BatchKind.COMMIT, "abort": BatchKind.ABORT, "other": BatchKind.OTHER}
_FETCH_WAIT_MS = 100
_CAUSE = header_name("cause")
_PARTITIONS, _OFFSETS = 1 << 31, 1 << 63  # the first numbers that the provenance cannot hold


@dataclass(slots=True)
class _Columns:
    batches: list[tuple[int, int, int, int, bool, int, int]] = field(default_factory=list)
    offset: list[NDArray[np.int64]] = field(default_factory=list)
    provenance: list[Provenance] = field(default_factory=list)
    dead_letters: int = 0
    contents: list[Contents] = field(default_factory=list)


def logs(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    stable: Mapping[TopicPartition, int],
    progress: ScanProgress,
    take_contents: TakeContents = "never",
    *,
    dead_letters_of: str | None = None,
) -> list[PartitionLog]:
    """Everything in `ranges`, which end at the high watermark, read uncommitted; `stable`: the last stable offsets.

    Computing the records' contents costs about as much as everything else. "without provenance": compute them only
    until the first value with provenance. `dead_letters_of`: the source topic whose dead letters may be among the
    records; their headers say where they come from. Raises what `Fetcher.fetch` and `decode` raise.
    """
    by_partition = {offset_range.partition: _Columns() for offset_range in ranges}
    at = {offset_range.partition: offset_range.start for offset_range in ranges}
    fetcher = Fetcher(cluster, isolation_level="read_uncommitted", fetch_max_wait_ms=_FETCH_WAIT_MS)
    for part in fetcher.fetch(ranges):
        progress(part.next_offset - at[part.partition])
        at[part.partition] = part.next_offset
        columns, data = by_partition[part.partition], []
        for header in part.batches:
            if header.is_control:
                columns.batches.append(_row(header, _KINDS[control_marker(part.buffer, header)]))
            else:
                columns.batches.append(_row(header, BatchKind.DATA))
                data.append(header)
        for records in _named(part, decode_in_parts(part.buffer, data, include_headers=dead_letters_of is not None)):
            columns.offset.append(records["offset"].to_numpy())
            provenance = unpack(records["value"])
            traced = provenance["magic"] == MAGIC
            if take_contents == "without provenance" and traced.any():
                take_contents = "never"
            if dead_letters_of is not None and not traced.all():
                of_headers = unpack_headers(records["headers"], dead_letters_of)
                provenance = np.where(traced, provenance, of_headers)
                columns.dead_letters += int((~traced & (of_headers["magic"] == MAGIC)).sum())
            columns.provenance.append(provenance)
            if take_contents != "never":
                columns.contents.append(digests(records["key"], records["value"]))
    return [
        _log(
            offset_range,
            by_partition[offset_range.partition],
            stable[offset_range.partition],
            with_contents=take_contents != "never",
        )
        for offset_range in ranges
    ]


def _row(header: RecordBatchHeader, kind: BatchKind) -> tuple[int, int, int, int, bool, int, int]:
    records = header.record_count if kind is BatchKind.DATA else 0
    producer = header.producer_id, header.producer_epoch, header.is_transactional
    return header.base_offset, header.next_offset, *producer, kind, records


def _log(offset_range: OffsetRange, columns: _Columns, stable: int, *, with_contents: bool) -> PartitionLog:
    return PartitionLog(
        partition=offset_range.partition,
        batches=BatchTable.of(columns.batches),
        offset=np.concatenate([np.zeros(0, np.int64), *columns.offset]),
        provenance=np.concatenate([np.zeros(0, PROVENANCE), *columns.provenance]),
        high_watermark=offset_range.end,
        last_stable_offset=stable,
        start=offset_range.start,
        contents=np.concatenate([np.zeros((0, 2), np.uint64), *columns.contents]) if with_contents else None,
        dead_letters=columns.dead_letters,
    )


def seen(cluster: Cluster, ranges: Sequence[OffsetRange], progress: ScanProgress) -> dict[TopicPartition, Seen]:
    """The offsets that this package's source reads of `ranges`, which end at the last stable offset.

    This is what a query reads (`reading.records`). Raises what that raises.
    """
    offsets: dict[TopicPartition, list[NDArray[np.int64]]] = {offset_range.partition: [] for offset_range in ranges}
    for topic in sorted({offset_range.partition.topic for offset_range in ranges}):
        of_topic = [offset_range for offset_range in ranges if offset_range.partition.topic == topic]
        for rows in read(of_topic, SourceOptions(client=cluster.options, subscribe=(topic,)), cluster):
            number, offset = rows["partition"].to_numpy(), rows["offset"].to_numpy()
            for partition in np.unique(number).tolist():
                offsets[TopicPartition(topic, partition)].append(offset[number == partition])
            progress(rows.num_rows)
    return {
        offset_range.partition: Seen(
            start=offset_range.start,
            end=offset_range.end,
            offset=np.concatenate([np.zeros(0, np.int64), *offsets[offset_range.partition]]),
        )
        for offset_range in ranges
    }


def compared(
    cluster: Cluster, ranges: Sequence[OffsetRange], columns: ComparedColumns, progress: ScanProgress
) -> tuple[RowDigests, Callable[[int], str]]:
    """The records that this package's source reads of `ranges`, as they are compared with a table's rows, and the place
    of each by its number. Raises ToolFailed if one cannot be compared, and what `seen` raises.
    """
    digests, partitions = RowDigests(columns), [offset_range.partition for offset_range in ranges]
    index = {tp: number for number, tp in enumerate(partitions)}
    places, offsets = array("i"), array("q")
    for topic in sorted({tp.topic for tp in partitions}):
        of_topic = [offset_range for offset_range in ranges if offset_range.partition.topic == topic]
        for rows in read(of_topic, SourceOptions(client=cluster.options, subscribe=(topic,)), cluster):
            names = ("partition", "offset", "key", "value")
            for partition, offset, key, value in zip(*(rows[name].to_pylist() for name in names), strict=True):
                try:
                    digests.add(columns.of_record(key, value))
                except ValueError as error:
                    raise ToolFailed(
                        f"the record {topic}-{partition}@{offset} cannot be compared with a row: {error}",
                        action="--columns names what a row has of a record: key, value, or fields of a JSON object.",
                    ) from error
                places.append(index[TopicPartition(topic, partition)])
                offsets.append(offset)
            progress(rows.num_rows)
    return digests, lambda number: f"{partitions[places[number]]}@{offsets[number]}"


def _named(part: Fetched, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from records
    except CorruptRecordBatch as error:
        raise CorruptRecordBatch(f"{part.partition}: {error.what}", action=error.action) from error


def unpack_headers(headers: pa.ListArray, topic: str) -> Provenance:
    """The provenance of each dead letter that was a record of `topic`; all zeros (without the magic) for others.

    The sink appends the headers (dead_letters.headers). Invariant 1 counts a dead letter as the copy of a source
    record, like a value with provenance. The batch is -1 if the headers do not contain it.
    """
    provenance = np.zeros(len(headers), PROVENANCE)
    named = pc.equal(headers.flatten().field("key"), _CAUSE)
    for record in pc.list_parent_indices(headers).filter(named).unique().to_pylist():
        letter = letter_of((header["key"], header["value"]) for header in headers[record].as_py())
        if letter is None or letter.topic != topic or letter.partition is None or letter.offset is None:
            continue
        if 0 <= letter.partition < _PARTITIONS and 0 <= letter.offset < _OFFSETS:
            batch = -1 if letter.batch_id is None or letter.batch_id >= _OFFSETS else letter.batch_id
            provenance[record] = (MAGIC, letter.partition, letter.offset, batch, -1)
    return provenance
