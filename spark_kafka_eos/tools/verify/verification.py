"""Proves or refutes that an output was written exactly once: reads it in several ways and checks all invariants.

    report = verify("localhost:9092", "orders-clean", source="orders", transactional_id="orders-clean")
    assert report.holds, report

Call it when the query is idle: it waits for open transactions, and reports a violation if one stays open. It reads the
whole log of the output, the output through this package's source, the output through librdkafka if it is not too large,
the source's log (which may be on another cluster), the ledger, and the group's offsets.
See `verify.invariants`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from spark_kafka_eos.errors import ConfigurationError, ToolFailed
from spark_kafka_eos.kafka.auth.secret import keys
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import describe, offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger import copies, entry_format
from spark_kafka_eos.ledger import entry as ledgers
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress
from spark_kafka_eos.ledger.progress import committed_progress, signer_at
from spark_kafka_eos.ledger.signing import Signer
from spark_kafka_eos.ledger.topic import LedgerTopic, follow
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.options.parsers import addresses
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.reading.topic_identity import TopicIdentity, created_between
from spark_kafka_eos.source_offset import Origin
from spark_kafka_eos.tools.verify import history as histories
from spark_kafka_eos.tools.verify import scan
from spark_kafka_eos.tools.verify.due import Due, due
from spark_kafka_eos.tools.verify.evidence import Ledger, Seen, SourcePartition, source_partition
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, CheckResult, Invariant
from spark_kafka_eos.tools.verify.follower import Follower, witness
from spark_kafka_eos.tools.verify.history import HistoryEntry
from spark_kafka_eos.tools.verify.invariants import check
from spark_kafka_eos.tools.verify.table import ComparedColumns, ReturnsRows, compare_table, read_rows

_POLL_SECONDS = 0.1

Progress = Callable[[str, int, int], None]  # what is read, number of offsets so far, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on an output: the six findings in order, the seventh if a table was compared, and statistics.

    `topics` has the number of committed records of each of its topics, `records` their sum, `uncommitted` that of all
    others in the logs.
    """

    topics: Mapping[str, int]
    findings: tuple[CheckedInvariant, ...]
    uncommitted: int
    readers: tuple[str, ...]
    seconds: float

    @property
    def topic(self) -> str:
        """The names of the topics."""
        return ", ".join(self.topics)

    @property
    def records(self) -> int:
        return sum(self.topics.values())

    @property
    def violated(self) -> tuple[Invariant, ...]:
        return tuple(finding.invariant for finding in self.findings if finding.violations)

    @property
    def unproven(self) -> tuple[Invariant, ...]:
        """What was requested but could not be checked."""
        return tuple(finding.invariant for finding in self.findings if finding.unproven)

    @property
    def verdict(self) -> CheckResult:
        """ "not checked": nothing is violated, but a requested invariant could not be checked."""
        if self.violated:
            return "violated"
        return "not checked" if self.unproven else "holds"

    @property
    def holds(self) -> bool:
        """Whether all requested invariants were checked and hold."""
        return self.verdict == "holds"

    def __str__(self) -> str:
        lines = [f"{self.topic}: {self.records:,} records committed, {self.uncommitted:,} not; {self.seconds:.1f} s"]
        for finding in self.findings:
            name = f"{finding.invariant} {finding.invariant.name.lower()}"
            lines.append(f"{name}: {finding.verdict} ({finding.checked:,} {finding.unit})")
            lines += [f"{finding.invariant} {violation.kind}: {violation}" for violation in finding.violations]
            lines += [f"{finding.invariant} {remark}" for remark in (finding.unchecked, finding.note) if remark]
        return "\n".join(lines)


def verify(
    client: ClientOptions | str,
    topic: str | Sequence[str],
    *,
    source: str | None = None,
    source_client: ClientOptions | str | None = None,
    copy: bool = False,
    transactional_id: str | None = None,
    group: str | None = None,
    ledger_topic: str = LEDGER_TOPIC,
    ledger_key: str | None = None,
    history: Sequence[HistoryEntry] | Path | None = None,
    followers: Iterable[Follower] = (),
    readers: Mapping[str, Mapping[TopicPartition, Seen]] = MappingProxyType({}),
    wait_s: float = 30.0,
    witness_records: int = 1_000_000,
    table: ReturnsRows | None = None,
    columns: ComparedColumns = ComparedColumns(),  # noqa: B008 - immutable
    progress: Progress = lambda *_: None,
) -> Report:
    """Check `topic`, or several of them that are one output together. `client`: options, or the brokers' addresses.

    `source` is the topic whose records the output must contain, each once: of each partition up to the offset in the
    ledger, else that which the query's `group` (default: `transactional_id`) has committed, or where the history ends
    if that is later; if none of them has an offset of any partition, up to its end. If the group is ahead of the
    ledger, or the ledger is that of another topic of the name, this is "not checked", as is what the query read and the
    source no longer has, unless the output has a copy of it. `source_client` connects to the source's cluster if that
    is another one; then the group does not count. Records are identified by the provenance in their values, dead
    letters in one of several topics by their headers, or all by their contents. `copy`: the output is a plain copy, so
    that any difference is a violation.
    `transactional_id` identifies the ledger, in `ledger_topic`; with the sink's `ledger_key`, in the form of that
    option, an entry that was not signed with it is an error. `history`: entries, or their file. An id of which the
    ledger has no entry, and a history without a committed batch, are "not checked". `followers` are
    stopped, and what they read is checked, as is what other `readers`, by name, have read. Topics with at most
    `witness_records` are also read through librdkafka. `table` returns the rows of a table that must be the output's
    records, each once: tuples with these `columns`. It may be called again. Waits `wait_s` for open transactions.
    Raises UnknownTopic, BrokerUnreachable and the like; LedgerRefused for a ledger with which `ledger_key` or this
    release can do nothing; ToolFailed for an invalid history, and for what cannot be compared with the table;
    ValueError for `copy` or `group` without `source`, for `ledger_key` or `ledger_topic` without `transactional_id`,
    and for an invalid `ledger_key`.
    """
    if source is None and (copy or group is not None):
        raise ValueError(f"{'copy' if copy else 'group'} requires source")
    if transactional_id is None and (ledger_key is not None or ledger_topic != LEDGER_TOPIC):
        raise ValueError("ledger_key and ledger_topic require transactional_id")
    topics = [topic] if isinstance(topic, str) else list(dict.fromkeys(topic))
    started = time.monotonic()
    options = _options(client)
    ledger = None
    if transactional_id is not None:
        signed = () if ledger_key is None else keys(ledger_key)
        ledger = SinkLedger(client=options, transactional_id=transactional_id, topic=ledger_topic, keys=signed)
    entries = _read_history(history) if isinstance(history, Path) else history
    with Cluster(options) as cluster, Cluster(_options(source_client or options)) as origin:
        # Before the output is read, because the output need not contain newer records of the source.
        must_have, another = Due(ends={}, up_to=""), ""
        if source is not None:
            must_have, another = _due(cluster, origin, source, group, ledger, entries or ())
        partitions = [tp for name in topics for tp in _partitions(cluster, name)]
        end, stable = _ends(cluster, partitions, wait_s)
        earliest = offsets.earliest(cluster, partitions)
        everything = [OffsetRange(partition=tp, start=earliest[tp], end=end[tp]) for tp in partitions]
        take: scan.TakeContents = "always" if copy else "never" if source is None else "without provenance"
        logs = scan.logs(
            cluster,
            everything,
            stable,
            _counted(progress, "everything", everything),
            take,
            dead_letters_of=source if len(topics) > 1 else None,
        )
        origins = None
        if source is not None and not another:
            origins = _source(origin, source, must_have.ends, progress, with_contents=logs[0].contents is not None)
        visible = [OffsetRange(partition=tp, start=earliest[tp], end=stable[tp]) for tp in partitions]
        visible_offsets = scan.seen(cluster, visible, _counted(progress, "read_committed", visible))
        seen = {**readers, "spark-kafka-eos": visible_offsets}
        if sum(offset_range.size for offset_range in visible) <= witness_records:
            seen["librdkafka"] = witness(options, visible)
        for number, follower in enumerate(followers, 1):
            seen[f"follower {number}"] = follower.stop(stable)
        findings = check(
            logs,
            source=origins,
            up_to=must_have.up_to,
            doubt=another or must_have.doubt,
            copy=copy,
            readers=seen,
            history=entries,
            ledger=None if ledger is None else _ledger(cluster, ledger),
        )
        if table is not None:
            compared, where = scan.compared(cluster, visible, columns, _counted(progress, "what to compare", visible))
            findings.append(
                compare_table(
                    compared,
                    read_rows(table, columns),
                    where,
                    rows_again=table,
                    columns=columns,
                    topic_is_whole=all(log.whole for log in logs),
                )
            )
    records = dict.fromkeys(topics, 0)
    for log in logs:
        records[log.partition.topic] += len(log.committed_offset)
    return Report(
        topics=records,
        findings=tuple(findings),
        uncommitted=sum(len(log.offset) for log in logs) - sum(records.values()),
        readers=tuple(seen),
        seconds=time.monotonic() - started,
    )


def _options(client: ClientOptions | str) -> ClientOptions:
    if isinstance(client, ClientOptions):
        return client
    try:
        return ClientOptions(bootstrap_servers=addresses(client))
    except ValueError as error:
        raise ConfigurationError("kafka.bootstrap.servers", str(error)) from None


def _read_history(path: Path) -> list[HistoryEntry]:
    try:
        with path.open() as lines:
            return list(histories.from_lines(lines))
    except (OSError, ValueError) as error:
        raise ToolFailed(f"cannot read the history {path}: {error}") from error


def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in sorted(cluster.topic(topic).partitions)]


def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], wait_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """High watermarks and last stable offsets, when they are equal or the time is up.

    The stable offsets are requested first, so that their markers are below the high watermarks.
    """
    deadline = time.monotonic() + wait_s
    while True:
        stable = offsets.latest(cluster, partitions)
        end = offsets.latest(cluster, partitions, isolation_level="read_uncommitted")
        if stable == end or time.monotonic() > deadline:
            return end, stable
        time.sleep(_POLL_SECONDS)


def _source(
    cluster: Cluster, topic: str, due: Mapping[TopicPartition, int], progress: Progress, *, with_contents: bool
) -> dict[int, SourcePartition]:
    partitions = _partitions(cluster, topic)
    earliest = offsets.earliest(cluster, partitions)
    end, stable = _ends(cluster, partitions, wait_s=0)
    ranges = [OffsetRange(partition=tp, start=earliest[tp], end=end[tp]) for tp in partitions]
    take: scan.TakeContents = "always" if with_contents else "never"
    logs = scan.logs(cluster, ranges, stable, _counted(progress, "the source", ranges), take)
    return {log.partition.partition: source_partition(log, due.get(log.partition)) for log in logs}


def _due(
    cluster: Cluster,
    origin: Cluster,
    source: str,
    group: str | None,
    ledger: SinkLedger | None,
    history: Sequence[HistoryEntry],
) -> tuple[Due, str]:
    """What of the source must be in the output, if nobody knows it then everything; and why the source is not what the
    query read, empty if nothing shows that.
    """
    partitions = _partitions(origin, source)
    named = group or (None if ledger is None else ledger.transactional_id)
    # In this order, so that a commit in between only makes the group older.
    of_group = _of_group(cluster, origin, partitions, named)
    progress = SourceProgress(cluster="", offsets={})
    if ledger is not None:
        progress, _ = committed_progress(ledger, origin.cluster_id())
    found = due(partitions, ledger=progress.offsets, group=named, of_group=of_group, history=_ended(history))
    if not found.ends:
        found = Due(ends=offsets.latest(origin, partitions), up_to="the source's end")
    if group is not None and not of_group:
        found = replace(found, up_to=f"{found.up_to} (group {group!r} has no offsets of the source)")
    return found, _another_log(origin, source, progress)


def _another_log(origin: Cluster, source: str, progress: SourceProgress) -> str:
    """Why the ledger's offsets do not mean the records that the source has now."""
    identity = TopicIdentity(origin)
    identity.refresh([source])
    now = Origin(cluster="", topic_ids={source: origin.topic(source).id})
    if source in (words := created_between(progress.origin, now)):
        return f"{source!r} is not what the query read: {words[source]}"
    read = {tp: offset for tp, offset in progress.offsets.items() if tp.topic == source}
    truncated = identity.log_ends(progress.origin, read)
    return "; ".join(
        f"{tp} is not what the query read: it read up to {read[tp]}, and the log was truncated to {end} since"
        for tp, end in sorted(truncated.items())
    )


def _of_group(
    cluster: Cluster, origin: Cluster, partitions: Sequence[TopicPartition], group: str | None
) -> Mapping[TopicPartition, int]:
    """The group on the sink's cluster only has topics of that cluster; another cluster may have topics of the same
    name.
    """
    if group is None or origin.cluster_id() != cluster.cluster_id():
        return {}
    committed = GroupCoordinator(cluster, group).fetch_offsets(partitions)
    return {tp: at.offset for tp, at in committed.items() if at is not None}


def _ended(history: Sequence[HistoryEntry]) -> Mapping[TopicPartition, int]:
    """Where the last batch in the history ended."""
    ends = (entry.end for entry in reversed(histories.committed(history)) if entry.end is not None)
    return next(ends, {})


def _ledger(cluster: Cluster, of: SinkLedger) -> Ledger:
    transactional_id, signer = of.transactional_id, signer_at(of)
    kept = LedgerTopic(cluster, of.topic, transactional_id)
    # In this order, so that a commit in between only makes the pointer older, which is not a violation.
    committed = GroupCoordinator(cluster, f"{transactional_id}.ledger").fetch_all()
    value = kept.read_settled()
    newest = copies.newest(value, committed, kept.at, signer)
    entry, passed = follow(cluster, transactional_id, newest, kept.at, LedgerTopic.read_settled, signer)
    if passed[-1] != kept.at:  # it has moved
        kept = LedgerTopic(cluster, passed[-1].topic, transactional_id)
        value = kept.read_settled()
    record, pointer = _entries(value, committed.get(kept.at), signer)
    if isinstance(entry, ledgers.UnreadableEntry):
        if record is None:
            raise ToolFailed(entry.description)
        entry = record  # it contradicts its pointer, which is reported
    state = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1000))
    return Ledger(
        batch_id=None if entry is None else entry.batch_id,
        transactional_id=transactional_id,
        transaction_state=state.state if isinstance(state, TransactionFacts) else "",
        undescribed=state.reason if isinstance(state, Unavailable) else "",
        record=record,
        pointer=pointer,
    )


def _entries(
    value: bytes | None, committed: OffsetAndMetadata | None, signer: Signer
) -> tuple[LedgerEntry | None, LedgerEntry | None]:
    """The record and its pointer; None for both if one of them is unreadable, which `newest` reports."""
    try:
        return (
            None if value is None else entry_format.decode_record(value, signer),
            None if committed is None else entry_format.decode_committed(committed, signer),
        )
    except entry_format.NotAnEntry:
        return None, None


def _counted(progress: Progress, what: str, ranges: Sequence[OffsetRange]) -> scan.ScanProgress:
    total, done = sum(offset_range.size for offset_range in ranges), 0
    progress(what, 0, total)

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(what, done, total)

    return count
