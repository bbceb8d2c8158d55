"""What brokers say of topics, groups, transactional.ids and themselves, as values; `protocol.describe` asks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerEpoch
from spark_kafka_eos.kafka.words import duration

# Two-phase commit (KIP-939), unstable in Kafka 4.4: the version of InitProducerId that has it, and what the coordinator
# then stores as the timeout, in ms.
TWO_PHASE_COMMIT = 6
NO_TIMEOUT = 2**31 - 1
TWO_PHASE_COMMIT_NEEDS = (
    "twoPhaseCommit needs transaction.two.phase.commit.enable=true on the brokers, as long as it is an unstable "
    "feature also unstable.api.versions.enable=true, and the right TwoPhaseCommit besides Write on the transactional "
    "id. Set them, or omit twoPhaseCommit."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A fact that could not be read: the broker's response, and the ACL that would allow it (empty if none would)."""

    reason: str
    grant: str = ""


Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic: the lowest number of replicas, and of in-sync replicas, of any of its partitions.

    `operations` are those allowed for this principal ("Read", "Write", …); None if the broker did not return them.
    """

    partitions: int
    replicas: int
    in_sync: int
    operations: frozenset[str] | None
    settings: Settings | Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """What a topic takes of records, as its settings say; a limit that is None is not known, or there is none.

    `max_message_bytes`: of a record batch. `needs_keys`: it is compacted. `before_ms`, `after_ms`: how far a timestamp
    may be from the broker's time, when it appends the record. `retention_ms`: how long it keeps a record after its
    timestamp.
    """

    max_message_bytes: int | None = None
    needs_keys: bool = False
    before_ms: int | None = None
    after_ms: int | None = None
    retention_ms: int | None = None

    def keeps(self, timestamp: int, now: int) -> bool:
        """Whether the topic takes a record with this timestamp `now`, and does not delete it for that; both in ms since
        1970. False if its settings are not known.
        """
        if self.max_message_bytes is None:  # which each topic has
            return False
        age = now - timestamp
        oldest = min((limit for limit in (self.before_ms, self.retention_ms) if limit is not None), default=age)
        return timestamp >= 0 and -(self.after_ms or 0) <= age <= oldest


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group. `members` are given as client id and host; only groups with the classic protocol have them.

    `type` is that of the brokers: "classic", "consumer" (KIP-848), "share" (KIP-932), "streams" (KIP-1071); "" of a
    group that does not exist, and of brokers that do not say it. `sinks` are the other transactional.ids whose
    transactions commit offsets to it.
    """

    state: str
    members: tuple[str, ...]
    operations: frozenset[str] | None
    type: str = ""
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """The coordinator's state of a transactional.id, as returned at `described_ms` by this machine's clock.

    `partitions` are those of the open transaction; once it is prepared, those that still lack its marker. `started_ms`
    is when the transaction began, None if there was none. The brokers return no client.id and no address.
    """

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None = None
    described_ms: int = 0
    transactional_id: str = ""
    coordinator: int = -1
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)

    @property
    def is_open(self) -> bool:
        """Whether it has a transaction without all of its markers."""
        return is_open(self.state)

    @property
    def is_prepared(self) -> bool:
        """Whether an end is decided and markers are being written, so that a moment later there is more to know."""
        return self.state.startswith("Prepare")

    @property
    def age_ms(self) -> int | None:
        """How long ago the transaction began; None if there was none."""
        return None if self.started_ms is None else max(0, self.described_ms - self.started_ms)

    @property
    def times_out(self) -> bool:
        """Whether the coordinator ever aborts it by itself: not with two-phase commit (KIP-939)."""
        return self.timeout_ms != NO_TIMEOUT

    @property
    def timeout(self) -> str:
        """The timeout in words."""
        return duration(self.timeout_ms) if self.times_out else "none (two-phase commit)"

    @property
    def timeout_left_ms(self) -> int | None:
        """When the coordinator will abort it, from now; negative if it should have. None unless it is ongoing, and if
        it has no timeout.
        """
        if self.state != "Ongoing" or self.started_ms is None or not self.times_out:
            return None
        return self.started_ms + self.timeout_ms - self.described_ms


def is_open(state: str) -> bool:
    """Whether a transaction in this state lacks a marker."""
    return state == "Ongoing" or state.startswith("Prepare")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The end of a partition for read_committed and for read_uncommitted."""

    last_stable_offset: int
    high_watermark: int

    @property
    def lag(self) -> int:
        """The number of offsets that an open transaction holds back."""
        return max(0, self.high_watermark - self.last_stable_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a broker says of itself: the APIs of this package that it lacks, and what it offers instead; the newest
    metadata.version that it supports, None if it has none; whether it offers two-phase commit (KIP-939).
    """

    lacking: Mapping[str, str]
    metadata_version: int | None
    two_phase_commit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer id that the leader of a partition remembers.

    `start_offset` is where its open transaction starts in the partition, None if it has none. `last_timestamp_ms` is
    the timestamp of its last record, which the client may have set. `coordinator_epoch` is that of the last marker, -1
    if there was none.
    """

    partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_sequence: int = -1
    last_timestamp_ms: int | None = None
    start_offset: int | None = None


def open_in(remembered: Iterable[ProducerState]) -> list[ProducerState]:
    """A partition's producers with an open transaction, the oldest transaction first."""
    producers = [producer for producer in remembered if producer.start_offset is not None]
    return sorted(producers, key=lambda producer: producer.start_offset or 0)
