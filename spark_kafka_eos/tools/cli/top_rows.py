"""What `kafka-eos top` shows: from one look at a cluster to the rows of its tables, sorted, filtered and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable, open_in
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.tools.cli.query_tables import transaction_words
from spark_kafka_eos.tools.cli.transaction_tables import STYLES, WHO_ENDS, ago, left
from spark_kafka_eos.tools.operators.known import least
from spark_kafka_eos.tools.operators.outputs import outputs
from spark_kafka_eos.tools.operators.status import QueryStatus
from spark_kafka_eos.tools.operators.survey import Ending, OpenPart, Survey

MOST_ROWS = 200  # of a table: a screen is for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One look at a cluster, at `survey.taken_ms`. `remarks`: what it does not cover, and why."""

    survey: Survey
    queries: Sequence[QueryStatus] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`values` are what the columns are sorted by; None comes last."""

    key: str
    cells: tuple[str, ...]
    values: tuple[Any, ...]
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A table's columns, the one that it is first sorted by, and in which direction."""

    names: tuple[str, ...]
    sort: int
    reverse: bool = True
    numbers: frozenset[str] = field(default_factory=frozenset)


TRANSACTIONS = Columns(
    names=("transactional id", "state", "producer", "node", "age", "left", "held", "partitions"),
    sort=4,
    numbers=frozenset({"node", "age", "left", "held", "partitions"}),
)
PARTITIONS = Columns(
    names=("partition", "held", "since", "open", "who ends the oldest", "its owner"),
    sort=1,
    numbers=frozenset({"held", "since", "open"}),
)
QUERIES = Columns(
    names=("query", "batch", "committed", "unread", "held", "output held", "transaction"),
    sort=3,
    numbers=frozenset({"batch", "committed", "unread", "held", "output held"}),
)


def transaction_rows(picture: Picture) -> list[Row]:
    """The open transactions of the coordinators."""
    return [_transaction_row(picture.survey, facts) for facts in picture.survey.open_transactions]


def partition_rows(picture: Picture) -> list[Row]:
    """The partitions in which something is open."""
    survey = picture.survey
    oldest = {part.partition: part for part in survey.open_parts if part.holds}
    return [_partition_row(survey, part) for part in oldest.values()]


def query_rows(picture: Picture) -> list[Row]:
    """The queries that have committed to the cluster."""
    return [_query_row(query, picture.survey) for query in picture.queries]


def chosen(rows: Iterable[Row], *, text: str, column: int, reverse: bool) -> list[Row]:
    """The rows that contain `text` in a cell, sorted by a column."""
    pattern = text.lower()
    matching = sorted(
        (row for row in rows if any(pattern in cell.lower() for cell in row.cells)), key=lambda row: row.key
    )
    sortable = [row for row in matching if row.values[column] is not None]
    unknown = [row for row in matching if row.values[column] is None]
    return [*sorted(sortable, key=lambda row: row.values[column], reverse=reverse), *unknown]


def remarks(picture: Picture) -> list[str]:
    """What is missing in the picture, in a few words each."""
    survey = picture.survey
    texts = [f"broker {node} does not answer" for node in sorted(survey.silent)]
    if survey.unavailable:
        texts.append(f"{len(survey.unavailable)} partitions cannot be read")
    return [*texts, *picture.remarks]


def _transaction_row(survey: Survey, facts: TransactionFacts) -> Row:
    offsets = survey.held_by(facts.transactional_id)
    time_left = facts.timeout_left_ms
    overdue = time_left is not None and time_left <= 0
    return Row(
        key=facts.transactional_id,
        cells=(
            facts.transactional_id,
            facts.state,
            f"{facts.producer_id}/{facts.epoch}",
            str(facts.coordinator),
            ago(facts.age_ms),
            left(facts),
            "unknown" if offsets is None else str(offsets),
            str(len(facts.partitions)),
        ),
        values=(
            facts.transactional_id,
            facts.state,
            (facts.producer_id, facts.epoch),
            facts.coordinator,
            facts.age_ms,
            time_left,
            offsets,
            len(facts.partitions),
        ),
        style="bold red" if overdue else "" if facts.state == "Ongoing" else "yellow",
    )


def _partition_row(survey: Survey, part: OpenPart) -> Row:
    tp, since = part.partition, part.since_ms
    offsets = part.held_offsets
    age = None if since is None else max(0, survey.taken_ms - since)
    owner = f"producer {part.producer.producer_id}" if part.facts is None else part.facts.transactional_id
    count = len(open_in(survey.producers[tp]))
    return Row(
        key=str(tp),
        cells=(
            str(tp),
            "unknown" if offsets is None else str(offsets),
            ago(age),
            str(count),
            WHO_ENDS[part.ending],
            owner,
        ),
        values=(tp, offsets, age, count, part.ending.value, owner),
        style="" if part.ending is Ending.OWNER else STYLES[part.ending],
    )


def _query_row(query: QueryStatus, survey: Survey) -> Row:
    began = "began " if query.buckets else ""
    committed = None if query.last is None else max(0, survey.taken_ms - query.last.record.timestamp_ms)
    written = least(output.held_offsets for output in outputs(query.outputs, survey))
    batch = None if query.entry is None else query.entry.batch_id
    match query.owner:
        case _ if query.buckets:
            transaction = transaction_words(query)
        case TransactionFacts(state=state):
            transaction = state
        case Unavailable(reason=reason):
            transaction = reason
        case None:
            transaction = "expired"
    return Row(
        key=query.transactional_id,
        cells=(
            query.transactional_id,
            "?" if batch is None else str(batch),
            "" if committed is None else f"{began}{duration(committed)} ago",
            "unknown" if query.unread is None else str(query.unread),
            "unknown" if query.held is None else str(query.held),
            "unknown" if written is None else str(written),
            transaction,
        ),
        values=(query.transactional_id, batch, committed, query.unread, query.held, written, transaction),
    )
