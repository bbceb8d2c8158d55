"""The steps of fetching and their results: `fetching.fetch_plan` decides on them, `fetching.fetch` performs them.
Pure.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.kafka.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction, RecordBatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole record batches of one partition, in order; the first may begin before the range, the last may reach past.

    `buffer` is part of the response's own buffer, in which the batches have their positions. `aborted` are the
    aborted transactions that overlap this response (empty when read_uncommitted); a transaction's abort marker may come
    in a later response. `next_offset` is where the next fetch goes on. `lacking` is the size of the first batch if only
    a part of it has come, 0 if unknown.
    """

    partition: TopicPartition
    buffer: memoryview
    batches: Sequence[RecordBatchHeader]
    aborted: tuple[AbortedTransaction, ...]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    lacking: int = 0

    @property
    def reaches_end(self) -> bool:
        """Whether the log had no more that is stable."""
        return self.next_offset >= self.last_stable_offset


# -- steps


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One partition of a request: records from `position` on are requested, those before `end` are needed."""

    partition: TopicPartition
    topic_id: uuid.UUID
    position: int
    end: int
    leader_epoch: int  # as last looked up
    last_epoch: int  # of the last record batch read, -1 for none
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Send a request for `parts`, in this order and for at most `max_bytes`, to the broker `node` (an id).

    Without `with_rack`, a leader returns the records itself, even if another replica is in the reader's rack.
    `is_peek`: read_uncommitted, only to see where the log continues.
    """

    node: int
    parts: tuple[FetchPartition, ...]
    max_bytes: int
    with_rack: bool
    is_peek: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """Wait for the first answer of these brokers to the requests in flight, at most for `seconds`: then something else
    is to be done.
    """

    nodes: tuple[int, ...]
    seconds: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Locate:
    """Look up the leaders of `partitions`; cached metadata of the topics in `outdated` is too old."""

    partitions: tuple[TopicPartition, ...]
    outdated: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindBounds:
    """Look up where these partitions start and end."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait before retrying after an error, or (None) because all brokers still to be asked throttle this client; not
    longer than until an answer comes that is in flight.
    """

    seconds: float
    because: KafkaEosError | None


BrokerStep = Ask | Receive | Locate | FindBounds  # steps that fail if a broker cannot be reached
Step = BrokerStep | Wait | Fetched


# -- results


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeader:
    """The broker that leads a partition (`node`, its id, -1 for none at present), its leader epoch (-1: unknown), and
    the topic's id.
    """

    node: int
    leader_epoch: int
    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A partition's error code in place of data."""

    error_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    """The broker's own log has records of leader epoch `epoch` only up to `end_offset` (KIP-595)."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReplica:
    """In place of records: the leader prefers that this reader asks the broker `node`, a follower (KIP-392)."""

    node: int


PartitionResult = Fetched | Refused | EpochEndOffset | ReadReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How a response came: `size` bytes in `seconds` from the first one on; `is_cut` if the rest is lost."""

    size: int = 0
    seconds: float = 0.0
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A broker's answer. Partitions may be missing from it; one without new data has a `Fetched` without batches.

    `address` is the broker's address, for messages; `error_code` is that of the whole request.
    """

    address: str
    arrival: Arrival = field(default_factory=Arrival)
    parts: Mapping[TopicPartition, PartitionResult] = field(default_factory=dict)
    error_code: int = 0
    throttle_ms: int = 0
