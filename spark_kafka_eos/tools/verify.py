"""Proves or refutes "exactly once" of an output topic: reads it whole, several ways, and checks every invariant.

    report = verify("localhost:9092", "orders-clean", source="orders", transactional_id="orders-clean")
    assert report.holds, report

To be asked when the query stands still: an open transaction is waited for, and counts as a violation if it stays. What
is read: the output's log with everything in it, the output as this package's source shows it, the output as librdkafka
shows it where it is not too large, the source's offsets, the ledger, the group's offsets. See `core.invariants`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from spark_kafka_eos.broker import describe, offsets
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.core import history as histories
from spark_kafka_eos.core import ledger as ledgers
from spark_kafka_eos.core.evidence import Ledger, Seen, SourcePartition
from spark_kafka_eos.core.findings import Finding, Invariant
from spark_kafka_eos.core.history import HistoryEntry
from spark_kafka_eos.core.invariants import check
from spark_kafka_eos.core.preflight import TransactionFacts
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.model import OffsetRange, TopicPartition
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.tools import scan
from spark_kafka_eos.tools.follower import Follower, witness

_POLL_SECONDS = 0.1
_ENDED = ("Empty", "CompleteCommit", "CompleteAbort")

Progress = Callable[[str, int, int], None]  # what is read, how many offsets of how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on one topic: six findings in their order, and what it took to get them.

    `records` are the committed ones, `uncommitted` all others that the log holds.
    """

    topic: str
    findings: tuple[Finding, ...]
    records: int
    uncommitted: int
    readers: tuple[str, ...]
    seconds: float

    @property
    def violated(self) -> tuple[Invariant, ...]:
        return tuple(finding.invariant for finding in self.findings if finding.violations)

    @property
    def holds(self) -> bool:
        return not self.violated

    def __str__(self) -> str:
        lines = [
            f"{self.topic}: {self.records:,} records committed, {self.uncommitted:,} not; {self.seconds:.1f} s",
            *(f"{f.invariant} {f.invariant.name.lower()}: {f.verdict} ({f.checked:,} {f.unit})" for f in self.findings),
            *(
                f"{f.invariant} {v.kind}: {v.where} {v.what}" + (f" (and {v.count - 1:,} more)" if v.count > 1 else "")
                for f in self.findings
                for v in f.violations
            ),
        ]
        return "\n".join(lines)


def verify(
    client: ClientOptions | str,
    topic: str,
    *,
    source: str | None = None,
    transactional_id: str | None = None,
    group: str | None = None,
    ledger_topic: str | None = None,
    history: Sequence[HistoryEntry] | Path = (),
    followers: Iterable[Follower] = (),
    readers: Mapping[str, Mapping[TopicPartition, Seen]] = MappingProxyType({}),
    wait_s: float = 30.0,
    witness_records: int = 1_000_000,
    progress: Progress = lambda *_: None,
) -> Report:
    """Check `topic`. `client`: options, or the brokers' addresses.

    `source`: the topic of which it is to hold every record, once, with its provenance in the value; as far as the
    query's `group` (default: `transactional_id`) has committed, else to its end. `transactional_id` leads to the
    ledger, at `ledger_topic` (default: `topic`). `history`: entries, or their file. `followers` are stopped, and what
    they saw all along is checked, as is what other `readers`, by name, were shown. Topics of at most `witness_records`
    are read through librdkafka, too. An open transaction is waited for `wait_s`. Raises UnknownTopic, BrokerUnreachable
    and the like; ToolFailed for a history that cannot be read.
    """
    started = time.monotonic()
    options = ClientOptions(bootstrap_servers=_servers(client)) if isinstance(client, str) else client
    entries = _read_history(history) if isinstance(history, Path) else list(history)
    with Cluster(options) as cluster:
        partitions = _partitions(cluster, topic)
        end, stable = _ends(cluster, partitions, wait_s)
        earliest = offsets.earliest(cluster, partitions)
        everything = [OffsetRange(partition=tp, start=earliest[tp], end=end[tp]) for tp in partitions]
        logs = scan.logs(cluster, everything, stable, _counted(progress, "everything", everything))
        visible = [OffsetRange(partition=tp, start=earliest[tp], end=stable[tp]) for tp in partitions]
        shown = scan.seen(cluster, topic, visible, _counted(progress, "read_committed", visible))
        seen = {**readers, "spark-kafka-eos": shown}
        if sum(wanted.size for wanted in visible) <= witness_records:
            seen["librdkafka"] = witness(options, visible)
        for number, follower in enumerate(followers, 1):
            seen[f"follower {number}"] = follower.stop(stable)
        findings = check(
            logs,
            source=None if source is None else _source(cluster, source, group or transactional_id, entries, progress),
            readers=seen,
            history=entries,
            ledger=None if transactional_id is None else _ledger(cluster, transactional_id, ledger_topic or topic),
        )
    records = sum(len(log.committed_offset) for log in logs)
    return Report(
        topic=topic,
        findings=tuple(findings),
        records=records,
        uncommitted=sum(len(log.offset) for log in logs) - records,
        readers=tuple(seen),
        seconds=time.monotonic() - started,
    )


def _servers(bootstrap: str) -> tuple[tuple[str, int], ...]:
    pairs = (address.strip().rpartition(":") for address in bootstrap.split(","))
    return tuple((host, int(port)) for host, _, port in pairs)


def _read_history(path: Path) -> list[HistoryEntry]:
    try:
        with path.open() as lines:
            return list(histories.from_lines(lines))
    except (OSError, ValueError) as error:
        raise ToolFailed(f"the history {path} cannot be read: {error}") from error


def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in sorted(cluster.topic(topic).partitions)]


def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], wait_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """High watermarks and last stable offsets, once they agree or the time is over.

    The stable ones are asked first: what is stable then, is so because of markers below the high watermark of later.
    """
    deadline = time.monotonic() + wait_s
    while True:
        stable = offsets.latest(cluster, partitions)
        end = offsets.latest(cluster, partitions, isolation="read_uncommitted")
        if stable == end or time.monotonic() > deadline:
            return end, stable
        time.sleep(_POLL_SECONDS)


def _source(
    cluster: Cluster, topic: str, group: str | None, history: Sequence[HistoryEntry], progress: Progress
) -> dict[int, SourcePartition]:
    partitions = _partitions(cluster, topic)
    earliest, latest = offsets.earliest(cluster, partitions), offsets.latest(cluster, partitions)
    ranges = [OffsetRange(partition=tp, start=earliest[tp], end=latest[tp]) for tp in partitions]
    due = _due(cluster, partitions, group, history)
    shown = scan.seen(cluster, topic, ranges, _counted(progress, "the source", ranges))
    found = {}
    for wanted in ranges:
        visible = np.zeros(wanted.size, np.bool_)
        visible[shown[wanted.partition].offset - wanted.start] = True
        found[wanted.partition.partition] = SourcePartition(
            partition=wanted.partition,
            start=wanted.start,
            end=wanted.end if due is None else due.get(wanted.partition, wanted.start),
            visible=visible,
        )
    return found


def _due(
    cluster: Cluster, partitions: Sequence[TopicPartition], group: str | None, history: Sequence[HistoryEntry]
) -> Mapping[TopicPartition, int] | None:
    """How far the output must have got: where the group stands, else the history's last batch; None if neither says."""
    if group is not None:
        found = GroupCoordinator(cluster, group).fetch_offsets(partitions)
        standing = {tp: at.offset for tp, at in found.items() if at is not None}
        if standing:
            return standing
    return next((entry.end for entry in reversed(histories.committed(history)) if entry.end is not None), None)


def _ledger(cluster: Cluster, transactional_id: str, topic: str) -> Ledger:
    at = TopicPartition(topic, 0)
    found = GroupCoordinator(cluster, f"{transactional_id}.ledger").fetch_offsets([at])[at]
    state = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1000))
    return Ledger(
        batch_id=None if found is None else ledgers.decode(found).batch_id,
        transaction_state=state.state if isinstance(state, TransactionFacts) else "",
    )


def _counted(progress: Progress, what: str, ranges: Sequence[OffsetRange]) -> scan.Progress:
    total, done = sum(wanted.size for wanted in ranges), 0
    progress(what, 0, total)

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(what, done, total)

    return count
