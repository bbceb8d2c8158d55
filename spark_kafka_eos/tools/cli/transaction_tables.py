"""How the command line shows transactions: as tables, and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, is_open
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.tools.cli.shown import moment
from spark_kafka_eos.tools.cli.terminal import Text
from spark_kafka_eos.tools.operators.survey import Ending, OpenPart, Survey, active_ids, producer_counts

_REASONS = 3  # of what did not answer, that are shown
STYLES = {
    Ending.OWNER: "green",
    Ending.COORDINATOR: "yellow",
    Ending.NOBODY: "bold red",
    Ending.UNKNOWN: "yellow",
}


# -- tables


def listing(survey: Survey, *, only_open: bool) -> RenderableType:
    """One row per transactional.id: the open ones first, by age."""
    table = _table("transactional id", "state", "producer", "node", right=("age", "left", "held"))
    for facts in _sorted(survey, only_open=only_open):
        offsets = survey.held_by(facts.transactional_id)
        table.add_row(
            Text(facts.transactional_id),
            Text(facts.state, "yellow" if facts.is_open else ""),
            Text(_producer(facts.producer_id, facts.epoch)),
            Text(str(facts.coordinator)),
            Text(ago(facts.age_ms) if facts.is_open else ""),
            Text(left(facts)),
            Text(_offsets(offsets) if facts.is_open else ""),
        )
    return Group(table, *_remarks(survey))


def description(survey: Survey, facts: TransactionFacts, with_table: LedgerEntry | None = None) -> RenderableType:
    """Everything about one transactional.id; `with_table`: the entry in its open transaction, if a table takes part."""
    lines = Table.grid(padding=(0, 2))
    for name, value in (
        ("transactional id", facts.transactional_id),
        ("state", facts.state),
        ("producer id, epoch", f"{facts.producer_id}, {facts.epoch}"),
        ("coordinator", f"broker {facts.coordinator}"),
        ("started", _started(facts)),
        ("timeout", facts.timeout + (f", {left(facts)} left" if left(facts) else "")),
        ("client", "unknown: Kafka does not store it"),
        *(() if with_table is None else [("table", _takes_part(with_table))]),
    ):
        lines.add_row(Text(name), Text(value))
    if not facts.is_open:
        return Group(lines, *_remarks(survey))
    return Group(lines, parts(survey, _parts_of(survey, facts)), *_remarks(survey))


def parts(survey: Survey, rows: Iterable[tuple[TopicPartition, OpenPart | None]]) -> Table:
    """One row per partition of an open transaction; None: its leader has nothing open, or did not answer."""
    table = _table("partition", "who ends it", right=("from", "held", "since", "stable", "end"))
    for tp, part in rows:
        if part is None:
            table.add_row(str(tp), "no answer" if tp in survey.unavailable else "no record yet")
            continue
        log_ends = part.log_ends
        table.add_row(
            Text(str(tp)),
            Text(WHO_ENDS[part.ending], STYLES[part.ending]),
            str(part.producer.start_offset),
            _offsets(part.held_offsets),
            "" if part.since_ms is None else f"{ago(survey.taken_ms - part.since_ms)} ago",
            *(("", "") if log_ends is None else (str(log_ends.last_stable_offset), str(log_ends.high_watermark))),
        )
    return table


def hanging(survey: Survey) -> RenderableType:
    """What hangs, with the command that ends it, and what may hang."""
    suspects = suspected(survey)
    table = _table("partition", "producer", "", right=("from", "last record", "held"))
    for part in suspects:
        producer = part.producer
        last = producer.last_timestamp_ms
        table.add_row(
            Text(str(part.partition)),
            Text(_producer(producer.producer_id, producer.epoch)),
            Text(part.ending, STYLES[part.ending]),
            str(producer.start_offset),
            "" if last is None else f"{ago(survey.taken_ms - last)} ago",
            _offsets(part.held_offsets),
        )
    parts: list[RenderableType] = [table] if suspects else []
    looked = f"{len(survey.producers)} partition{'' if len(survey.producers) == 1 else 's'} looked at"
    certain = len(survey.hanging)
    parts.append(Text(f"{certain} hanging transaction{'' if certain == 1 else 's'}; {looked}."))
    parts += [Text(part.end_command) for part in survey.hanging]
    if len(suspects) > certain:
        parts.append(
            Text(
                "Unknown: not every coordinator answered, or this principal may not describe every transactional id "
                "and the topic __transaction_state."
            )
        )
    return Group(*parts, *_remarks(survey))


def counts(survey: Survey) -> RenderableType:
    """KIP-98's counts; partitions without a producer are left out."""
    ids = _table("coordinator", "states", right=("transactional ids",))
    for node, states in sorted(active_ids(survey.listings).items()):
        ids.add_row(
            f"broker {node}", ", ".join(f"{n} {state}" for state, n in sorted(states.items())), str(states.total())
        )
    by_partition = _table("partition", right=("producer ids", "open", "held"))
    for tp, counted in sorted(producer_counts(survey.producers).items()):
        if counted.producer_ids:
            lag = _offsets(survey.log_ends[tp].lag if tp in survey.log_ends else None)
            by_partition.add_row(Text(str(tp)), str(counted.producer_ids), str(counted.open_transactions), lag)
    return Group(ids, by_partition, *_remarks(survey))


def _takes_part(entry: LedgerEntry) -> str:
    return (
        f"it is prepared, with batch {entry.batch_id} of query {entry.query_id}, and its table may have that batch: "
        "kafka-eos query show, with --table, tells"
    )


WHO_ENDS = {
    Ending.OWNER: "its owner",
    Ending.COORDINATOR: "coordinator",
    Ending.NOBODY: "nobody: it hangs",
    Ending.UNKNOWN: "unknown",
}


def suspected(survey: Survey) -> list[OpenPart]:
    """What hangs, or may hang."""
    return [part for part in survey.open_parts if part.ending in (Ending.NOBODY, Ending.UNKNOWN)]


def left(facts: TransactionFacts) -> str:
    """The time until the coordinator aborts it, if there is one."""
    milliseconds = facts.timeout_left_ms
    if milliseconds is None:
        return ""
    return duration(milliseconds) if milliseconds > 0 else "none"


def ago(milliseconds: int | None) -> str:
    """An age in words; clocks may differ."""
    return "" if milliseconds is None else duration(max(0, milliseconds))


def _sorted(survey: Survey, *, only_open: bool) -> list[TransactionFacts]:
    others = [] if only_open else [facts for facts in survey.transactions.values() if not facts.is_open]
    return [*survey.open_transactions, *sorted(others, key=lambda facts: facts.transactional_id)]


def _parts_of(survey: Survey, facts: TransactionFacts) -> Iterator[tuple[TopicPartition, OpenPart | None]]:
    """Every partition that the coordinator or a leader has in the transaction."""
    open_parts = {part.partition: part for part in survey.parts_of(facts.transactional_id)}
    yield from ((tp, open_parts.get(tp)) for tp in sorted({*facts.partitions, *open_parts}))


def _remarks(survey: Survey) -> Iterator[Text]:
    described = {*survey.transactions}
    lacking = [
        listing for listing in survey.listings if is_open(listing.state) and listing.transactional_id not in described
    ]
    if lacking:
        yield Text(f"{len(lacking)} more open transactions could not be described.")
    reasons = [f"Broker {node} did not answer: {why}." for node, why in sorted(survey.silent.items())]
    reasons += [f"Topics may be missing: {why}." for why in survey.left_out]
    reasons += [f"Not looked at: {why}." for why in dict.fromkeys(survey.unavailable.values())]
    yield from map(Text, reasons[:_REASONS])
    if len(reasons) > _REASONS:
        yield Text(f"{len(reasons) - _REASONS} more did not answer.")


def _table(*left_columns: str, right: Sequence[str]) -> Table:
    columns = [Column(name, overflow="fold", no_wrap=name == "state") for name in left_columns]
    return Table(*columns, *(Column(name, justify="right", overflow="fold") for name in right))


def _started(facts: TransactionFacts) -> str:
    if facts.started_ms is None:
        return "no transaction yet"
    return moment(facts.started_ms) + (f" UTC, {ago(facts.age_ms)} ago" if facts.is_open else " UTC")


def _producer(producer_id: int, epoch: int) -> str:
    return f"{producer_id}/{epoch}"


def _offsets(count: int | None) -> str:
    return "unknown" if count is None else str(count)


# -- JSON


def survey_json(survey: Survey, *, only_open: bool) -> Mapping[str, Any]:
    """The transactions, and what did not answer."""
    return {
        "at_ms": survey.taken_ms,
        "transactions": [transaction_json(survey, facts) for facts in _sorted(survey, only_open=only_open)],
        **_unanswered(survey),
    }


def transaction_json(
    survey: Survey, facts: TransactionFacts, with_table: LedgerEntry | None = None
) -> Mapping[str, Any]:
    """One transaction. `client` is null, because Kafka does not store it."""
    batch = {} if with_table is None else {"query_id": with_table.query_id, "batch_id": with_table.batch_id}
    return {
        **({"table": batch} if batch else {}),
        "transactional_id": facts.transactional_id,
        "state": facts.state,
        "producer_id": facts.producer_id,
        "epoch": facts.epoch,
        "coordinator": facts.coordinator,
        "client": None,
        "timeout_ms": facts.timeout_ms,
        "started_ms": facts.started_ms,
        "age_ms": facts.age_ms if facts.is_open else None,
        "timeout_left_ms": facts.timeout_left_ms,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition} | ({} if part is None else _part_json(part))
            for tp, part in _parts_of(survey, facts)
        ],
    }


def hanging_json(survey: Survey) -> Mapping[str, Any]:
    """What hangs, or may hang."""
    return {
        "at_ms": survey.taken_ms,
        "partitions_looked_at": len(survey.producers),
        "hanging": [part_json(part) for part in suspected(survey)],
        **_unanswered(survey),
    }


def part_json(part: OpenPart) -> Mapping[str, Any]:
    """A transaction's part in one partition, with its producer."""
    producer = part.producer
    return {
        "topic": part.partition.topic,
        "partition": part.partition.partition,
        "transactional_id": part.facts.transactional_id if part.facts else None,
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_timestamp_ms": producer.last_timestamp_ms,
        **_part_json(part),
    }


def counts_json(survey: Survey) -> Mapping[str, Any]:
    """KIP-98's counts."""
    return {
        "at_ms": survey.taken_ms,
        "coordinators": [
            {"coordinator": node, "transactional_ids": states.total(), "states": dict(sorted(states.items()))}
            for node, states in sorted(active_ids(survey.listings).items())
        ],
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "producer_ids": counted.producer_ids,
                "open_transactions": counted.open_transactions,
                "held_offsets": survey.log_ends[tp].lag if tp in survey.log_ends else None,
            }
            for tp, counted in sorted(producer_counts(survey.producers).items())
        ],
        **_unanswered(survey),
    }


def _part_json(part: OpenPart) -> dict[str, Any]:
    return {
        "ending": part.ending.value,
        "start_offset": part.producer.start_offset,
        "held_offsets": part.held_offsets,
        "since_ms": part.since_ms,
        "last_stable_offset": None if part.log_ends is None else part.log_ends.last_stable_offset,
        "high_watermark": None if part.log_ends is None else part.log_ends.high_watermark,
    }


def _unanswered(survey: Survey) -> Mapping[str, Any]:
    return {
        "silent_brokers": {str(node): why for node, why in sorted(survey.silent.items())},
        "unread_partitions": {str(tp): why for tp, why in sorted(survey.unavailable.items())},
        "topics_left_out": list(survey.left_out),
    }
