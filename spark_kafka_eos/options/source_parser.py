"""From what the user writes to `SourceOptions`, and the constraints between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.options.client import client_options, select
from spark_kafka_eos.options.parsers import LATEST
from spark_kafka_eos.options.reserved import LEDGER, LEDGER_TOPIC
from spark_kafka_eos.options.source import SinkLedger, SourceOptions, Timestamps
from spark_kafka_eos.options.table import SINK, SOURCE, field_of, parse_options

_SINK = "sink."  # before the options that locate the ledger of the query's sink
_WHAT = ("subscribe", "subscribePattern", "assign")


def source_options(options: Mapping[str, object], *, streaming: bool | None = None) -> SourceOptions:
    """Parse a reader's options; names are case-insensitive. Raises ConfigurationError naming the wrong option.

    As in the built-in source, a streaming read starts at `latest`, a batch read at `earliest`.
    If `streaming` is None, the kind of read is not known yet (Spark asks for the schema first), and options of one kind
    are not checked. Precedence is as in the built-in source: timestamp, timestamps by partition, offsets.
    """
    own, of_sink = _split(options)
    parsed = parse_options(own, SOURCE)
    client = client_options(parsed)
    what = [name for name in _WHAT if field_of(name) in parsed]
    if len(what) != 1:
        problem = f"{' and '.join(what)} cannot be combined" if what else "the topics to read are not set"
        choose = f"Set one of {', '.join(_WHAT)}."
        raise ConfigurationError(what[0] if what else "subscribe", problem, action=choose)
    values = select(parsed, SourceOptions)
    values["sink"] = _sink_ledger(of_sink, client)
    values["starting_offsets"] = _start(parsed, "earliest" if streaming is False else "latest")
    values["ending_offsets"] = _end(parsed)
    _check_start(values, streaming=streaming)
    _check_commits(values, streaming=streaming)
    _check_end(values, parsed, streaming=streaming)
    least, most = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        raise ConfigurationError("minOffsetsPerTrigger", f"{least} is greater than maxOffsetsPerTrigger, {most}")
    values["ledger_topics"] = _ledger_topics(parsed, values["sink"], client)
    _check_topics(what[0], values)
    return SourceOptions(client=client, **values)


def _start(parsed: Mapping[str, Any], default: str) -> object:
    when_none = (
        {"if_none": parsed["starting_offsets_by_timestamp_strategy"]}
        if "starting_offsets_by_timestamp_strategy" in parsed
        else {}
    )
    if "starting_timestamp" in parsed:
        return Timestamps(everywhere=parsed["starting_timestamp"], **when_none)
    if "starting_offsets_by_timestamp" in parsed:
        return Timestamps(partitions=parsed["starting_offsets_by_timestamp"], **when_none)
    return parsed.get("starting_offsets", default)


def _end(parsed: Mapping[str, Any]) -> object:
    if "ending_timestamp" in parsed:
        return Timestamps(everywhere=parsed["ending_timestamp"], if_none="latest")
    if "ending_offsets_by_timestamp" in parsed:
        return Timestamps(partitions=parsed["ending_offsets_by_timestamp"], if_none="latest")
    return parsed.get("ending_offsets", "latest")


def _check_start(values: Mapping[str, Any], *, streaming: bool | None) -> None:
    start = values["starting_offsets"]
    if str(start).startswith("committed") and values.get("group_id") is None and values["sink"] is None:
        raise ConfigurationError(
            "startingOffsets",
            "committed requires kafka.group.id, to start at the group's offsets, or sink.kafka.transactional.id, to "
            "start at the sink's ledger entry",
        )
    if streaming is False and (start == "latest" or (isinstance(start, Mapping) and -1 in start.values())):
        raise ConfigurationError("startingOffsets", "a batch read cannot start at the latest offset: it would be empty")
    strategy = values.get("starting_offsets_strategy")
    if strategy is not None and not isinstance(start, Mapping):
        raise ConfigurationError(
            "startingOffsetsStrategy", "applies only to startingOffsets that list partitions in JSON"
        )
    if streaming is False and strategy == "latest":
        raise ConfigurationError(
            "startingOffsetsStrategy", "a batch read cannot start at the latest offset: it would be empty"
        )
    if isinstance(start, Mapping) and (assigned := values.get("assign")) and (stray := set(start) - set(assigned)):
        raise ConfigurationError("startingOffsets", f"{min(stray)} is not in assign")


def _ledger_topics(parsed: Mapping[str, Any], sink: SinkLedger | None, own: ClientOptions) -> frozenset[str]:
    """The ledger topics on the source's cluster that are known by name, unless they are to be read."""
    if parsed.get("include_ledger_topics"):
        return frozenset()
    return frozenset({LEDGER_TOPIC} if sink is None or sink.client != own else {LEDGER_TOPIC, sink.topic})


def _check_topics(option: str, values: Mapping[str, Any]) -> None:
    named = {*values.get("subscribe", ()), *(tp.topic for tp in values.get("assign", ()))}
    if ledgers := sorted(named & values["ledger_topics"]):
        raise ConfigurationError(
            option,
            f"names {ledgers[0]}, but that {LEDGER}: its records are no data, and a query whose sink keeps its ledger "
            "there would never come to an end",
            action="Leave it out. If you mean it, set includeLedgerTopics=true.",
        )


def _check_end(values: Mapping[str, Any], parsed: Mapping[str, Any], *, streaming: bool | None) -> None:
    end = values["ending_offsets"]
    is_latest = end == "latest" or (isinstance(end, Mapping) and LATEST in end.values())
    if streaming and "ending_offsets" in parsed and is_latest:
        raise ConfigurationError(
            "endingOffsets",
            "the latest offset does not bound a streaming read: it moves on",
            action="Use trigger(availableNow=True) to stop at the current end of the topics.",
        )


def _check_commits(values: Mapping[str, Any], *, streaming: bool | None) -> None:
    if not values.get("commit_offsets"):
        return
    if values.get("group_id") is None:
        raise ConfigurationError("commitOffsets", "requires kafka.group.id, the group to commit to")
    if streaming is False:
        raise ConfigurationError(
            "commitOffsets", "is only supported in a streaming read: Spark does not report when a batch read is done"
        )


def _split(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Splits a source's options into its own and those of its sink (`sink.…`), without the prefix."""
    own = {name: value for name, value in options.items() if not name.lower().startswith(_SINK)}
    sink = {name[len(_SINK) :]: value for name, value in options.items() if name.lower().startswith(_SINK)}
    return own, sink


def _sink_ledger(options: Mapping[str, object], own: ClientOptions) -> SinkLedger | None:
    """Build from a sink's options; None if there are none. Without brokers, the sink is on the source's `own` cluster.

    Raises ConfigurationError with the name of the wrong option.
    """
    if not options:
        return None
    parsed: dict[str, Any] = parse_options(options, SINK)
    if "transactional_id" not in parsed:
        raise ConfigurationError(f"{_SINK}kafka.transactional.id", "is required if other sink.… options are set")
    return SinkLedger(
        client=client_options(parsed) if "bootstrap_servers" in parsed else own,
        transactional_id=str(parsed["transactional_id"]),
        topic=str(parsed.get("ledger_topic", LEDGER_TOPIC)),
        keys=parsed.get("ledger_key", ()),
    )
