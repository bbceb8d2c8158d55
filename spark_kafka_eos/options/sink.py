"""The sink's options: where to write, under which name, how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.client import ClientOptions, client_options, select
from spark_kafka_eos.options.ledger import LEDGER_TOPIC
from spark_kafka_eos.options.table import SINK, take


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Sizes in bytes, times in milliseconds.

    `transactional_id` and `group_id` are never empty with exactly-once; with at-least-once each is `""` unless given.
    `ledger_topic` is empty where no ledger is kept. `topic` None: each row names its own. `output_topics` empty: any
    topic may be written. `source_clusters`: the cluster ids of the query's sources, one for all or one for each, ""
    standing for the sink's own; empty: all are on the sink's.
    """

    client: ClientOptions
    transactional_id: str
    ledger_topic: str
    group_id: str
    topic: str | None = None
    output_topics: tuple[str, ...] = ()
    append_mode: Literal["auto", "driver", "executors"] = "auto"
    staging_dir: str | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    max_request_size: int = 1_048_576
    transaction_timeout_ms: int = 60_000
    max_tries: int = 3
    preflight: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    delivery_guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    partitioner: Literal["murmur2", "consistent", "roundrobin"] = "murmur2"
    checkpoint_location: str | None = None
    take_over_query: str | None = None
    resolve: str | None = None
    source_clusters: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    txn_app_id: str | None = None
    txn_version: int | None = None

    @property
    def ledger_group(self) -> str:
        """The consumer group that holds the ledger's pointer, and nothing else."""
        return f"{self.transactional_id}.ledger"


def sink_options(options: Mapping[str, object], *, default_transactional_id: str | None = None) -> SinkOptions:
    """What a writer's options mean; keys in any case. Raises ConfigurationError naming the option that is wrong.

    `default_transactional_id` is a batch write's, whose name nobody has to know again; `txnAppId`, which says that
    somebody has, goes before it.
    """
    found = take(options, SINK)
    client = client_options(found)
    values = select(found, SinkOptions)
    transactional = values.get("delivery_guarantee") != "at-least-once"
    if transactional:
        if default_transactional_id is not None:
            values.setdefault("transactional_id", values.get("txn_app_id", default_transactional_id))
        _require_transaction(values)
    topic, allowed = values.get("topic"), values.get("output_topics", ())
    if topic and allowed and topic not in allowed:
        raise ConfigurationError("topic", f"{topic} is not among outputTopics ({', '.join(allowed)})")
    if ("txn_app_id" in values) != ("txn_version" in values):
        given, missing = ("txnAppId", "txnVersion") if "txn_app_id" in values else ("txnVersion", "txnAppId")
        raise ConfigurationError(given, f"means nothing without {missing}")
    values.setdefault("transactional_id", "")
    values.setdefault("group_id", values["transactional_id"])
    # A batch write that nobody can ask for again has nothing to remember.
    remembered = transactional and (default_transactional_id is None or "txn_app_id" in values)
    values["ledger_topic"] = values.get("ledger_topic", LEDGER_TOPIC) if remembered else ""
    if values["ledger_topic"] in {topic, *allowed}:
        raise ConfigurationError(
            "ledgerTopic",
            f"{values['ledger_topic']} is written by this query: the ledger needs a compacted topic of its own",
            action=f"Leave it out; the default is {LEDGER_TOPIC}.",
        )
    sink = SinkOptions(client=client, **values)
    if sink.transactional_id and sink.group_id == sink.ledger_group:
        raise ConfigurationError("kafka.group.id", f"{sink.group_id} is the ledger's own group")
    return sink


def _require_transaction(values: Mapping[str, object]) -> None:
    if "transactional_id" not in values:
        raise ConfigurationError(
            "kafka.transactional.id",
            "is required for exactly-once",
            action="Choose a name that stays the same for this query, and that no other query uses.",
        )
