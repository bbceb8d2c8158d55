"""What each step of a micro-batch reports to the next one.

EncodeReport     one per encode task: its blocks, or the error that stopped it
AppendReport     one per append task of `appendMode=executors` (appending.barrier)
Appended         one per attempt: all of it is appended
CommitReport     one per micro-batch, for users and the log
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.trace import NO_TRACE, Trace

if TYPE_CHECKING:
    from spark_kafka_eos.appending.append_mode import Choice
    from spark_kafka_eos.appending.blocks import Block

Counts = Mapping[TopicPartition, int]
"""The number of records per partition."""


def total(counts: Iterable[Counts]) -> dict[TopicPartition, int]:
    """The sum of record counts, per partition."""
    records: Counter[TopicPartition] = Counter()
    for addition in counts:
        records.update(addition)
    return dict(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """A block of `length` bytes: at `offset` of the report's file, inline in `data`, or in the shuffle."""

    partition: TopicPartition
    records: int
    length: int
    offset: int = 0
    data: bytes | None = None


def encoded(block: Block, *, offset: int = 0, data: bytes | None = None) -> EncodedBlock:
    """The entry of `block` in its task's report."""
    return EncodedBlock(
        partition=block.partition, records=block.records, length=len(block.data), offset=offset, data=data
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeReport:
    """The blocks of one encode task, in order; `path` is the staging file, relative to the staging directory.

    Nothing of the batch may be appended if `error` is set, or if the blocks were `too_large` to be sent inline and
    there was no staging directory. `dead_letters` is the number of them by cause; they are in the blocks. `links` are
    sampled headers (`observe.links`).
    """

    task: int
    blocks: tuple[EncodedBlock, ...] = ()
    path: str | None = None
    error: KafkaEosError | None = None
    too_large: bool = False
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    milliseconds: float = 0.0
    links: tuple[str, ...] = ()

    @property
    def records(self) -> dict[TopicPartition, int]:
        """The number of encoded records per partition."""
        counts: Counter[TopicPartition] = Counter()
        for block in self.blocks:
            counts[block.partition] += block.records
        return dict(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedTopic:
    """What one attempt appended to a topic: `records` in so many `partitions`. `id` is the one that the topic had
    before (appending.append.topic_ids).
    """

    id: uuid.UUID
    partitions: int
    records: int


def appended_topics(ids: Mapping[str, uuid.UUID], records: Counts) -> dict[str, AppendedTopic]:
    """The topics of these records, sorted."""
    counts: dict[str, list[int]] = {}
    for tp, count in records.items():
        counts.setdefault(tp.topic, []).append(count)
    return {
        topic: AppendedTopic(id=ids[topic], partitions=len(partition_records), records=sum(partition_records))
        for topic, partition_records in sorted(counts.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What one attempt appended to the transaction; every record was acknowledged exactly once.

    `topics` are those with records. `dead_letters` are among the records, by cause. `choice` is the append mode, if it
    differs from the one chosen before.
    """

    partitions: int
    records: int
    bytes: int
    topics: Mapping[str, AppendedTopic] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)
    choice: Choice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """The outcome of one micro-batch. `milliseconds` has the wall time of the steps `begin`, `encode`, `append`,
    `offsets`, `end` of the last attempt, with the retries of their requests.

    `outcome` is `committed`, or `skipped` if the ledger shows that the batch was committed before. `redone` has the
    reason of each aborted attempt. `dead_letters` is the number of them by cause; `records` includes them.
    `append_mode` is `driver` or `executors`, and `append_reason` says why (see appending.append_mode). `trace` is the
    batch's timeline, with every attempt and request.

    Of a batch that raised an error, observers get a report, too: `outcome` is then `refused` (LedgerRefused) or
    `failed`, and `error` is the name of the error's class. `producer_id` is -1 if there was none yet.
    """

    query_id: str
    batch_id: int
    outcome: str
    producer_id: int
    epoch: int
    append_mode: str
    append_reason: str = ""
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)
    redone: tuple[str, ...] = ()
    error: str = ""
    trace: Trace = NO_TRACE

    @property
    def retries(self) -> Counter[str]:
        """The number of requests that were retried, by error: that of a broker, or `no response`."""
        return self.trace.retries

    @property
    def waited(self) -> dict[str, float]:
        """Milliseconds that these retries took, by error. `CONCURRENT_TRANSACTIONS` is the wait for the previous
        transaction's end, wherever in `begin` or `append` it happened (KIP-609).
        """
        return self.trace.waited

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object, `trace` too. Times are rounded to microseconds."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        steps, waited = (
            {name: round(value, 3) for name, value in durations.items()}
            for durations in (self.milliseconds, self.waited)
        )
        retries = {"retries": dict(self.retries), "waited": waited}
        return values | {"milliseconds": steps} | retries | {"trace": self.trace.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The report of `to_json`. Raises KeyError, TypeError for anything else."""
        values = {field.name: value[field.name] for field in fields(cls)}
        return cls(**values | {"redone": tuple(value["redone"]), "trace": Trace.from_json(value["trace"])})

    def __str__(self) -> str:
        steps = " ".join(f"{name}={value:.0f}ms" for name, value in self.milliseconds.items())
        why = f" ({self.append_reason})" if self.append_reason else ""
        waits = ", ".join(f"{error} {milliseconds:.0f}ms" for error, milliseconds in self.waited.items())
        retries = f" retries={sum(self.retries.values())} ({waits})" if self.retries else ""
        dead = f" dead_letters={sum(self.dead_letters.values())}" if self.dead_letters else ""
        redone = f" redone={len(self.redone)} ({'; '.join(self.redone)})" if self.redone else ""
        return (
            f"batch {self.batch_id} of query {self.query_id} {self.outcome}: records={self.records}{dead} "
            f"bytes={self.bytes} partitions={self.partitions} producer={self.producer_id}/{self.epoch} "
            f"mode={self.append_mode}{why} {steps}{retries}{redone}"
        )
