"""`kafka-eos query resolve`: what ledger and checkpoint say, and what can be done about a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.diagnosis import Diagnosis
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.tools.cli.terminal import Text

_VERDICTS = {
    "Write": "written",
    "Again": "appended to Kafka again",
    "Skip": "skipped",
    "Repeat": "skipped",
    "Refuse": "refused",
}


def diagnosis_view(diagnosis: Diagnosis, options: SinkOptions, table: Iterable[tuple[str, str]] = ()) -> RenderableType:
    """Both sides, the verdict, and the choices, each on a line of its own that can be copied; `table` are further
    lines.
    """
    sides = Table.grid(Column(style="bold"), Column(overflow="fold"), padding=(0, 2))
    sides.add_row("ledger", Text(_ledger(diagnosis.entry)))
    sides.add_row("query" if options.txn_app_id else "checkpoint", Text(_batch(diagnosis, options)))
    sides.add_row("owner", Text(owner_words(diagnosis.owner)))
    for name, text in table:
        sides.add_row(name, Text(text))
    parts: list[RenderableType] = [sides]
    if diagnosis.batch is not None and (rows := list(_rows(diagnosis.entry, diagnosis.batch))):
        parts.append(_offsets(rows, planned=diagnosis.planned))
    return Group(*parts, *_verdict(diagnosis))


def owner_words(owner: TransactionFacts | Unavailable | None) -> str:
    """Who owns a transactional id, by what its coordinator says."""
    match owner:
        case TransactionFacts():
            return f"producer {owner.producer_id}, epoch {owner.epoch}: {state_words(owner)}"
        case Unavailable(reason=reason, grant=grant):
            return f"unknown: {reason}" + (f" (needs {grant})" if grant else "")
    return "nobody: the transactional id is new, or has expired on its coordinator, which does no harm"


def state_words(owner: TransactionFacts | Unavailable | None) -> str:
    """Kafka's name of the state, and for how long a transaction has been open."""
    match owner:
        case TransactionFacts(age_ms=int(age_ms), is_open=True):
            return f"{owner.state}, {duration(age_ms)}"
        case TransactionFacts():
            return owner.state
        case Unavailable():
            return "unknown"
    return "expired"


def _ledger(entry: LedgerEntry | UnreadableEntry | None) -> str:
    match entry:
        case LedgerEntry():
            incomplete = ", incomplete" if entry.incomplete else ""
            return f"batch {entry.batch_id} of query {entry.query_id} is committed (number {entry.serial}{incomplete})"
        case UnreadableEntry():
            return entry.description
    return "nothing is committed under this transactional id"


def _batch(diagnosis: Diagnosis, options: SinkOptions) -> str:
    if diagnosis.batch is None:
        if options.checkpoint_location is None:
            return "not known: give --checkpoint-location"
        return f"no batch is planned in {options.checkpoint_location}: it is new, or not the query's"
    batch = diagnosis.batch
    if options.txn_app_id is not None:
        return f"version {batch.batch_id} of {batch.query_id!r} is to be written"
    state = "is planned and not done" if diagnosis.planned else "comes next, and is not planned yet"
    return f"batch {batch.batch_id} of query {batch.query_id} {state}"


def _rows(
    entry: LedgerEntry | UnreadableEntry | None, batch: MicroBatch
) -> Iterator[tuple[TopicPartition, int | None, int | None, int | None]]:
    """Of each partition: where the ledger ended, where the batch starts and where it ends."""
    sources = (entry.ends if isinstance(entry, LedgerEntry) else None) or ()
    ranges = batch.sources
    for number in range(max(len(sources), len(ranges))):
        ended: SourceProgress | None = sources[number] if number < len(sources) else None
        read: SourceRange | None = ranges[number] if number < len(ranges) else None
        before = {} if ended is None else ended.offsets
        start = (read and read.start) or {}
        end = {} if read is None else read.end
        for tp in sorted({*before, *start, *end}):
            yield tp, before.get(tp), start.get(tp), end.get(tp)


def _offsets(rows: list[tuple[TopicPartition, int | None, int | None, int | None]], *, planned: bool) -> Table:
    names = ("ledger ended at", "batch starts at", "batch ends at")
    table = Table(Column("partition", overflow="fold"), *(Column(name, justify="right") for name in names))
    for tp, ended, start, end in rows:
        differs = ended is not None and start is not None and ended != start
        texts = [Text("-" if at is None else str(at)) for at in (ended, start, end if planned else None)]
        table.add_row(Text(str(tp)), *texts, style="yellow" if differs else None)
    return table


def _verdict(diagnosis: Diagnosis) -> Iterator[Text]:
    refusal = diagnosis.verdict
    if refusal is None:
        return
    would_be = "In real time, the batch would be" if diagnosis.in_real_time else "The batch would be"
    if not isinstance(refusal, Refuse):
        yield Text(f"{would_be} {_VERDICTS[type(refusal).__name__]}: {refusal.reason}.", style="green")
        return
    yield Text(f"{would_be} refused: {refusal.reason}.", style="bold red")
    yield Text(f"{refusal.meaning}.")
    if refusal.action:
        yield Text(f"\n{refusal.action}")
    if not diagnosis.planned:
        yield Text("\nThe words for `resolve` depend on the batch, which is not planned yet: start the query once.")
    elif refusal.choices:
        yield Text("\nTo keep this checkpoint and its state, set what you know to be true as the sink's option:")
        for word, effect in refusal.choices.items():
            # Never broken, so that it can be copied.
            yield Text(f"\nresolve='{word}'", style="bold", no_wrap=True, overflow="ignore")
            yield Text(f"{effect}.")


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same as plain values."""
    batch, verdict = diagnosis.batch, diagnosis.verdict
    return {
        "ledger": _ledger(diagnosis.entry),
        "batch": None if batch is None else {
            "query_id": batch.query_id, "batch_id": batch.batch_id, "planned": diagnosis.planned
        },
        "offsets": [] if batch is None else [
            {"topic": tp.topic, "partition": tp.partition, "ledger": ended, "start": start, "end": end}
            for tp, ended, start, end in _rows(diagnosis.entry, batch)
        ],
        "real_time": diagnosis.in_real_time,
        "verdict": None if verdict is None else _VERDICTS[type(verdict).__name__],
        "reason": None if verdict is None else verdict.reason,
        "meaning": verdict.meaning if isinstance(verdict, Refuse) else None,
        "action": verdict.action if isinstance(verdict, Refuse) else None,
        "resolve": verdict.choices if isinstance(verdict, Refuse) and diagnosis.planned else {},
    }  # fmt: skip
