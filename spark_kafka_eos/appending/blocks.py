"""Encodes rows as blocks: complete record batches of one partition each, still without producer id and sequence.

A block is encoded where the rows are (in any task and any retry, because this has no side effect) and stamped with
producer id, epoch and base sequence where it is appended. So blocks, not rows, go through the shuffle or the staging
files: a few large binaries instead of millions of rows.

Not obvious:
- Blocks are limited by an upper bound of their encoded size before compression, as the Java producer does with
  `max.request.size`. A single record above the bound is an error with its topic and partition.
- A topic's `max.message.bytes` applies after compression, so a single record can only be checked once it is encoded.
  Compression can also add bytes: a block that becomes too large is split in two. The broker checks what it stores:
  where the topic's `compression.type` differs, after it has compressed again. So it may refuse a block that fits here.
- Rows that wait are slices of Arrow batches, and a slice keeps its whole batch in memory. So they are copied out of
  their batches from time to time. Otherwise a partition with few rows would keep every batch of the task.
- A row that cannot be written is an error, or with a dead-letter topic a row for that topic (`dead_letters.rows`).
  What the topic's settings do not take is only looked for where there is such a topic, since the broker says it better:
  a record without a key in a compacted topic, and a timestamp too far from the broker's time, for which this process's
  stands. One that is on the brink when it is looked at may still be refused by the broker.
  `kafka.max.request.size` does not limit a single dead letter, or no row above it could be one: the topic's own limit
  does, if it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.dead_letters.rows import NUMBER, SOURCE, DeadLetters, DeadLetterTopic
from spark_kafka_eos.errors import InvalidRow, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producing.partitioner import Partitioner, out_of_range
from spark_kafka_eos.kafka.protocol.facts import TopicLimits
from spark_kafka_eos.kafka.wire.columns import from_numpy, lengths, to_numpy
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS, without_key
from spark_kafka_eos.options.outputs import OutputTopic, outputs_to_text
from spark_kafka_eos.options.reserved import reserved_topics

# The types of the rows' columns; all but `key` and `value` are optional.
ROWS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS,
    "timestamp": pa.int64(),  # milliseconds since the epoch
    "error": ERROR,  # of a row that is a dead letter
    "source": SOURCE,  # where the row was read; only for dead letters
}

_LAST = (1 << 63) - 1  # the last timestamp that there is
_LARGEST_COLUMN = (1 << 31) - 1  # bytes, of an Arrow array of binaries
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 32  # varints of length, timestamp, offset, key and value lengths, header count; the attributes byte
_HEADER_OVERHEAD = 10  # varints of a header's two lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One encoded record batch of `records` rows for `partition`; `number` counts a task's blocks for that partition
    from 0."""

    partition: TopicPartition
    task: int
    number: int
    records: int
    data: bytearray


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An output topic. `limits` are those of its settings. `reserved`: why no record may go there, None if it may."""

    partitions: int
    limits: TopicLimits = field(default_factory=TopicLimits)
    reserved: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeSettings:
    """How rows become blocks, and to which topics they may go. The driver fixes it for the micro-batch, so that all
    tasks agree.

    `topic` takes all rows; if it is None, each row names its own. `targets` has the topics that were looked up already.
    `output_topics` are those that rows may go to (KIP-609's pre-registration); if it is empty, to all. `ledger_topic`
    is the query's own, "" without a ledger: no row may go there. `links` is the number of headers to sample
    (`observe.links`). `schema_ids` are columns that `to_confluent` has encoded, with the ids before their values.
    `least_run` is that of the `Partitioner`. Where rows without a key begin differs by batch (`start`) and by task: few
    of them do not reach every partition, and otherwise batches of few rows would all be written to the same ones.
    Without `dead_letters`, a row that cannot be written is an error.
    """

    topic: str | None
    targets: Mapping[str, Target]
    output_topics: tuple[OutputTopic, ...] = ()
    ledger_topic: str = ""
    partitioner: str = "murmur2"
    least_run: int = 1
    start: int = 0
    compression_type: str = "none"
    max_request_size: int = 1_048_576
    max_buffered_bytes: int = 64 * 1_048_576
    links: int = 0
    dead_letters: DeadLetterTopic | None = None
    schema_ids: frozenset[tuple[str, int]] = frozenset()


@dataclass(slots=True)
class _PendingRows:
    """Rows of one partition that do not fill a block yet."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    sizes: list[npt.NDArray[np.int64]] = field(default_factory=list)
    bytes: int = 0
    blocks: int = 0

    def joined(self) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """The rows in one batch, and a copy of their sizes. There must be some."""
        return pa.Table.from_batches(self.rows).combine_chunks().to_batches()[0], np.concatenate(self.sizes)


class BlockEncoder:
    """Encodes one task's rows as blocks, in order per partition. After each `add`, it buffers at most
    `settings.max_buffered_bytes` of rows, in Arrow batches of at most twice as many bytes.

    `lookup` describes a topic that is not in `settings` (raises UnknownTopic); `clock` returns the timestamp, in ms, of
    rows without one. Raises InvalidRow or UnknownTopic for a row that cannot become a record: with a dead-letter topic
    only if it cannot become one there either.
    """

    def __init__(
        self, settings: EncodeSettings, task: int, lookup: Callable[[str], Target], clock: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._reserved = reserved_topics(settings.ledger_topic)
        self._task = task
        self._lookup = lookup
        self._clock = clock
        self._targets = dict(settings.targets)
        self._allowed = {output.topic: output for output in settings.output_topics}
        start = settings.start + task
        self._partitioner = Partitioner(settings.partitioner, start=start, least_run=settings.least_run)
        self._pending: dict[TopicPartition, _PendingRows] = {}
        self._buffered = 0
        self._retained = 0  # at most: the Arrow batches that contain what is buffered
        self._dead = None if settings.dead_letters is None else DeadLetters(settings.dead_letters)
        self._unknown: dict[str, UnknownTopic] = {}
        self._rows = 0

    @property
    def dead_letters(self) -> dict[str, int]:
        """The number of dead letters so far, by cause."""
        return {} if self._dead is None else self._dead.counts

    def add(self, rows: pa.RecordBatch) -> Iterator[Block]:
        """Add rows with columns of `ROWS`; yield the blocks that are full."""
        if self._dead is not None:
            numbers = np.arange(self._rows, self._rows + rows.num_rows)
            rows = rows.append_column(NUMBER, pa.array(numbers))
            self._rows += rows.num_rows
        for topic, named in self._by_topic(self._without_errors(rows)):
            part = self._without_early(topic, named)
            yield from self._add(topic, part if self._dead is None else self._without_invalid(topic, part))
        yield from self._add_dead_letters()
        yield from self._largest_cut()
        self._let_go()

    def finish(self) -> Iterator[Block]:
        """Yield the remaining blocks, partition by partition."""
        for _ in range(2):  # the first time finds the last dead letters
            for partition in sorted(self._pending):
                yield from self._cut(partition, final=True)
            yield from self._add_dead_letters()

    def _add_dead_letters(self) -> Iterator[Block]:
        """Add the rows that were put aside as rows of their topic."""
        if self._dead is not None and (rows := self._dead.take()) is not None:
            assert self._settings.dead_letters is not None
            yield from self._add(self._settings.dead_letters.topic, rows)

    def _without_errors(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without `error`, and without that column."""
        if "error" not in rows.schema.names:
            return rows
        errors = rows.column("error")
        if errors.null_count < rows.num_rows:
            if self._dead is None:
                raise InvalidRow(
                    "a row has an 'error', and the option 'deadLetterTopic' is not set",
                    action="Set the option deadLetterTopic, or filter out the rows with an error.",
                )
            with_error = errors.is_valid()
            self._dead.add(rows.filter(with_error), errors.filter(with_error))
            rows = rows.filter(errors.is_null())
        return rows.drop_columns(["error"])

    def _refuse(
        self, rows: pa.RecordBatch, cause: Cause, error: InvalidRow | UnknownTopic, topic: str | None = None
    ) -> None:
        """Make dead letters of these rows, for `topic`, because of `error`; raise it if there is no topic for them."""
        if self._dead is None:
            raise error
        self._dead.refuse(rows, cause, error.what, topic)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if rows.num_rows == 0:
            return
        if self._settings.topic is not None:  # overrides the column, because a source's rows contain their input topic
            yield self._settings.topic, rows
            return
        if "topic" not in rows.schema.names:
            no_column = InvalidRow(
                "the rows have no column 'topic', and the option 'topic' is not set",
                action="Set the option 'topic', or add a column 'topic' to the DataFrame.",
            )
            self._refuse(rows, Cause.NO_TOPIC, no_column)
            return
        if rows.column("topic").null_count:
            unnamed = rows.column("topic").is_null()
            null = InvalidRow(
                "a row has a null 'topic', and the option 'topic' is not set",
                action="Set the row's topic, or set the option 'topic'.",
            )
            self._refuse(rows.filter(unnamed), Cause.NO_TOPIC, null)
            rows = rows.filter(pc.invert(unnamed))
        for topic, named in _each(rows, rows.column("topic").dictionary_encode()):
            if (refusal := self._refusal(topic)) is None:
                yield topic, named
            else:
                self._refuse(named, *refusal, topic)

    def _refusal(self, topic: str) -> tuple[Cause, InvalidRow | UnknownTopic] | None:
        """Why a row may not go to the topic that it names."""
        output_topics, aside = self._settings.output_topics, self._settings.dead_letters
        if self._allowed and topic not in self._allowed:
            return Cause.TOPIC_NOT_ALLOWED, InvalidRow(
                f"a row has topic {topic!r}, which is not in outputTopics ({outputs_to_text(output_topics)})",
                action="Add the topic to outputTopics, or correct the row.",
            )
        if aside is not None and topic == aside.topic:
            return Cause.TOPIC_NOT_ALLOWED, InvalidRow(f"a row without an error has the dead-letter topic {topic!r}")
        if (why := self._reserved.reason(topic)) is not None:
            return Cause.TOPIC_NOT_ALLOWED, _reserved(topic, why)
        if topic not in self._unknown:
            try:
                why = self._target(topic).reserved
            except UnknownTopic as error:
                if topic in self._allowed:
                    raise  # an option is wrong, and not the row
                self._unknown[topic] = error
        if topic in self._unknown:
            return Cause.UNKNOWN_TOPIC, self._unknown[topic]
        return None if why is None else (Cause.TOPIC_NOT_ALLOWED, _reserved(topic, why))

    def _target(self, topic: str) -> Target:
        if topic not in self._targets:
            self._targets[topic] = self._lookup(topic)
        return self._targets[topic]

    def _add(self, topic: str, rows: pa.RecordBatch) -> Iterator[Block]:
        if not rows.num_rows:
            return
        target = self._target(topic)
        if (why := target.reserved or self._reserved.reason(topic)) is not None:
            raise _reserved(topic, why)  # an option names it
        count = target.partitions
        explicit = rows.column("partition") if "partition" in rows.schema.names else None
        numbers = self._partitioner.partition(topic, rows.column("key"), count, explicit)
        if (refused := self._undeclared(topic, numbers)).any():
            self._refuse_partitions(topic, rows, numbers, refused)
            rows, numbers = rows.filter(pa.array(~refused)), numbers[~refused]
            if not rows.num_rows:
                return
        sizes = _sizes(rows)
        if (too_large := sizes > self._largest(topic)).any():
            for index in np.flatnonzero(too_large):
                partition = TopicPartition(topic, int(numbers[index]))
                self._refuse_size(rows.slice(index, 1), partition, int(sizes[index]), None)
            rows, sizes, numbers = rows.filter(pa.array(~too_large)), sizes[~too_large], numbers[~too_large]
        if not rows.num_rows:
            return
        if count > 1:
            # A stable sort keeps the order within each partition; with 16 bits, it is a radix sort.
            order = np.argsort(numbers.astype(np.uint16) if count <= 65_536 else numbers, kind="stable")
            rows, sizes, numbers = rows.take(from_numpy(order)), sizes[order], numbers[order]
        edges = np.flatnonzero(np.diff(numbers)) + 1
        for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(numbers)], strict=True):
            partition = TopicPartition(topic, int(numbers[start]))
            pending = self._pending.setdefault(partition, _PendingRows())
            added = int(sizes[start:end].sum())
            if pending.bytes + added > _LARGEST_COLUMN:
                yield from self._cut(partition, final=True)
            pending.rows.append(rows.slice(start, end - start))
            pending.sizes.append(sizes[start:end])
            pending.bytes += added
            self._buffered += added
            if pending.bytes >= self._settings.max_request_size:
                yield from self._cut(partition, final=False)
        self._retained += int(sizes.sum())

    def _undeclared(self, topic: str, numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these partitions of the topic may not be written."""
        allowed = self._allowed.get(topic)
        if allowed is None or allowed.partitions is None:
            return np.zeros(len(numbers), np.bool_)
        return ~np.isin(numbers, list(allowed.partitions))

    def _refuse_partitions(
        self, topic: str, rows: pa.RecordBatch, numbers: npt.NDArray[Any], refused: npt.NDArray[np.bool_]
    ) -> None:
        """Refuse the rows for partitions that are not declared, with one error for each partition."""
        for number in np.unique(numbers[refused]).tolist():
            error = InvalidRow(
                f"a row goes to {TopicPartition(topic, number)}, a partition that is not in outputTopics "
                f"({outputs_to_text(self._settings.output_topics)})",
                action="Add the partition to outputTopics, or correct the row.",
            )
            self._refuse(
                rows.filter(pa.array(refused & (numbers == number))), Cause.PARTITION_NOT_ALLOWED, error, topic
            )

    def _largest_cut(self) -> Iterator[Block]:
        """Cut the partitions with the most rows until what is buffered is within the limit."""
        if self._buffered <= self._settings.max_buffered_bytes:
            return
        for partition in sorted(self._pending, key=lambda p: self._pending[p].bytes, reverse=True):
            yield from self._cut(partition, final=True)
            if self._buffered <= self._settings.max_buffered_bytes:
                return

    def _let_go(self) -> None:
        """Copy what is buffered if the Arrow batches that it keeps in memory may be above their limit."""
        if self._retained <= 2 * self._settings.max_buffered_bytes:
            return
        for pending in self._pending.values():
            if pending.rows:
                rows, sizes = pending.joined()
                pending.rows, pending.sizes = [rows.take(pa.array(np.arange(rows.num_rows)))], [sizes]
        self._retained = self._buffered

    def _without_early(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not from before 1970: Kafka's Java producer refuses their negative timestamps, and -1 tells
        readers that a record has none.
        """
        if "timestamp" not in rows.schema.names:
            return rows
        early = pc.less(rows.column("timestamp"), 0).fill_null(False)
        if not pc.any(early).as_py():
            return rows
        error = InvalidRow(
            "a row has a 'timestamp' before 1970, from when Kafka counts",
            action="Set 'timestamp' to null, the time of writing, or to another one, and keep the time in the value.",
        )
        self._refuse(rows.filter(early), Cause.INVALID_TIMESTAMP, error, topic)
        return rows.filter(pc.invert(early))

    def _without_invalid(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose partition exists, whose headers have keys, and which the topic's settings do not refuse.
        Without a dead-letter topic, `Partitioner`, `encode` or the broker raise the error.
        """
        partitions = self._target(topic).partitions
        if "partition" in rows.schema.names:
            wrong = out_of_range(rows.column("partition"), partitions)
            if pc.any(wrong).as_py():
                what = f"a row has a partition that topic {topic!r} does not have; it has {partitions}"
                self._refuse(rows.filter(wrong), Cause.UNKNOWN_PARTITION, InvalidRow(what), topic)
                rows = rows.filter(pc.invert(wrong))
        if self._target(topic).limits.needs_keys and rows.column("key").null_count:
            wrong = rows.column("key").is_null()
            what = f"a row has no key, and topic {topic!r} is compacted, which takes none without one"
            self._refuse(rows.filter(wrong), Cause.NO_KEY, InvalidRow(what), topic)
            rows = rows.filter(pc.invert(wrong))
        if "timestamp" in rows.schema.names:
            wrong = self._out_of_range(topic, rows.column("timestamp"))
            if pc.any(wrong).as_py():
                limits = self._target(topic).limits
                what = (
                    f"a row has a 'timestamp' that topic {topic!r} does not take: message.timestamp.before.max.ms is "
                    f"{limits.before_ms}, message.timestamp.after.max.ms {limits.after_ms}"
                )
                self._refuse(rows.filter(wrong), Cause.INVALID_TIMESTAMP, InvalidRow(what), topic)
                rows = rows.filter(pc.invert(wrong))
        if "headers" in rows.schema.names:
            wrong = without_key(rows.column("headers"))
            if wrong is not None:
                what = "a record header is null or has no key; the dead letter is without it"
                self._refuse(rows.filter(wrong), Cause.INVALID_HEADERS, InvalidRow(what), topic)
                rows = rows.filter(pc.invert(wrong))
        return rows

    def _out_of_range(self, topic: str, timestamps: pa.Int64Array) -> pa.BooleanArray:
        """Which of the timestamps the topic does not take now."""
        limits, now = self._target(topic).limits, self._clock()
        earliest = 0 if limits.before_ms is None else max(0, now - limits.before_ms)
        latest = _LAST if limits.after_ms is None else min(now + limits.after_ms, _LAST)
        return pc.or_(pc.less(timestamps, earliest), pc.greater(timestamps, latest)).fill_null(False)

    def _largest(self, topic: str) -> float:
        """How large a record may be before compression."""
        aside = self._settings.dead_letters
        if aside is not None and topic == aside.topic and self._targets[topic].limits.max_message_bytes is not None:
            return np.inf
        return self._settings.max_request_size - _BATCH_OVERHEAD

    def _refuse_size(self, row: pa.RecordBatch, partition: TopicPartition, size: int, own: int | None) -> None:
        """Refuse a row with a record of `size` bytes: above the topic's `own` limit, or kafka.max.request.size."""
        if own is not None:
            limit = f"{own:,} (the topic's max.message.bytes)"
        else:
            limit = f"{self._settings.max_request_size:,} (kafka.max.request.size)"
        aside = self._settings.dead_letters
        if aside is not None and partition.topic == aside.topic:
            raise InvalidRow(
                f"a dead letter for {partition} results in a record of about {size:,} bytes; the limit is {limit}",
                action="Increase max.message.bytes of the dead-letter topic, and grant DescribeConfigs on it; else "
                "increase kafka.max.request.size, too.",
            )
        error = InvalidRow(
            f"a row for {partition} results in a record of about {size:,} bytes; the limit is {limit}",
            action="Increase kafka.max.request.size and the topic's max.message.bytes, or make the row smaller.",
        )
        self._refuse(row, Cause.TOO_LARGE, error, partition.topic)

    def _cut(self, partition: TopicPartition, *, final: bool) -> Iterator[Block]:
        """Encode the pending rows of a partition as blocks within the limit. Unless `final`, keep the last rows if they
        do not fill a block.
        """
        pending = self._pending[partition]
        if not pending.rows:
            return
        rows, sizes = pending.joined()
        room = self._bound(partition) - _BATCH_OVERHEAD
        ends = np.cumsum(sizes)
        start, done = 0, 0
        while start < len(sizes):
            stop = int(np.searchsorted(ends, done + room, side="right"))
            if stop == len(sizes) and not final:
                break
            stop = max(stop, start + 1)
            yield from self._blocks(partition, pending, rows.slice(start, stop - start))
            start, done = stop, int(ends[stop - 1])
        self._buffered -= done
        pending.bytes -= done
        pending.rows = [rows.slice(start)] if start < len(sizes) else []
        pending.sizes = [sizes[start:]] if start < len(sizes) else []

    def _bound(self, partition: TopicPartition) -> int:
        """How large a block may be: `max_request_size`, or the topic's limit where it is known and smaller."""
        own = self._targets[partition.topic].limits.max_message_bytes
        return min(self._settings.max_request_size, own or self._settings.max_request_size)

    def _blocks(self, partition: TopicPartition, pending: _PendingRows, rows: pa.RecordBatch) -> Iterator[Block]:
        """One block of these rows, or several within the limit."""
        data = self._encoded(rows)
        own = self._targets[partition.topic].limits.max_message_bytes
        if len(data) > self._bound(partition) and rows.num_rows > 1:
            half = rows.num_rows // 2
            yield from self._blocks(partition, pending, rows.slice(0, half))
            yield from self._blocks(partition, pending, rows.slice(half))
            return
        if own is not None and len(data) > own:
            self._refuse_size(rows, partition, len(data), own)
            return
        number, pending.blocks = pending.blocks, pending.blocks + 1
        yield Block(partition=partition, task=self._task, number=number, records=rows.num_rows, data=data)

    def _encoded(self, rows: pa.RecordBatch) -> bytearray:
        names = rows.schema.names
        timestamps: Any = self._clock()
        if "timestamp" in names:
            timestamps = rows.column("timestamp").fill_null(timestamps).to_numpy()
        return encode(
            rows.column("key"),
            rows.column("value"),
            timestamps,
            rows.column("headers") if "headers" in names else None,
            compression_type=self._settings.compression_type,
        )


def _reserved(topic: str, why: str) -> InvalidRow:
    return InvalidRow(
        f"a row has topic {topic!r}, but it {why}",
        action="Correct the row's topic. With deadLetterTopic, such rows are put aside there.",
    )


def _each(rows: pa.RecordBatch, names: pa.DictionaryArray) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each name, in their order. They are sorted once, however many names there are."""
    numbers, count = to_numpy(names.indices), len(names.dictionary)
    if count > 1:
        rows = rows.take(from_numpy(np.argsort(numbers, kind="stable")))
    ends = np.cumsum(np.bincount(numbers, minlength=count)).tolist()
    for name, (start, end) in zip(names.dictionary.to_pylist(), pairwise([0, *ends]), strict=True):
        yield name, rows.slice(start, end - start)


def _sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """An upper bound of each row's encoded bytes. There must be at least one row."""
    total = np.full(rows.num_rows, _RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        total += np.maximum(lengths(rows.column(name)), 0)
    if "headers" in rows.schema.names:
        headers = rows.column("headers")
        flat = headers.flatten()
        widths = np.zeros(len(flat) + 1, np.int64)
        for i in range(2) if len(flat) else ():
            widths[1:] += np.maximum(lengths(flat.field(i)), 0)
        widths[1:] += _HEADER_OVERHEAD
        ends = np.cumsum(widths)
        edges = np.concatenate([[0], np.cumsum(np.maximum(lengths(headers), 0))])
        total += ends[edges[1:]] - ends[edges[:-1]]
    return total
