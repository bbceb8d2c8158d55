"""The sink's options, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from spark_kafka_eos.options.outputs import OutputTopic, names

if TYPE_CHECKING:
    from spark_kafka_eos.options.values import Limit

LEDGER_GROUP = ".ledger"  # after the transactional.id: the group that holds the pointer, and nothing else
BUCKETS = ".bucket-"  # after the transactional.id of a query in real time, and before the number of the bucket
# What to do where a source's topic is not on the sink's cluster.
MISSING_SOURCE = (
    "If the source is on another cluster, set sourceClusters. If the topic was deleted, set failOnDataLoss=false on "
    "the sink, too: its offsets are then not committed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Sizes are in bytes, times in milliseconds.

    `transactional_id` and `group_id` are never empty with exactly-once; with at-least-once each is `""` unless set.
    `ledger_topic` is empty if no ledger is kept. If `topic` is None, each row names its topic. If `output_topics` is
    empty, every topic may be written. Without a `dead_letter_topic`, a row that cannot be written fails the batch.
    `two_phase_commit` is KIP-939's. `source_clusters` are the cluster ids of the query's sources, one for all or one
    each, where "" means the sink's cluster; if it is empty, all sources are on the sink's cluster.
    """

    client: ClientOptions
    transactional_id: str
    ledger_topic: str
    group_id: str
    topic: str | None = None
    output_topics: tuple[OutputTopic, ...] = ()
    dead_letter_topic: str | None = None
    max_dead_letters: Limit | None = None
    append_mode: Literal["auto", "driver", "executors"] = "auto"
    staging_dir: str | None = None
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    max_request_size: int = 1_048_576
    transaction_timeout_ms: int = 60_000
    two_phase_commit: bool = False
    max_attempts: int = 3
    preflight: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    trace_dir: str | None = None
    open_telemetry: bool = False
    open_telemetry_links: int = 0
    delivery_guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    enable_idempotence: Literal["required", "requested", "off"] = "required"
    partitioner: Literal["murmur2", "consistent", "roundrobin"] = "murmur2"
    checkpoint_location: str | None = None
    take_over_query: str | None = None
    resolve: str | None = None
    source_clusters: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    allow_loop: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    ledger_key: tuple[Secret, ...] = ()

    @property
    def timeout_ms(self) -> int | None:
        """After what time the coordinator aborts a transaction; None for never."""
        return None if self.two_phase_commit else self.transaction_timeout_ms

    @property
    def ledger_group(self) -> str:
        """The consumer group that holds the ledger's pointer, and nothing else."""
        return self.transactional_id + LEDGER_GROUP


def bucket_id(transactional_id: str, number: int) -> str:
    """The transactional id of a bucket: that of the query, and the bucket's number."""
    return f"{transactional_id}{BUCKETS}{number}"


def query_of(transactional_id: str) -> str:
    """The query's transactional id, of that of a bucket or its own."""
    name, bucket, number = transactional_id.rpartition(BUCKETS)
    return name if bucket and number.isdecimal() else transactional_id


def ledger_topics(options: SinkOptions) -> list[str]:
    """The ledger topic, if there is a ledger; the sink creates it when it is first needed."""
    return [options.ledger_topic] if options.ledger_topic else []


def written_topics(options: SinkOptions) -> list[str]:
    """The known output topics, sorted, that of the dead letters included."""
    named = (options.topic, options.dead_letter_topic, *names(options.output_topics))
    return sorted({topic for topic in named if topic is not None})


def groups(options: SinkOptions) -> list[str]:
    """The groups to which the sink commits offsets: the source's, and the ledger's."""
    ledger = [options.ledger_group] if options.ledger_topic else []
    return [group for group in (options.group_id, *ledger) if group]


def internal_topics(options: SinkOptions) -> list[str]:
    """Kafka's internal topics that store what the sink commits."""
    return [
        *([OFFSETS_TOPIC] if options.group_id else []),
        *([TRANSACTIONS_TOPIC] if options.transactional_id else []),
    ]
