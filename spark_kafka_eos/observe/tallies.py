"""What Spark's processes report to the listener, in a few figures: what a task read of a range, how a micro-batch
ended, what a query in real time did in the last seconds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.kafka.partitions import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """`outcome`, `error`, `dead_letters`, `milliseconds` and `retries` are those of `CommitReport`; `epoch` is None if
    there was none.

    `ended_at` is in seconds since 1970.
    """

    query_id: str
    batch_id: int
    transactional_id: str
    outcome: str
    ended_at: float
    error: str = ""
    epoch: int | None = None
    records: int = 0
    bytes: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    aborted_attempts: int = 0
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTally:
    """Statistics of reading offsets `[start, end)` of a partition: bytes of record batches, records skipped as aborted.

    Bytes are as stored by Kafka (compressed, including headers and aborted data); a record batch that extends beyond
    the range counts as a whole.
    """

    partition: TopicPartition
    start: int
    end: int
    bytes: int
    aborted: int


Times = Sequence[Sequence[float]]  # pairs: so many milliseconds, and how often


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTally:
    """What a query in real time did within `milliseconds`: one of its tasks, or all of them.

    `reporter` and `number` distinguish the tallies of a query. `positions` are where a task's partitions are read on,
    by topic and partition, None if there are too many for a datagram; `unread` and `held` are the offsets after these,
    as in PartitionLag, by topic, None if unknown. The other fields are those of `real_time.task.TaskReport`.
    """

    query_id: str
    batch_id: int
    transactional_id: str
    reporter: str
    number: int
    milliseconds: float
    records_read: int = 0
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    latencies: Times = ()
    commits: Times = ()
    positions: Mapping[str, Mapping[str, int]] | None = None
    unread: Mapping[str, int] | None = None
    held: Mapping[str, int] | None = None
