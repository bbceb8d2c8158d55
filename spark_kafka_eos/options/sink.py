"""The sink's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_kafka_eos.auth.secret import Secret
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.client import ClientOptions, client_options, select
from spark_kafka_eos.options.outputs import OutputTopic, names, shown
from spark_kafka_eos.options.parsers import Limit
from spark_kafka_eos.options.reserved import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, why_reserved
from spark_kafka_eos.options.table import LEDGER_TOPIC, SINK, say_without_effect, take
from spark_kafka_eos.options.unused import WriteKind, unused

LEDGER_GROUP = ".ledger"  # after the transactional.id: the group that holds the pointer, and nothing else
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
    `source_clusters` are the cluster ids of the query's sources, one for all or one
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
    txn_app_id: str | None = None
    txn_version: int | None = None
    ledger_key: tuple[Secret, ...] = ()

    @property
    def ledger_group(self) -> str:
        """The consumer group that holds the ledger's pointer, and nothing else."""
        return self.transactional_id + LEDGER_GROUP


def sink_options(
    options: Mapping[str, object], write: WriteKind | None = None, *, default_transactional_id: str | None = None
) -> SinkOptions:
    """Parse a writer's options; names are case-insensitive. Raises ConfigurationError naming the wrong option.

    If it is known what the `write` is, an option without effect on it is refused, or logged once as a warning.
    `default_transactional_id` is for a batch write that is never repeated; `txnAppId`, which identifies a repeatable
    one, takes precedence.
    """
    parsed = take(options, SINK)
    for row in () if write is None else unused(parsed, write):
        where = f"{row.why} (this is {row.write.value.replace('`', '')})"
        if row.refused:
            raise ConfigurationError(row.option, f"has no effect here: {where}", action="Remove the option.")
        say_without_effect(row.option, where)
    client = client_options(parsed)
    values = select(parsed, SinkOptions)
    transactional = values.get("delivery_guarantee") != "at-least-once"
    if transactional:
        if default_transactional_id is not None:
            values.setdefault("transactional_id", values.get("txn_app_id", default_transactional_id))
        _require_transaction(values)
    topic, allowed = values.get("topic"), values.get("output_topics", ())
    require_declared(topic, allowed)
    if ("txn_app_id" in values) != ("txn_version" in values):
        given, missing = ("txnAppId", "txnVersion") if "txn_app_id" in values else ("txnVersion", "txnAppId")
        raise ConfigurationError(given, f"requires {missing}")
    _check_dead_letters(values)
    values.setdefault("transactional_id", "")
    values.setdefault("group_id", values["transactional_id"])
    # A batch write that cannot be repeated needs no ledger entry.
    remembered = transactional and (default_transactional_id is None or "txn_app_id" in values)
    values["ledger_topic"] = values.get("ledger_topic", LEDGER_TOPIC) if remembered else ""
    _check_written("topic", [topic] if topic else [], values["ledger_topic"])
    _check_written("outputTopics", names(allowed), values["ledger_topic"])
    _check_written(
        "deadLetterTopic", [aside] if (aside := values.get("dead_letter_topic")) else [], values["ledger_topic"]
    )
    sink = SinkOptions(client=client, **values)
    if sink.transactional_id and sink.group_id == sink.ledger_group:
        raise ConfigurationError("kafka.group.id", f"{sink.group_id} is reserved for the ledger")
    return sink


def require_declared(topic: str | None, output_topics: Sequence[OutputTopic]) -> None:
    """Raise ConfigurationError for a topic that is not among the declared ones, if any are declared."""
    if topic and output_topics and topic not in names(output_topics):
        raise ConfigurationError("topic", f"{topic} is not in outputTopics ({shown(output_topics)})")


def output_topics_of(options: SinkOptions, given: str | Iterable[str] | None) -> tuple[OutputTopic, ...]:
    """What one transaction may write: what the writer may, or what is `given` for it, in the option's form.

    Raises ConfigurationError for none, and for one that the writer may not write.
    """
    if given is None:
        return options.output_topics
    text = given if isinstance(given, str) else ",".join(given)
    declared: tuple[OutputTopic, ...] = select(take({"outputTopics": text}, SINK), SinkOptions)["output_topics"]
    others = [each for each in declared if options.output_topics and not each.within(options.output_topics)]
    if others:
        raise ConfigurationError(
            "outputTopics",
            f"a transaction declares {shown(others)}, but the writer only {shown(options.output_topics)}",
            action="Add it to the writer's outputTopics, or correct the transaction's.",
        )
    _check_written("outputTopics", names(declared), options.ledger_topic)
    _check_partitions_of_dead_letters(options.dead_letter_topic, declared)
    return declared


def _check_written(option: str, topics: Iterable[str], ledger_topic: str) -> None:
    """Raise ConfigurationError for a topic that no record may go to."""
    for topic in topics:
        if topic == ledger_topic:
            raise _writes_to_the_ledger(topic)
        if (why := why_reserved(topic, ledger_topic)) is not None:
            raise ConfigurationError(option, f"names {topic}, but that {why}", action="Name another topic.")


def _writes_to_the_ledger(topic: str) -> ConfigurationError:
    return ConfigurationError(
        "ledgerTopic",
        f"this query writes to {topic}, but the ledger needs a compacted topic of its own",
        action=f"Omit it to use the default, {LEDGER_TOPIC}.",
    )


def _check_dead_letters(values: Mapping[str, Any]) -> None:
    aside = values.get("dead_letter_topic")
    if aside is None and "max_dead_letters" in values:
        raise ConfigurationError("maxDeadLetters", "requires deadLetterTopic")
    if aside is not None and aside == values.get("topic"):
        raise ConfigurationError(
            "deadLetterTopic",
            f"{aside} is the query's output topic",
            action="Give the dead letters a topic of their own.",
        )
    _check_partitions_of_dead_letters(aside, values.get("output_topics", ()))


def _check_partitions_of_dead_letters(aside: str | None, declared: Iterable[OutputTopic]) -> None:
    """A dead letter's partition follows from its key, and there is nowhere else to put one that may not go there."""
    for each in declared:
        if each.topic == aside and each.partitions is not None:
            raise ConfigurationError(
                "outputTopics",
                f"declares only some partitions of the dead-letter topic ({each})",
                action="Omit the dead-letter topic: outputTopics need not list it.",
            )


def _require_transaction(values: Mapping[str, object]) -> None:
    if "transactional_id" not in values:
        raise ConfigurationError(
            "kafka.transactional.id",
            "is required for exactly-once",
            action="Set it to a name that this query always uses and no other query uses.",
        )
    if values.get("enable_idempotence", "required") != "required":
        raise ConfigurationError(
            "kafka.enable.idempotence",
            "exactly-once needs true or required",
            action="Omit it, or set deliveryGuarantee to at-least-once.",
        )


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
