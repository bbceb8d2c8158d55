"""Sends dead letters back, each exactly once: in transactions that also commit how far the replay has come.

A replay is a query without Spark. Each stream of dead letters (replay.plan) has a transactional id and a ledger; a
batch is at most `BATCH` of its dead letters. A replay that is killed leaves a transaction that the next one aborts, and
the next one continues where the ledger ends. Of two replays that are planned at once, the last one wins. One that comes
back late, or that was planned before another one began to write, ends by itself, and leaves the other one alone.

The ends of the topic are fixed when it starts, so records that come back as dead letters wait for the next replay.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_kafka_eos.appending.append import append, records_by_partition, topic_ids
from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.blocks import ROWS, Block, BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings, target
from spark_kafka_eos.appending.report import Appended, appended_topics
from spark_kafka_eos.errors import (
    ConfigurationError,
    DataLoss,
    InvalidRow,
    LedgerRefused,
    ToolFailed,
    TransactionAborted,
)
from spark_kafka_eos.kafka.partitions import OffsetRange, Offsets, TopicPartition, offsets_to_json
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TopicLimits
from spark_kafka_eos.ledger.decide import decide_micro_batch, signer_of
from spark_kafka_eos.ledger.entry import LedgerEntry, digest
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.ledger.topic import LedgerReader
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.options.outputs import OutputTopic
from spark_kafka_eos.options.reserved import reserved_topics
from spark_kafka_eos.preflight.run import preflight
from spark_kafka_eos.tools.replay import plan as replays
from spark_kafka_eos.tools.replay.plan import Left, RecordPosition, Stream
from spark_kafka_eos.tools.replay.stored import ReadProgress, StoredLetter, letters, ranges_of
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.owner import owner_of
from spark_kafka_eos.transaction.shared import SharedTransaction

BATCH = 1_000  # dead letters of a transaction
_ROWS = 100  # that are encoded at a time: a dead letter may be as large as a request


@dataclass(slots=True, kw_only=True)
class PendingStream:
    """A stream that waits: where it goes, which of its dead letters were not replayed yet, its last commit, and whose
    its transactional.id is, None if unknown. Those below `sent` were replayed, those below `doubtful` perhaps, by an
    earlier version; `left` is why the others stay. `signed`: the number of replays of one of them is.
    """

    stream: Stream
    options: SinkOptions
    entry: LedgerEntry | None
    sent: Mapping[TopicPartition, int]
    doubtful: Mapping[TopicPartition, int] = field(default_factory=dict)
    left: Left | None = None
    signed: bool = False
    owner: ProducerEpoch | None = None
    targets: Counter[str] = field(default_factory=Counter)
    positions: list[RecordPosition] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What a replay sends, and what it leaves because it was replayed too often, because nobody named a topic for what
    is not signed, because another key is needed, or because an earlier version may have sent it. `ends` are the topic's
    at its start.

    `query_id` names the topic by its id: in a topic that was deleted and created again, everything is new.
    """

    query_id: str
    topic_id: uuid.UUID | None = None
    ends: Offsets
    parts: Sequence[PendingStream]
    left: Mapping[tuple[Stream, Left], int]

    @property
    def records(self) -> int:
        return sum(len(part.positions) for part in self.parts)

    @property
    def skipped(self) -> Mapping[Stream, int]:
        """How many are left of each stream."""
        by_stream: Counter[Stream] = Counter()
        for (stream, _), number in self.left.items():
            by_stream[stream] += number
        return dict(by_stream)

    def left_as(self, why: Left) -> int:
        """How many are left for this reason."""
        return sum(number for (_, each), number in self.left.items() if each == why)

    @property
    def doubtful(self) -> set[str]:
        """The causes of what an earlier version may have sent."""
        return {stream.cause for stream, why in self.left if why == "earlier version"}

    @property
    def destinations(self) -> list[str]:
        """The topics that it sends to, sorted."""
        return sorted({topic for part in self.parts for topic in part.targets})

    @property
    def believed(self) -> list[str]:
        """Those of them that headers name which may be anybody's: not signed, or nobody has the key to check that."""
        unchecked = (part for part in self.parts if not part.stream.key)
        return sorted({topic for part in unchecked for topic in part.targets})


def plan(
    cluster: Cluster,
    topic: str,
    options: Mapping[str, str],
    transactional_id: str,
    *,
    causes: Sequence[str] = (),
    to: str | None = None,
    named: Collection[str] = (),
    max_replays: int = 2,
    progress: ReadProgress = lambda _: None,
    ranges: Sequence[OffsetRange] | None = None,
) -> ReplayPlan:
    """Read the topic once, and compare it with the ledgers. Writes nothing.

    `options` are the sink's, without a transactional.id. With their `ledgerKey`, dead letters that are not signed with
    it are left, unless `to` or `named` say where they may go. Those that a replay with a key that is not given may have
    sent are left in any case. Raises ConfigurationError for options with which none is exactly-once, DataLoss if dead
    letters are deleted meanwhile, and ToolFailed if it is unknown where a dead letter goes, or if that is the topic
    itself, a ledger topic or one of Kafka's own: headers may be anybody's; and if the transactional.id is another
    topic's.
    """
    ranges = ranges_of(cluster, topic) if ranges is None else ranges
    topic_id = ranges[0].topic_id if ranges else cluster.topic(topic).id
    query_id = replays.query_of(topic, topic_id)
    ledgers = _Ledgers(cluster, topic, query_id, options, transactional_id, named=to is not None or bool(named))
    secrets, parts = ledgers.secrets, ledgers.pending
    left: Counter[tuple[Stream, Left]] = Counter()
    targets = _Targets()
    for stored in letters(cluster, ranges, progress):
        stream = replays.stream_of(stored.letter.cause, stored.headers, secrets, stored.key, stored.value)
        if causes and stream.cause not in causes:
            continue
        part = ledgers.part(stream)
        if stored.offset < part.sent.get(stored.partition, 0):
            continue
        in_doubt = stored.offset < part.doubtful.get(stored.partition, 0)
        if why := "earlier version" if in_doubt else part.left:
            left[stream, why] += 1
            continue
        part.signed = part.signed or replays.is_number_signed(stored.headers, secrets, stored.key, stored.value)
        targets.add(stream, replays.destination(stored.letter, to), stored)
        part.positions.append((stored.partition, stored.offset))
    for stream, part in parts.items():
        if part.signed and stream.replays >= max_replays:
            part.left = "replayed"
            left[stream, part.left] += len(part.positions)
    # Unknown keys last, and greater numbers first: see `replay.plan`.
    ordered = sorted(parts, key=lambda stream: (not stream.key, stream.cause, -stream.replays, stream))
    waiting = [parts[stream] for stream in ordered if parts[stream].positions and parts[stream].left is None]
    targets.set(cluster, topic, ledgers.topic, waiting)
    for part in waiting:
        part.owner = owner_of(cluster, part.options.transactional_id)
    return ReplayPlan(
        query_id=query_id,
        topic_id=topic_id,
        ends={offset_range.partition: offset_range.end for offset_range in ranges},
        parts=waiting,
        left=left,
    )


class _Targets:
    """Where the dead letters of each stream would go, and the first that would."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Stream, str | None]] = Counter()
        self._firsts: dict[tuple[Stream, str | None], StoredLetter] = {}

    def add(self, stream: Stream, where: str | None, stored: StoredLetter) -> None:
        self._counts[stream, where] += 1
        self._firsts.setdefault((stream, where), stored)

    def set(self, cluster: Cluster, topic: str, ledger_topic: str, waiting: Sequence[PendingStream]) -> None:
        """Tell these streams their targets. Raises ToolFailed if one may not be: `_refused`."""
        parts = {part.stream: part for part in waiting}
        counts = {place: number for place, number in self._counts.items() if place[0] in parts}
        reserved: dict[str, str | None] = {}
        for (stream, where), number in counts.items():
            if where is not None and where not in reserved:
                reserved[where] = _why_reserved(cluster, where, ledger_topic)
            if where is None or where == topic or reserved[where] is not None:
                same = sum(each for (_, other), each in counts.items() if other == where)
                raise _refused(topic, self._firsts[stream, where], where, same, reserved)
            parts[stream].targets[where] = number


class _Ledgers:
    """The ledgers of a topic's streams, and the streams. `named`: somebody says where dead letters may go."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        query_id: str,
        options: Mapping[str, str],
        transactional_id: str,
        *,
        named: bool,
    ) -> None:
        common = sink_options({**options, "kafka.transactional.id": transactional_id})
        _require_transactions(common)
        self._cluster, self._source, self._options, self._prefix = cluster, topic, options, transactional_id
        self.topic = common.ledger_topic
        self.secrets = [key.reveal() for key in common.ledger_key]
        self._query_id, self._named = query_id, named
        self.pending: dict[Stream, PendingStream] = {}
        reader = LedgerReader(cluster, self.topic)
        reader.read()  # once, however many streams the headers make: those without a record have no entry
        self._ids = reader.by_id.keys()
        self._known: dict[Stream, tuple[SinkOptions, LedgerEntry | None]] = {}

    def part(self, stream: Stream) -> PendingStream:
        """The stream, the first time before its dead letters are looked at. Raises what `_entry` raises, and ToolFailed
        if there are too many.
        """
        if stream not in self.pending:
            if len(self.pending) == replays.MOST_STREAMS:
                raise ToolFailed(
                    f"the dead letters name more than {replays.MOST_STREAMS:,} causes; nothing was sent",
                    action="Somebody else writes to this topic. Select causes with --cause.",
                )
            self.pending[stream] = self._part(stream)
        return self.pending[stream]

    def _part(self, stream: Stream) -> PendingStream:
        sink, entry = self._of(stream)
        misses_key = replays.misses_key(stream, self._prefix, self._ids, self.secrets)
        earlier = [
            before
            for each in {stream.never, stream.never.unknown}
            if stream.replays and (before := self._of(each)[1]) and not replays.counted_by_header(before.run_id)
        ]
        return PendingStream(
            stream=stream,
            options=sink,
            entry=entry,
            sent=self._furthest([entry, self._of(stream.unknown)[1]]),
            doubtful=self._furthest(earlier),
            left=replays.why_left(stream, keys=bool(self.secrets), named=self._named, misses_key=misses_key),
        )

    def _furthest(self, entries: Iterable[LedgerEntry | None]) -> dict[TopicPartition, int]:
        furthest: dict[TopicPartition, int] = {}
        for entry in entries:
            for tp, offset in _position(entry, self._query_id).items():
                furthest[tp] = max(offset, furthest.get(tp, offset))
        return furthest

    def _of(self, stream: Stream) -> tuple[SinkOptions, LedgerEntry | None]:
        if stream not in self._known:
            sink = sink_options({**self._options, "kafka.transactional.id": f"{self._prefix}{stream.suffix}"})
            entry = _entry(self._cluster, sink, self._source) if sink.transactional_id in self._ids else None
            self._known[stream] = sink, entry
        return self._known[stream]


def _require_transactions(options: SinkOptions) -> None:
    """Raise ConfigurationError for options with which a replay would have no ledger, or a transaction that stays open
    for good when it is killed.
    """
    if options.delivery_guarantee != "exactly-once":
        raise ConfigurationError(
            "deliveryGuarantee",
            f"is {options.delivery_guarantee}, but a replay sends each dead letter exactly once",
            action="Omit it, or set deliveryGuarantee=exactly-once.",
        )
    if options.two_phase_commit:
        raise ConfigurationError("twoPhaseCommit", "is for batches in which a table takes part", action="Omit it.")


def require_named(planned: ReplayPlan, named: Collection[str]) -> None:
    """Raise ToolFailed if unsigned dead letters go to a topic that is not `named`: their headers are anybody's."""
    if others := [topic for topic in planned.believed if topic not in named]:
        raise ToolFailed(
            f"the headers of dead letters send them to {', '.join(map(repr, others))}, which was not named; nothing "
            "was sent",
            action="Name each topic that they may return to with --destination, or one for all of them with --to. "
            "With the query's ledgerKey, those that it signed need no name.",
        )


def _why_reserved(cluster: Cluster, topic: str, ledger_topic: str) -> str | None:
    """Why no dead letter may go there. A topic that does not exist is the preflight's to refuse."""
    if cluster.exists(topic, patience_ms=0):
        return cluster.why_reserved(topic, reserved_topics(ledger_topic))
    return reserved_topics(ledger_topic).reason(topic)


def _refused(
    topic: str, stored: StoredLetter, where: str | None, same: int, reserved: Mapping[str, str | None]
) -> ToolFailed:
    first = f"{stored.partition}@{stored.offset}"
    if where == topic:
        why = f"{same:,} of the dead letters would be sent to {topic} itself, the first at {first}"
    elif where is not None:
        why = f"{same:,} of the dead letters would be sent to {where}, which {reserved[where]}, the first at {first}"
    else:
        why = f"it is unknown where {same:,} of the dead letters belong, the first at {first}"
    return ToolFailed(f"{why}; nothing was sent", action="Name a topic with --to, or select others with --cause.")


def run(cluster: Cluster, planned: ReplayPlan, to: str | None = None, progress: ReadProgress = lambda _: None) -> int:
    """Send what is planned; the number of records that were sent. Those that the ledger turns out to have are not sent
    again. `progress` gets the number of records since.

    Raises what `commit_batch` raises, and DataLoss if the topic was deleted since it was planned, or dead letters of
    it: batches that were committed before stay so, and another replay continues.
    """
    try:
        return _run(cluster, planned, to, progress)
    except LedgerRefused as refused:
        raise refused.replaced(
            action="Nothing more was sent. If another replay of this topic ran meanwhile, run the command again. Give "
            "the ledgerTopic that replays before had (--option). If that topic was deleted, nobody knows any more what "
            "they sent: another --transactional-id sends all of it once more."
        ) from None


def _run(cluster: Cluster, planned: ReplayPlan, to: str | None, progress: ReadProgress) -> int:
    sent, unique = 0, str(uuid.uuid4())
    for part in planned.parts:
        run_id = replays.run_id_of(unique, by_header=part.stream.cause not in planned.doubtful)
        options = replace(
            part.options,
            output_topics=tuple(OutputTopic(topic=name) for name in sorted(part.targets)),
            # Of a topic of this name that was deleted: see `_entry`.
            take_over_query=part.entry.query_id if part.entry and part.entry.query_id != planned.query_id else None,
        )
        preflight(cluster, options)
        transaction = SharedTransaction(options, cluster, decide_micro_batch(options), planned_under=part.owner)
        last = part.entry if part.entry is not None and part.entry.query_id == planned.query_id else None
        number = 0 if last is None else last.batch_id + 1
        start = dict.fromkeys(planned.ends, 0) | _position(part.entry, planned.query_id)
        chunks = list(replays.batches(part.positions, BATCH))
        for chunk in chunks:
            end = start | {tp: offset + 1 for tp, offset in chunk}
            if chunk is chunks[-1]:
                end |= {tp: max(offset, end[tp]) for tp, offset in planned.ends.items()}
            batch = MicroBatch(
                query_id=planned.query_id,
                batch_id=number,
                digest=digest({"start": offsets_to_json(start), "end": offsets_to_json(end)}),
                sources=(SourceRange(start=start, end=end),),
                run_id=run_id,
            )
            write = _Write(cluster, options, number, chunk, planned.topic_id, to)
            by_driver = Choice(mode="driver")
            report = commit_batch(transaction, batch, write, max_attempts=options.max_attempts, choice=by_driver)
            sent += report.records
            progress(len(chunk))
            number, start = number + 1, end
    return sent


def _entry(cluster: Cluster, sink: SinkOptions, topic: str) -> LedgerEntry | None:
    """The stream's last entry. Raises ToolFailed if it is not of a replay of a topic of this name."""
    try:
        entry = last_entry(cluster, sink.ledger_topic, sink.transactional_id, ignore_open=True, signer=signer_of(sink))
    except LedgerRefused as refused:
        raise refused.replaced(
            action="Nothing was sent. Use the release of the replay before, or a later one. Give the keys that replays "
            "before had, too, after the new one: --option ledgerKey=NEW,OLD. If they had none, go on without."
        ) from None
    if entry is not None and not replays.is_of(topic, entry.query_id):
        raise ToolFailed(
            f"{sink.transactional_id!r} holds the progress of {entry.query_id!r}; nothing was sent",
            action=f"Give each topic an id of its own with --transactional-id; the default is {topic}.replay. Under "
            "another one than before, all of its dead letters are sent once more.",
        )
    return entry


def _position(entry: LedgerEntry | None, query_id: str) -> dict[TopicPartition, int]:
    """Where the last replay of the stream ended."""
    if entry is None or entry.query_id != query_id:
        return {}
    return {tp: offset for source in entry.sources or () if source for tp, offset in source.offsets.items()}


class _Write:
    """Appends one batch's dead letters; an attempt reads them again."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        batch_id: int,
        positions: Sequence[RecordPosition],
        topic_id: uuid.UUID | None,
        to: str | None,
    ) -> None:
        self._cluster, self._options, self._batch_id = cluster, options, batch_id
        self._positions, self._topic_id, self._to = set(positions), topic_id, to

    def __call__(self, identity: ProducerIdentity) -> Appended:
        started = time.perf_counter()
        expected: Counter[TopicPartition] = Counter()

        def blocks() -> Iterator[tuple[TopicPartition, int, bytearray]]:
            for block in self._blocks():
                expected[block.partition] += block.records
                yield block.partition, block.records, block.data

        outputs = [TopicPartition(topic.topic, 0) for topic in self._options.output_topics]
        ids = topic_ids(self._cluster, outputs)
        acks = append(
            self._cluster,
            identity,
            blocks(),
            batch_id=self._batch_id,
            ledger_topic=self._options.ledger_topic,
        )
        if records_by_partition(acks) != expected:
            raise TransactionAborted(f"not all of {expected.total()} records were acknowledged once")
        if expected.total() != len(self._positions):
            raise DataLoss(
                f"{len(self._positions) - expected.total()} dead letters were deleted while they were replayed",
                action="Run the command again: it sends those that are left.",
            )
        return Appended(
            partitions=len(expected),
            records=expected.total(),
            bytes=sum(ack.bytes for ack in acks),
            topics=appended_topics(ids, expected),
            milliseconds={"append": (time.perf_counter() - started) * 1e3},
        )

    def _blocks(self) -> Iterator[Block]:
        encoder = BlockEncoder(
            encode_settings(self._options, None, self._cluster),
            0,
            lambda topic: target(self._cluster, topic, self._options.ledger_topic),
            _now,
        )
        rows: list[dict[str, object]] = []
        try:
            for stored in letters(self._cluster, self._ranges()):
                if (stored.partition, stored.offset) in self._positions:
                    rows.append(self._row(stored))
                    if len(rows) == _ROWS:
                        yield from encoder.add(_columns(rows))
                        rows.clear()
            yield from encoder.add(_columns(rows))
            yield from encoder.finish()
        except InvalidRow as invalid:
            raise invalid.replaced(
                action=f"{invalid.action} Here, options of the sink are set with --option, such as --option "
                "kafka.max.request.size=8000000. Dead letters of the same cause wait for it; --cause selects others."
            ) from None

    def _ranges(self) -> list[OffsetRange]:
        offsets: dict[TopicPartition, list[int]] = {}
        for tp, offset in self._positions:
            offsets.setdefault(tp, []).append(offset)
        return [
            OffsetRange(partition=tp, start=min(of), end=max(of) + 1, topic_id=self._topic_id)
            for tp, of in sorted(offsets.items())
        ]

    def _limits(self, topic: str) -> TopicLimits:
        return target(self._cluster, topic, self._options.ledger_topic).limits

    def _row(self, stored: StoredLetter) -> dict[str, object]:
        topic = replays.destination(stored.letter, self._to)
        assert topic is not None  # see `plan`
        partitions = len(self._cluster.topic(topic).partitions)
        secrets = [key.reveal() for key in self._options.ledger_key]
        own = replays.replayed_headers(stored.headers, secrets, stored.key, stored.value)
        headers = [{"key": name, "value": value} for name, value in own]
        timestamp = replays.timestamp_of(stored.letter)
        if timestamp is not None and not self._limits(topic).keeps(timestamp, _now()):
            timestamp = None
        return {
            "key": stored.key,
            "value": stored.value,
            "topic": topic,
            "partition": replays.partition_of(stored.letter, self._to, partitions),
            "timestamp": timestamp,
            "headers": headers,
        }


_SCHEMA = pa.schema([(name, ROWS[name]) for name in ("key", "value", "topic", "partition", "timestamp", "headers")])


def _now() -> int:
    return int(time.time() * 1e3)


def _columns(rows: Sequence[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=_SCHEMA)
