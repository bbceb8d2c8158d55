"""What a task in real time did: in all, and in the last seconds, for the log and metrics of a query that runs on.

A task counts as it goes, and a thread of its own sends the difference every few seconds, so nothing of it is on the
records' path. A datagram that is lost is missing in the sums.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition, offsets_from_json, offsets_to_json
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.observe.tallies import IntervalTally
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.latencies import Latencies, added, of_pairs

_log = logger(__name__)

INTERVAL_SECONDS = 10.0
_MOST_POSITIONS = 1_000  # that fit into a datagram


@dataclass(slots=True, kw_only=True)
class TaskReport:
    """What a task did. `positions` are where its partitions are read on. `latencies` are those of records, from their
    timestamps to the commit's answer, `commits` the milliseconds of its transactions. `error` is what ended the task
    before its time. Otherwise, `ended` are its buckets as another task can go on with them.
    """

    records_read: int = 0
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    latencies: Latencies = field(default_factory=Latencies)
    commits: Latencies = field(default_factory=Latencies)
    error: KafkaEosError | None = None
    ended: tuple[Bucket, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalsOf:
    """Whose intervals a task reports, how often, and where (`observe.datagrams`)."""

    query_id: str
    batch_id: int
    transactional_id: str
    address_and_key: str = field(repr=False)
    seconds: float = INTERVAL_SECONDS


class Intervals:
    """What a running task has done since it was last asked; another thread may change `report` meanwhile."""

    def __init__(self, report: TaskReport, of: IntervalsOf, reporter: str, clock: Callable[[], float]) -> None:
        self._report, self._of, self._reporter, self._clock = report, of, reporter, clock
        self._last, self._at, self._number = TaskReport(), clock(), 0

    def next(self) -> IntervalTally:
        """The tally of the time since the last one."""
        report, last, now = self._report, self._last, self._clock()
        self._last = current = TaskReport(
            records_read=report.records_read,
            records=report.records,
            bytes=report.bytes,
            transactions=report.transactions,
            dead_letters=Counter(report.dead_letters),
            latencies=report.latencies.copy(),
            commits=report.commits.copy(),
        )
        milliseconds, self._at = (now - self._at) * 1e3, now
        positions = dict(report.positions)
        self._number += 1
        return IntervalTally(
            query_id=self._of.query_id,
            batch_id=self._of.batch_id,
            transactional_id=self._of.transactional_id,
            reporter=self._reporter,
            number=self._number,
            milliseconds=milliseconds,
            records_read=current.records_read - last.records_read,
            records=current.records - last.records,
            bytes=current.bytes - last.bytes,
            transactions=current.transactions - last.transactions,
            dead_letters=dict(current.dead_letters - last.dead_letters),
            latencies=current.latencies.since(last.latencies).pairs(),
            commits=current.commits.since(last.commits).pairs(),
            positions=None if len(positions) > _MOST_POSITIONS else offsets_to_json(positions),
        )


class QueryIntervals:
    """The tallies of a query's tasks, put together. `log_ends` asks Kafka, and may raise KafkaEosError.

    `add` may be called by another thread.
    """

    def __init__(
        self,
        log_ends: Callable[[Offsets], Mapping[TopicPartition, LogEnds]],
        clock: Callable[[], float],
    ) -> None:
        self._log_ends, self._clock = log_ends, clock
        self._lock = threading.Lock()
        self._tallies: list[IntervalTally] = []
        self._positions: dict[TopicPartition, int] = {}
        self._complete = True  # whether every task has said where it is
        self._at, self._number = clock(), 0

    def add(self, tally: IntervalTally) -> None:
        """A task's tally."""
        with self._lock:
            self._tallies.append(tally)
            self._complete = self._complete and tally.positions is not None
            self._positions.update(offsets_from_json(tally.positions or {}))

    def next(self) -> IntervalTally | None:
        """All that was added since the last time; None if that is nothing."""
        with self._lock:
            tallies, self._tallies = self._tallies, []
            positions = dict(self._positions) if self._complete else None
        now = self._clock()
        milliseconds, self._at = (now - self._at) * 1e3, now
        if not tallies:
            return None
        self._number += 1
        unread, held = self._lag(positions)
        return together(tallies, milliseconds, self._number, unread, held)

    def _lag(self, positions: Offsets | None) -> tuple[Mapping[str, int] | None, Mapping[str, int] | None]:
        if not positions:
            return None, None
        try:
            log_ends = self._log_ends(positions)
        except KafkaEosError:  # a gap in the figures; the tasks say what is wrong
            return None, None
        unread: Counter[str] = Counter()
        held: Counter[str] = Counter()
        for tp, at in positions.items():
            unread[tp.topic] += max(0, log_ends[tp].last_stable_offset - at)
            held[tp.topic] += log_ends[tp].lag
        return dict(unread), dict(held)


def together(
    tallies: Sequence[IntervalTally],
    milliseconds: float,
    number: int,
    unread: Mapping[str, int] | None,
    held: Mapping[str, int] | None,
) -> IntervalTally:
    """The sum of the tallies of tasks within `milliseconds`."""
    first = tallies[0]
    return IntervalTally(
        query_id=first.query_id,
        batch_id=first.batch_id,
        transactional_id=first.transactional_id,
        reporter="query",
        number=number,
        milliseconds=milliseconds,
        records_read=sum(tally.records_read for tally in tallies),
        records=sum(tally.records for tally in tallies),
        bytes=sum(tally.bytes for tally in tallies),
        transactions=sum(tally.transactions for tally in tallies),
        dead_letters=dict(sum((Counter(tally.dead_letters) for tally in tallies), Counter())),
        latencies=added(of_pairs(tally.latencies) for tally in tallies).pairs(),
        commits=added(of_pairs(tally.commits) for tally in tallies).pairs(),
        unread=unread,
        held=held,
    )


def line(tally: IntervalTally) -> str:
    """The line of the log."""
    seconds = max(tally.milliseconds, 1.0) / 1e3
    latencies, commits = of_pairs(tally.latencies), of_pairs(tally.commits)
    return (
        f"query {tally.query_id} in real time: seconds={seconds:.0f} records={tally.records_read} "
        f"written={tally.records} records_per_second={tally.records_read / seconds:.0f} "
        f"transactions={tally.transactions} transactions_per_second={tally.transactions / seconds:.1f} "
        f"dead_letters={sum(tally.dead_letters.values())} {quantiles('latency', latencies)} "
        f"{quantiles('commit', commits)} unread={_total(tally.unread)} held={_total(tally.held)}"
    )


def quantiles(name: str, latencies: Latencies) -> str:
    """`latency_p50=9.1ms latency_p95=… latency_p99=…`."""
    shares = ((50, 0.5), (95, 0.95), (99, 0.99))
    return " ".join(f"{name}_p{percent}={_ms(latencies.quantile(share))}" for percent, share in shares)


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f}ms"


def _total(by_topic: Mapping[str, int] | None) -> str:
    return "?" if by_topic is None else str(sum(by_topic.values()))


@contextlib.contextmanager
def every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Call it again and again while the context lasts, in a thread of its own, and once more at its end."""
    over = threading.Event()

    def safely() -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - figures must not end a query
            _log.exception("figures of the last seconds are missing; the query is not affected")

    def again() -> None:
        while not over.wait(seconds):
            safely()

    thread = threading.Thread(target=again, name="kafka-eos-intervals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        safely()
