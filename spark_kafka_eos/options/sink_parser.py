"""From what the user writes to `SinkOptions`, and the constraints between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.client import client_options, select
from spark_kafka_eos.options.outputs import OutputTopic, names, outputs_to_text
from spark_kafka_eos.options.reserved import LEDGER_TOPIC, reserved_topics
from spark_kafka_eos.options.sink import SinkOptions
from spark_kafka_eos.options.table import SINK, parse_options, say_without_effect
from spark_kafka_eos.options.unused import WriteKind, unused


def sink_options(
    options: Mapping[str, object], write: WriteKind | None = None, *, default_transactional_id: str | None = None
) -> SinkOptions:
    """Parse a writer's options; names are case-insensitive. Raises ConfigurationError naming the wrong option.

    If it is known what the `write` is, an option without effect on it is refused, or logged once as a warning.
    `default_transactional_id` is for a batch write that is never repeated; `txnAppId`, which identifies a repeatable
    one, takes precedence.
    """
    parsed = parse_options(options, SINK)
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
        present, missing = ("txnAppId", "txnVersion") if "txn_app_id" in values else ("txnVersion", "txnAppId")
        raise ConfigurationError(present, f"requires {missing}")
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
        raise ConfigurationError("topic", f"{topic} is not in outputTopics ({outputs_to_text(output_topics)})")


def output_topics_of(options: SinkOptions, declaration: str | Iterable[str] | None) -> tuple[OutputTopic, ...]:
    """What one transaction may write: what the writer may, or its own `declaration`, in the option's form.

    Raises ConfigurationError for none, and for one that the writer may not write.
    """
    if declaration is None:
        return options.output_topics
    text = declaration if isinstance(declaration, str) else ",".join(declaration)
    declared: tuple[OutputTopic, ...] = select(parse_options({"outputTopics": text}, SINK), SinkOptions)[
        "output_topics"
    ]
    others = [output for output in declared if options.output_topics and not output.within(options.output_topics)]
    if others:
        raise ConfigurationError(
            "outputTopics",
            f"a transaction declares {outputs_to_text(others)}, but the writer only "
            f"{outputs_to_text(options.output_topics)}",
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
        if (why := reserved_topics(ledger_topic).reason(topic)) is not None:
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
    for output in declared:
        if output.topic == aside and output.partitions is not None:
            raise ConfigurationError(
                "outputTopics",
                f"declares only some partitions of the dead-letter topic ({output})",
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
