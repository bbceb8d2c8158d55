"""`kafka-eos query`: the queries of a cluster as Kafka knows them, and why one is refused."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table

from spark_kafka_eos.errors import AuthorizationFailed, ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_to_json
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.topics import unknown
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.diagnosis import diagnose
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry
from spark_kafka_eos.ledger.records import LedgerRecord
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Verdict
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.sink import LEDGER_GROUP
from spark_kafka_eos.participants.decide import Finish
from spark_kafka_eos.participants.diagnosis import TableDiagnosis, diagnose_with_table
from spark_kafka_eos.spark.checkpoint import next_batch_at
from spark_kafka_eos.tools.cli.errors import FAILED, NOT_CHECKED
from spark_kafka_eos.tools.cli.outputs import output_lines, outputs_json
from spark_kafka_eos.tools.cli.query_options import (
    BootstrapServers,
    Properties,
    QueryOptions,
    SourceBootstrapServers,
    SourceProperties,
    client_of,
    parse_options,
    source_client_of,
)
from spark_kafka_eos.tools.cli.refusal import diagnosis_json, diagnosis_view, owner_words, state_words
from spark_kafka_eos.tools.cli.shown import AsJson, AsJsonOnce, Watch, moment, size, watch
from spark_kafka_eos.tools.cli.table import (
    TableOption,
    participant_of,
    settlement_json,
    settlement_view,
    table_json,
    table_lines,
)
from spark_kafka_eos.tools.cli.terminal import Console, Text
from spark_kafka_eos.tools.operators.ending import carry_out
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey
from spark_kafka_eos.tools.operators.outputs import Output, outputs
from spark_kafka_eos.tools.operators.queries import QueryReader
from spark_kafka_eos.tools.operators.settle import settle as settle_table
from spark_kafka_eos.tools.operators.status import Copies, PartitionLag, QueryStatus, RecordedEntry, SourceLag

query = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Show what Kafka knows of queries, whether they run or not."
)

_COMMITS = 20  # that `show` reads: a batch that wrote nothing names no output, those before it do
_ANSWER_MS = 10_000  # a broker that does not answer must not hide for minutes what the others know

TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="The query's kafka.transactional.id.")]
LedgerTopicOption = Annotated[
    str | None,
    typer.Option(help=f"The query's ledgerTopic; by default {LEDGER_TOPIC}, or the one its group points to."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look found, at `now_ms`."""

    now_ms: int
    queries: Sequence[QueryStatus]
    copies: Copies | None = None
    table: TableDiagnosis | None = None
    written: Sequence[Output] = ()

    @property
    def one(self) -> QueryStatus:
        return self.queries[0]


# -- the commands


@query.command("list")
def list_(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    source_bootstrap_servers: SourceBootstrapServers = None,
    source_properties: SourceProperties = None,
    ledger_topic: Annotated[
        list[str] | None,
        typer.Option(help="A ledgerTopic to look into; can be repeated. Default: all that groups point to."),
    ] = None,
    seconds: Watch = None,
    as_json: AsJson = False,
) -> None:
    """List the queries that have committed to this cluster.

    unread: offsets that a query can read and has not committed. held: offsets after these, which open transactions of
    others hold back. Of sources on another cluster, both are unknown without --source-bootstrap-servers.
    """
    clients = _clients(bootstrap_servers, properties, source_bootstrap_servers, source_properties)
    with _reader(clients, ledger_topic) as reader:
        left = 0 if ledger_topic else reader.find()

        def look() -> _Look:
            return _Look(queries=reader.read(), now_ms=_now())

        def view(found: _Look) -> RenderableType:
            return Group(list_table(found.queries, found.now_ms), *_remarks(reader, found, left))

        def to_json(found: _Look) -> list[dict[str, Any]]:
            return [_query_json(one, found) for one in found.queries]

        watch(look, seconds, view=view, to_json=to_json, as_json=as_json)


@query.command()
def show(
    transactional_id: TransactionalId,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    source_bootstrap_servers: SourceBootstrapServers = None,
    source_properties: SourceProperties = None,
    ledger_topic: LedgerTopicOption = None,
    table: TableOption = None,
    seconds: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show a query: its last commit, its ledger, what is open in its outputs, how far it is behind, and who owns the
    transactional id.

    With --table also: what the table that takes part holds, and what the next start will do about it.
    """
    clients = _clients(bootstrap_servers, properties, source_bootstrap_servers, source_properties)
    participant = None if table is None else participant_of(table)
    with _reader(clients, ledger_topic and [ledger_topic], only=transactional_id, keep=_COMMITS) as reader:

        def of_table() -> TableDiagnosis | None:
            if participant is None:
                return None
            given = QueryOptions(
                {
                    "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
                    "kafka.transactional.id": ("ID", transactional_id),
                    "ledgerTopic": ("--ledger-topic", ledger_topic),
                },
                properties=properties,
            )
            return diagnose_with_table(reader.cluster, given.sink(), participant, lambda: (None, False))

        def look() -> _Look:
            held = of_table()
            try:
                found = _one(reader, transactional_id, times=True)
            except ToolFailed:
                if held is None or held.token is None:
                    raise
                found = [QueryStatus(transactional_id=transactional_id, ledger_topic="", owner=held.kafka.owner)]
            try:
                copies = reader.copies(transactional_id)
            except AuthorizationFailed:
                copies = None
            now_ms = _now()
            written = _written(reader.cluster, found[0].outputs, now_ms)
            return _Look(queries=found, copies=copies, now_ms=now_ms, table=held, written=written)

        watch(look, seconds, view=_show_view, to_json=_show_json, as_json=as_json)


@query.command()
def lag(
    transactional_id: TransactionalId,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    source_bootstrap_servers: SourceBootstrapServers = None,
    source_properties: SourceProperties = None,
    ledger_topic: LedgerTopicOption = None,
    seconds: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a query is behind, by source partition.

    late: the age of the oldest record that it can read and has not committed, by the record's timestamp.
    """
    clients = _clients(bootstrap_servers, properties, source_bootstrap_servers, source_properties)
    with _reader(clients, ledger_topic and [ledger_topic], only=transactional_id) as reader:

        def look() -> _Look:
            return _Look(queries=_one(reader, transactional_id, times=True, owners=False), now_ms=_now())

        watch(look, seconds, view=_lag_view, to_json=lambda found: _lag_json(found.one, found.now_ms), as_json=as_json)


@query.command()
def ledger(
    transactional_id: TransactionalId,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    ledger_topic: LedgerTopicOption = None,
    seconds: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show a query's ledger entry in both places: the record and the pointer."""
    clients = _clients(bootstrap_servers, properties)
    with _reader(clients, ledger_topic and [ledger_topic], only=transactional_id) as reader:

        def look() -> _Look:
            found = reader.read(lag=False, owners=False)
            copies = reader.copies(transactional_id)
            if not found and copies.valid is None:
                raise _unknown(reader, transactional_id)
            return _Look(queries=found, copies=copies, now_ms=_now())

        watch(look, seconds, view=_ledger_view, to_json=_ledger_json, as_json=as_json)


@query.command()
def history(
    transactional_id: TransactionalId,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    ledger_topic: LedgerTopicOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The last so many commits.")] = 20,
    seconds: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Show a query's last commits with size and duration, as far as the ledger topic still has them.

    The topic is compacted: Kafka's log cleaner removes old records sooner or later, and always leaves the last one.
    """
    clients = _clients(bootstrap_servers, properties)
    with _reader(clients, ledger_topic and [ledger_topic], only=transactional_id, keep=limit) as reader:

        def look() -> _Look:
            return _Look(queries=_one(reader, transactional_id, lag=False, owners=False), now_ms=_now())

        def to_json(found: _Look) -> list[dict[str, Any]]:
            return [_commit_json(each) for each in found.one.commits]

        watch(look, seconds, view=_history_view, to_json=to_json, as_json=as_json)


@query.command()
def resolve(
    transactional_id: TransactionalId,
    bootstrap_servers: BootstrapServers = None,
    checkpoint_location: Annotated[
        str | None, typer.Option(help="The query's checkpointLocation, to compare the ledger with.")
    ] = None,
    properties: Properties = None,
    ledger_topic: Annotated[str, typer.Option(help="The query's ledgerTopic.")] = LEDGER_TOPIC,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other option of the sink; can be repeated.")
    ] = None,
    table: TableOption = None,
    settle: Annotated[
        bool,
        typer.Option("--settle", help="With --table: commit the Kafka transaction of a batch that the table has."),
    ] = False,
    fence_owner: Annotated[
        bool,
        typer.Option(
            "--fence-owner",
            help="With --settle: abort a batch that the table does not have, even if its driver may be alive.",
        ),
    ] = False,
    as_json: AsJsonOnce = False,
) -> None:
    """Explain why a query is refused: what ledger and checkpoint say, and what each choice means for the data.

    Changes nothing, unless --settle is given. A choice is an option of the sink, which you set for the next start. For
    a batch write, give its --option txnAppId and txnVersion instead of the checkpoint.

    \b
    Exit code 0: the next batch would be written or skipped; with --settle: table and Kafka have the same batches
              1: it would be refused
              2: the command line is wrong
              3: it could not be found out, or not be settled; the reason is shown
    """
    if settle and table is None:
        raise typer.BadParameter("requires --table", param_hint="--settle")
    if fence_owner and not settle:
        raise typer.BadParameter("requires --settle", param_hint="--fence-owner")
    given = QueryOptions(
        {
            "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
            "kafka.transactional.id": ("ID", transactional_id),
            "checkpointLocation": ("--checkpoint-location", checkpoint_location),
            "ledgerTopic": ("--ledger-topic", ledger_topic),
        },
        properties=properties,
        named=parse_options(option or []),
    )
    options = given.sink()
    if table is not None:
        raise typer.Exit(_resolve_with_table(options, table, do=settle, fence_owner=fence_owner, as_json=as_json))
    with given.named_as_given(), Cluster(options.client) as cluster:
        found = diagnose(cluster, options, lambda: next_batch_at(options.checkpoint_location))
    if as_json:
        print(json.dumps(diagnosis_json(found), indent=1))
    else:
        Console(highlight=False).print(diagnosis_view(found, options))
    raise typer.Exit(_exit_code(found.verdict))


def _resolve_with_table(options: SinkOptions, table: str, *, do: bool, fence_owner: bool, as_json: bool) -> int:
    """As `resolve`, for a query with this table; the exit code."""
    if options.txn_app_id is not None:
        raise typer.BadParameter("a batch write has no table that takes part", param_hint="--table")
    participant = participant_of(table)
    with Cluster(options.client) as cluster:
        found = diagnose_with_table(cluster, options, participant, lambda: next_batch_at(options.checkpoint_location))
        settlement = settle_table(found, fence_owner=fence_owner)
        if do:
            carry_out(settlement, found, participant, cluster, options)
    # After a Finish the start looks again, and only then decides on the batch.
    with_table = replace(found.kafka, verdict=None if isinstance(found.verdict, Finish) else found.verdict)
    if as_json:
        settled = {"settle": settlement_json(settlement, done=do)}
        print(json.dumps({**diagnosis_json(with_table), "table": table_json(found), **settled}, indent=1))
    else:
        console = Console(highlight=False)
        console.print(diagnosis_view(with_table, options, table_lines(found)))
        console.print(settlement_view(settlement, done=do))
    if do:
        return 0 if settlement.settled else NOT_CHECKED
    return _exit_code(found.verdict)


def _exit_code(verdict: Verdict | Finish | None) -> int:
    if verdict is None:
        return NOT_CHECKED
    return FAILED if isinstance(verdict, Refuse) else 0


# -- reading


def _clients(
    bootstrap_servers: str | None,
    properties: Path | None,
    source_bootstrap_servers: str | None = None,
    source_properties: Path | None = None,
) -> list[ClientOptions]:
    """How to connect to the query's cluster, and to that of its sources if it is another one."""
    client = client_of("--bootstrap-servers", bootstrap_servers, properties)
    elsewhere = source_client_of(source_bootstrap_servers, source_properties)
    return [each.answering_within(_ANSWER_MS) for each in (client, elsewhere) if each is not None]


@contextmanager
def _reader(
    clients: Sequence[ClientOptions], ledger_topics: Sequence[str] | None, **more: Any
) -> Iterator[QueryReader]:
    with ExitStack() as stack:
        cluster, *sources = [stack.enter_context(Cluster(client)) for client in clients]
        yield QueryReader(cluster, ledger_topics=ledger_topics, sources=sources, **more)


def _written(cluster: Cluster, topics: set[str], now_ms: int) -> list[Output]:
    lacking = unknown(cluster, topics) if topics else {}
    found = survey(cluster, partitions_of(cluster, topics - lacking.keys()), now_ms=now_ms)
    return outputs(topics, found, lacking)


def _one(reader: QueryReader, transactional_id: str, **what: bool) -> list[QueryStatus]:
    found = reader.read(**what)
    if not found:
        raise _unknown(reader, transactional_id)
    return found


def _unknown(reader: QueryReader, transactional_id: str) -> ToolFailed:
    with contextlib.suppress(AuthorizationFailed):
        if reader.copies(transactional_id).pointer is not None:
            return ToolFailed(
                f"the ledger topic has no record of {transactional_id!r}, but its group has a pointer",
                action=f"Look at `kafka-eos query ledger {transactional_id}`.",
            )
    if reader.missing:
        return ToolFailed(
            f"there is no topic {reader.missing[0]!r} on this cluster, or this principal may not describe it",
            action="If the query has another ledgerTopic, name it with --ledger-topic.",
        )
    return ToolFailed(
        f"no query with transactional.id {transactional_id!r} has committed here",
        action="`kafka-eos query list` shows those that have, with their ledger topics.",
    )


def _now() -> int:
    return int(time.time() * 1e3)


# -- tables


def list_table(queries: Sequence[QueryStatus], now_ms: int) -> Table:
    """A row for each query; ages at `now_ms` since 1970."""
    columns = [Column(name, overflow="fold") for name in ("query", "batch", "committed", "transaction")]
    columns[3:3] = [Column(name, justify="right") for name in ("unread", "held")]
    shown = Table(*columns)
    for one in queries:
        ago = "" if one.last is None else _ago(now_ms - one.last.record.timestamp_ms)
        batch = "?" if one.entry is None else str(one.entry.batch_id)
        texts = (one.transactional_id, batch, ago, _count(one.unread), _count(one.held), state_words(one.owner))
        shown.add_row(*(Text(text) for text in texts))
    return shown


def _remarks(reader: QueryReader, found: _Look, left: int) -> Iterator[Text]:
    topics = sorted({one.ledger_topic for one in found.queries} - {LEDGER_TOPIC})
    if topics:
        yield Text(f"Ledger topics besides {LEDGER_TOPIC}: {', '.join(topics)}.")
    if not found.queries:
        missing = f": there is no topic {', '.join(reader.missing)}" if reader.missing else ""
        yield Text(f"No query has committed to this cluster{missing}.")
    if left:
        yield Text(f"{left} more groups were not looked into; name further ledger topics with --ledger-topic.")
    reasons = dict.fromkeys(why for one in found.queries for why in one.unknown)
    for why in list(reasons)[:3]:
        yield Text(f"Unknown lag: {why}.")
    if len(reasons) > 3:
        yield Text(f"Unknown lag: {len(reasons) - 3} more reasons; see `kafka-eos query lag ID`.")


def _show_view(found: _Look) -> RenderableType:
    one = found.one
    not_seen = f"The pointer is unknown: it needs Describe on Group {one.transactional_id}{LEDGER_GROUP}."
    ledger = not_seen if found.copies is None else found.copies.agreement
    return description(one, found.now_ms, ledger=ledger, table=found.table, written=found.written)


def description(
    one: QueryStatus,
    now_ms: int,
    *,
    ledger: str = "",
    table: TableDiagnosis | None = None,
    written: Sequence[Output] = (),
) -> RenderableType:
    """Everything about a query; `ledger` is how record and pointer agree, if they were compared, `table` what a table
    that takes part holds, if it was asked, `written` what is open in its outputs.
    """
    shown = Table.grid(Column(style="bold"), Column(overflow="fold"), padding=(0, 2))
    facts = (*_facts(one, now_ms, ledger), *output_lines(written, now_ms))
    for name, text in (*facts, *(() if table is None else table_lines(table))):
        shown.add_row(name, Text(text))
    partitions = any(source is not None for source in one.sources)
    return Group(shown, *([_lag_view(_Look(queries=[one], now_ms=now_ms))] if partitions else []))


def _facts(one: QueryStatus, now_ms: int, ledger: str) -> Iterator[tuple[str, str]]:
    yield "query", one.transactional_id
    yield from _last(one, now_ms)
    if one.pending is not None and isinstance(one.pending.entry, LedgerEntry):
        sent = _ago(now_ms - one.pending.record.timestamp_ms)
        table = "" if one.pending.entry.table is None else ", and its table may have it (--table tells)"
        yield "in doubt", f"batch {one.pending.entry.batch_id}, sent {sent}: its transaction is still open{table}"
    if ledger:
        yield "ledger", ledger
    yield "owner", owner_words(one.owner)
    if not one.sources:
        yield "sources", "The ledger does not contain where they ended."


def _last(one: QueryStatus, now_ms: int) -> Iterator[tuple[str, str]]:
    match one.last:
        case None:
            yield "last commit", "none"
        case RecordedEntry(entry=UnreadableEntry(description=description)):
            yield "last commit", description
        case RecordedEntry(entry=LedgerEntry() as entry, record=LedgerRecord(timestamp_ms=at_ms)):
            yield "last commit", f"{_ago(now_ms - at_ms)}, {moment(at_ms)} UTC, number {entry.serial}"
            yield "batch", f"{entry.batch_id} of query {entry.query_id}"
            if entry.incomplete:
                lost = {} if entry.written is None else entry.written.lost
                why = ", ".join(f"{records:,} records were lost with topic {name}" for name, records in lost.items())
                yield (
                    "",
                    f"incomplete: {why or 'a second call of the writer was refused, or an output topic was deleted'}",
                )
            if entry.table is not None:
                yield "table version", str(entry.table)
            if (written := entry.written) is not None:
                dead = f", {written.dead_letters:,} of them dead letters" if written.dead_letters else ""
                yield (
                    "written",
                    f"{written.records:,} records{dead}, {size(written.bytes)}, in {duration(written.milliseconds)}",
                )


def _lag_view(found: _Look) -> RenderableType:
    one = found.one
    names = ("partition", "committed", "stable", "end", "unread", "held", "late")
    shown = Table(Column(names[0], overflow="fold"), *(Column(name, justify="right") for name in names[1:]))
    remarks: list[Text] = []
    for source in one.sources:
        if source is None:
            remarks.append(Text("A source is not Kafka; its lag is unknown."))
            continue
        for tp in sorted(source.offsets):
            texts = _lag_row(source, tp, found.now_ms)
            shown.add_row(*(Text(text) for text in texts))
    remarks += [Text(f"Unknown: {why}.") for why in one.unknown]
    if one.lost:
        remarks.append(Text(f"{one.lost} offsets were deleted before the query read them.", style="bold red"))
    return Group(shown, *remarks)


def _lag_row(source: SourceLag, tp: TopicPartition, now_ms: int) -> Sequence[str]:
    lag = source.partitions.get(tp)
    if lag is None:
        return str(tp), str(source.offsets[tp]), *["?"] * 5
    late = lag.late_ms(now_ms)
    ends = (lag.committed, lag.marks.last_stable_offset, lag.marks.high_watermark, lag.unread, lag.held)
    return str(tp), *map(str, ends), "?" if late is None else duration(late) if lag.unread else "-"


def _ledger_view(found: _Look) -> RenderableType:
    copies = found.copies
    assert copies is not None
    shown = Table("", Column("record", overflow="fold"), Column("pointer", overflow="fold"))
    record, pointer = _fields(copies.record), _fields(copies.pointer)
    for name in dict.fromkeys([*record, *pointer]):
        shown.add_row(name, Text(record.get(name, "")), Text(pointer.get(name, "")))
    parts: list[RenderableType] = [shown, Text(copies.agreement)]
    for one in found.queries:
        if one.last is not None:
            parts.append(Text(f"The record is at offset {one.last.record.offset} of {one.ledger_topic}-0."))
        for number, source in enumerate(one.sources):
            ends = "not Kafka" if source is None else ", ".join(f"{tp}@{at}" for tp, at in source.offsets.items())
            where = "" if source is None else f" of cluster {source.cluster}"
            parts.append(Text(f"Source {number}{where}: {ends}."))
    return Group(*parts)


def _fields(entry: LedgerEntry | MovedLedger | UnreadableEntry | None) -> dict[str, str]:
    match entry:
        case LedgerEntry():
            return {
                "commit": str(entry.serial),
                "batch": str(entry.batch_id) + (" (incomplete)" if entry.incomplete else ""),
                "query": entry.query_id,
                "run": entry.run_id or "",
                "digest": entry.digest,
            }
        case MovedLedger():
            return {"commit": str(entry.serial), "moved to": entry.topic}
        case UnreadableEntry():
            return {"unreadable": entry.description}
    return {"": "none"}


def _history_view(found: _Look) -> RenderableType:
    names = ("commit", "batch", "at (UTC)", "records", "bytes", "took", "producer")
    shown = Table(*(Column(name, justify="right", overflow="fold") for name in names))
    commits = found.one.commits
    for commit in commits:
        record = commit.record
        match commit.entry:
            case LedgerEntry() as entry:
                written = entry.written
                size_of = ("?", "?", "?") if written is None else (
                    f"{written.records:,}", size(written.bytes), duration(written.milliseconds)
                )  # fmt: skip
                numbers = (str(entry.serial), str(entry.batch_id))
                row = (*numbers, moment(record.timestamp_ms), *size_of, f"{record.producer_id}/{record.epoch}")
                shown.add_row(*(Text(text) for text in row))
            case UnreadableEntry():
                shown.add_row("?", "?", moment(record.timestamp_ms), "?", "?", "?", "unreadable")
    missing = found.one.commits_missing
    said = f"{missing:,} earlier commits are not shown: see --limit; the log cleaner removes old ones."
    return Group(shown, *([Text(said)] if missing else []))


def _ago(milliseconds: int) -> str:
    return "just now" if milliseconds < 2_000 else f"{duration(milliseconds)} ago"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


# -- JSON


def _query_json(one: QueryStatus, found: _Look) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "ledger_topic": one.ledger_topic,
        "last_commit": None if one.last is None else _commit_json(one.last),
        "pending": None if one.pending is None else _commit_json(one.pending),
        **_lag_json(one, found.now_ms),
        "owner": _owner_json(one.owner),
    }


def _show_json(found: _Look) -> dict[str, Any]:
    table = {} if found.table is None else {"table": table_json(found.table)}
    written = {"outputs": outputs_json(found.written)}
    return {**_query_json(found.one, found), **written, **_copies_json(found.copies), **table}


def _ledger_json(found: _Look) -> dict[str, Any]:
    at = found.queries[0].last if found.queries else None
    return {"commit": None if at is None else _commit_json(at), **_copies_json(found.copies)}


def _copies_json(copies: Copies | None) -> dict[str, Any]:
    if copies is None:
        return {}
    sides = {"record": copies.record, "pointer": copies.pointer}
    entries = {name: None if entry is None else _entry_json(entry) for name, entry in sides.items()}
    return {"ledger": {**entries, "agreement": copies.agreement}}


def _lag_json(one: QueryStatus, now_ms: int) -> dict[str, Any]:
    sources = [None if source is None else _source_json(source, now_ms) for source in one.sources]
    totals = {"unread": one.unread, "held": one.held, "lost": one.lost, "late_ms": one.late_ms(now_ms)}
    return {"at_ms": now_ms, **totals, "sources": sources}


def _source_json(source: SourceLag, now_ms: int) -> dict[str, Any]:
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "committed": at}
        | (_partition_json(source.partitions[tp], now_ms) if tp in source.partitions else {})
        | ({"unknown": source.unknown[tp]} if tp in source.unknown else {})
        for tp, at in sorted(source.offsets.items())
    ]
    return {"cluster": source.cluster, "partitions": partitions}


def _partition_json(lag: PartitionLag, now_ms: int) -> dict[str, Any]:
    return {
        "earliest": lag.earliest,
        "last_stable_offset": lag.marks.last_stable_offset,
        "high_watermark": lag.marks.high_watermark,
        "unread": lag.unread,
        "held": lag.held,
        "lost": lag.lost,
        "oldest_unread_ms": lag.oldest_unread_ms,
        "late_ms": lag.late_ms(now_ms),
    }


def _commit_json(commit: RecordedEntry) -> dict[str, Any]:
    record = commit.record
    place = {"offset": record.offset, "at_ms": record.timestamp_ms}
    return {**place, "producer_id": record.producer_id, "epoch": record.epoch, **_entry_json(commit.entry)}


def _entry_json(entry: LedgerEntry | MovedLedger | UnreadableEntry) -> dict[str, Any]:
    if isinstance(entry, UnreadableEntry):
        return {"unreadable": entry.description}
    if isinstance(entry, MovedLedger):
        return {"serial": entry.serial, "moved": entry.topic}
    written = entry.written
    return {
        "query_id": entry.query_id,
        "batch_id": entry.batch_id,
        "digest": entry.digest,
        "serial": entry.serial,
        "run_id": entry.run_id,
        "outputs": {name: topic_id and str(topic_id) for name, topic_id in entry.outputs.items()},
        "writes": None if entry.writes is None else dict(entry.writes),
        "incomplete": entry.incomplete,
        "table": entry.table,
        "transaction_version": entry.transaction_version,
        "records": None if written is None else written.records,
        "dead_letters": None if written is None else written.dead_letters,
        "lost": None if written is None else dict(written.lost),
        "bytes": None if written is None else written.bytes,
        "milliseconds": None if written is None else written.milliseconds,
        "sources": None if entry.sources is None else [
            source and {"cluster": source.cluster, "offsets": offsets_to_json(source.offsets)}
            for source in entry.sources
        ],
    }  # fmt: skip


def _owner_json(owner: TransactionFacts | Unavailable | None) -> dict[str, Any] | None:
    match owner:
        case TransactionFacts():
            known = {"producer_id": owner.producer_id, "epoch": owner.epoch, "state": owner.state}
            return {**known, "timeout_ms": owner.timeout_ms, "started_ms": owner.started_ms}
        case Unavailable():
            return {"unknown": owner.reason}
    return None
