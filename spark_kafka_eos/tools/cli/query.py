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
    parse_pairs,
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
class _Snapshot:
    """The queries as Kafka has them at `now_ms`."""

    now_ms: int
    queries: Sequence[QueryStatus]
    copies: Copies | None = None
    table: TableDiagnosis | None = None
    written: Sequence[Output] = ()

    @property
    def status(self) -> QueryStatus:
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
        skipped = 0 if ledger_topic else reader.find()

        def look() -> _Snapshot:
            return _Snapshot(queries=reader.read(), now_ms=_now())

        def view(snapshot: _Snapshot) -> RenderableType:
            return Group(list_table(snapshot.queries, snapshot.now_ms), *_remarks(reader, snapshot, skipped))

        def to_json(snapshot: _Snapshot) -> list[dict[str, Any]]:
            return [_query_json(status, snapshot) for status in snapshot.queries]

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
            query_options = QueryOptions(
                {
                    "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
                    "kafka.transactional.id": ("ID", transactional_id),
                    "ledgerTopic": ("--ledger-topic", ledger_topic),
                },
                properties=properties,
            )
            return diagnose_with_table(reader.cluster, query_options.sink(), participant, lambda: (None, False))

        def look() -> _Snapshot:
            diagnosis = of_table()
            try:
                statuses = _statuses(reader, transactional_id, times=True)
            except ToolFailed:
                if diagnosis is None or diagnosis.token is None:
                    raise
                statuses = [
                    QueryStatus(transactional_id=transactional_id, ledger_topic="", owner=diagnosis.kafka.owner)
                ]
            try:
                copies = reader.copies(transactional_id)
            except AuthorizationFailed:
                copies = None
            now_ms = _now()
            written = _written(reader.cluster, statuses[0].outputs, now_ms)
            return _Snapshot(queries=statuses, copies=copies, now_ms=now_ms, table=diagnosis, written=written)

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

        def look() -> _Snapshot:
            return _Snapshot(queries=_statuses(reader, transactional_id, times=True, owners=False), now_ms=_now())

        watch(
            look,
            seconds,
            view=_lag_view,
            to_json=lambda snapshot: _lag_json(snapshot.status, snapshot.now_ms),
            as_json=as_json,
        )


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

        def look() -> _Snapshot:
            statuses = reader.read(lag=False, owners=False)
            copies = reader.copies(transactional_id)
            if not statuses and copies.valid is None:
                raise _unknown(reader, transactional_id)
            return _Snapshot(queries=statuses, copies=copies, now_ms=_now())

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

        def look() -> _Snapshot:
            return _Snapshot(queries=_statuses(reader, transactional_id, lag=False, owners=False), now_ms=_now())

        def to_json(snapshot: _Snapshot) -> list[dict[str, Any]]:
            return [_commit_json(commit) for commit in snapshot.status.commits]

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
    query_options = QueryOptions(
        {
            "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
            "kafka.transactional.id": ("ID", transactional_id),
            "checkpointLocation": ("--checkpoint-location", checkpoint_location),
            "ledgerTopic": ("--ledger-topic", ledger_topic),
        },
        properties=properties,
        named=parse_pairs(option or []),
    )
    options = query_options.sink()
    if table is not None:
        raise typer.Exit(_resolve_with_table(options, table, do=settle, fence_owner=fence_owner, as_json=as_json))
    with query_options.named_as_given(), Cluster(options.client) as cluster:
        diagnosis = diagnose(cluster, options, lambda: next_batch_at(options.checkpoint_location))
    if as_json:
        print(json.dumps(diagnosis_json(diagnosis), indent=1))
    else:
        Console(highlight=False).print(diagnosis_view(diagnosis, options))
    raise typer.Exit(_exit_code(diagnosis.verdict))


def _resolve_with_table(options: SinkOptions, table: str, *, do: bool, fence_owner: bool, as_json: bool) -> int:
    """As `resolve`, for a query with this table; the exit code."""
    if options.txn_app_id is not None:
        raise typer.BadParameter("a batch write has no table that takes part", param_hint="--table")
    participant = participant_of(table)
    with Cluster(options.client) as cluster:
        diagnosis = diagnose_with_table(
            cluster, options, participant, lambda: next_batch_at(options.checkpoint_location)
        )
        settlement = settle_table(diagnosis, fence_owner=fence_owner)
        if do:
            carry_out(settlement, diagnosis, participant, cluster, options)
    # After a Finish the start looks again, and only then decides on the batch.
    with_table = replace(diagnosis.kafka, verdict=None if isinstance(diagnosis.verdict, Finish) else diagnosis.verdict)
    if as_json:
        settled = {"settle": settlement_json(settlement, done=do)}
        print(json.dumps({**diagnosis_json(with_table), "table": table_json(diagnosis), **settled}, indent=1))
    else:
        console = Console(highlight=False)
        console.print(diagnosis_view(with_table, options, table_lines(diagnosis)))
        console.print(settlement_view(settlement, done=do))
    if do:
        return 0 if settlement.settled else NOT_CHECKED
    return _exit_code(diagnosis.verdict)


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
    return [options.answering_within(_ANSWER_MS) for options in (client, elsewhere) if options is not None]


@contextmanager
def _reader(
    clients: Sequence[ClientOptions], ledger_topics: Sequence[str] | None, **more: Any
) -> Iterator[QueryReader]:
    with ExitStack() as stack:
        cluster, *sources = [stack.enter_context(Cluster(client)) for client in clients]
        yield QueryReader(cluster, ledger_topics=ledger_topics, sources=sources, **more)


def _written(cluster: Cluster, topics: set[str], now_ms: int) -> list[Output]:
    lacking = unknown(cluster, topics) if topics else {}
    transactions = survey(cluster, partitions_of(cluster, topics - lacking.keys()), now_ms=now_ms)
    return outputs(topics, transactions, lacking)


def _statuses(reader: QueryReader, transactional_id: str, **what: bool) -> list[QueryStatus]:
    statuses = reader.read(**what)
    if not statuses:
        raise _unknown(reader, transactional_id)
    return statuses


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
    table = Table(*columns)
    for status in queries:
        ago = "" if status.last is None else _ago(now_ms - status.last.record.timestamp_ms)
        batch = "?" if status.entry is None else str(status.entry.batch_id)
        texts = (
            status.transactional_id,
            batch,
            ago,
            _count(status.unread),
            _count(status.held),
            state_words(status.owner),
        )
        table.add_row(*(Text(text) for text in texts))
    return table


def _remarks(reader: QueryReader, snapshot: _Snapshot, skipped: int) -> Iterator[Text]:
    topics = sorted({status.ledger_topic for status in snapshot.queries} - {LEDGER_TOPIC})
    if topics:
        yield Text(f"Ledger topics besides {LEDGER_TOPIC}: {', '.join(topics)}.")
    if not snapshot.queries:
        missing = f": there is no topic {', '.join(reader.missing)}" if reader.missing else ""
        yield Text(f"No query has committed to this cluster{missing}.")
    if skipped:
        yield Text(f"{skipped} more groups were not looked into; name further ledger topics with --ledger-topic.")
    reasons = dict.fromkeys(why for status in snapshot.queries for why in status.unknown)
    for why in list(reasons)[:3]:
        yield Text(f"Unknown lag: {why}.")
    if len(reasons) > 3:
        yield Text(f"Unknown lag: {len(reasons) - 3} more reasons; see `kafka-eos query lag ID`.")


def _show_view(snapshot: _Snapshot) -> RenderableType:
    status = snapshot.status
    not_seen = f"The pointer is unknown: it needs Describe on Group {status.transactional_id}{LEDGER_GROUP}."
    ledger = not_seen if snapshot.copies is None else snapshot.copies.agreement
    return description(status, snapshot.now_ms, ledger=ledger, table=snapshot.table, written=snapshot.written)


def description(
    status: QueryStatus,
    now_ms: int,
    *,
    ledger: str = "",
    table: TableDiagnosis | None = None,
    written: Sequence[Output] = (),
) -> RenderableType:
    """Everything about a query; `ledger` is how record and pointer agree, if they were compared, `table` what a table
    that takes part holds, if it was asked, `written` what is open in its outputs.
    """
    grid = Table.grid(Column(style="bold"), Column(overflow="fold"), padding=(0, 2))
    facts = (*_facts(status, now_ms, ledger), *output_lines(written, now_ms))
    for name, text in (*facts, *(() if table is None else table_lines(table))):
        grid.add_row(name, Text(text))
    partitions = any(source is not None for source in status.sources)
    return Group(grid, *([_lag_view(_Snapshot(queries=[status], now_ms=now_ms))] if partitions else []))


def _facts(status: QueryStatus, now_ms: int, ledger: str) -> Iterator[tuple[str, str]]:
    yield "query", status.transactional_id
    yield from _last(status, now_ms)
    if status.pending is not None and isinstance(status.pending.entry, LedgerEntry):
        sent = _ago(now_ms - status.pending.record.timestamp_ms)
        table = "" if status.pending.entry.table is None else ", and its table may have it (--table tells)"
        yield "in doubt", f"batch {status.pending.entry.batch_id}, sent {sent}: its transaction is still open{table}"
    if ledger:
        yield "ledger", ledger
    yield "owner", owner_words(status.owner)
    if not status.sources:
        yield "sources", "The ledger does not contain where they ended."


def _last(status: QueryStatus, now_ms: int) -> Iterator[tuple[str, str]]:
    match status.last:
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


def _lag_view(snapshot: _Snapshot) -> RenderableType:
    status = snapshot.status
    names = ("partition", "committed", "stable", "end", "unread", "held", "late")
    table = Table(Column(names[0], overflow="fold"), *(Column(name, justify="right") for name in names[1:]))
    remarks: list[Text] = []
    for source in status.sources:
        if source is None:
            remarks.append(Text("A source is not Kafka; its lag is unknown."))
            continue
        for tp in sorted(source.offsets):
            texts = _lag_row(source, tp, snapshot.now_ms)
            table.add_row(*(Text(text) for text in texts))
    remarks += [Text(f"Unknown: {why}.") for why in status.unknown]
    if status.lost:
        remarks.append(Text(f"{status.lost} offsets were deleted before the query read them.", style="bold red"))
    return Group(table, *remarks)


def _lag_row(source: SourceLag, tp: TopicPartition, now_ms: int) -> Sequence[str]:
    lag = source.partitions.get(tp)
    if lag is None:
        return str(tp), str(source.offsets[tp]), *["?"] * 5
    late = lag.late_ms(now_ms)
    ends = (lag.committed, lag.log_ends.last_stable_offset, lag.log_ends.high_watermark, lag.unread, lag.held)
    return str(tp), *map(str, ends), "?" if late is None else duration(late) if lag.unread else "-"


def _ledger_view(snapshot: _Snapshot) -> RenderableType:
    copies = snapshot.copies
    assert copies is not None
    table = Table("", Column("record", overflow="fold"), Column("pointer", overflow="fold"))
    record, pointer = _fields(copies.record), _fields(copies.pointer)
    for name in dict.fromkeys([*record, *pointer]):
        table.add_row(name, Text(record.get(name, "")), Text(pointer.get(name, "")))
    parts: list[RenderableType] = [table, Text(copies.agreement)]
    for status in snapshot.queries:
        if status.last is not None:
            parts.append(Text(f"The record is at offset {status.last.record.offset} of {status.ledger_topic}-0."))
        for number, source in enumerate(status.sources):
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


def _history_view(snapshot: _Snapshot) -> RenderableType:
    names = ("commit", "batch", "at (UTC)", "records", "bytes", "took", "producer")
    table = Table(*(Column(name, justify="right", overflow="fold") for name in names))
    commits = snapshot.status.commits
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
                table.add_row(*(Text(text) for text in row))
            case UnreadableEntry():
                table.add_row("?", "?", moment(record.timestamp_ms), "?", "?", "?", "unreadable")
    missing = snapshot.status.commits_missing
    remark = f"{missing:,} earlier commits are not shown: see --limit; the log cleaner removes old ones."
    return Group(table, *([Text(remark)] if missing else []))


def _ago(milliseconds: int) -> str:
    return "just now" if milliseconds < 2_000 else f"{duration(milliseconds)} ago"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


# -- JSON


def _query_json(status: QueryStatus, snapshot: _Snapshot) -> dict[str, Any]:
    return {
        "transactional_id": status.transactional_id,
        "ledger_topic": status.ledger_topic,
        "last_commit": None if status.last is None else _commit_json(status.last),
        "pending": None if status.pending is None else _commit_json(status.pending),
        **_lag_json(status, snapshot.now_ms),
        "owner": _owner_json(status.owner),
    }


def _show_json(snapshot: _Snapshot) -> dict[str, Any]:
    table = {} if snapshot.table is None else {"table": table_json(snapshot.table)}
    written = {"outputs": outputs_json(snapshot.written)}
    return {**_query_json(snapshot.status, snapshot), **written, **_copies_json(snapshot.copies), **table}


def _ledger_json(snapshot: _Snapshot) -> dict[str, Any]:
    at = snapshot.queries[0].last if snapshot.queries else None
    return {"commit": None if at is None else _commit_json(at), **_copies_json(snapshot.copies)}


def _copies_json(copies: Copies | None) -> dict[str, Any]:
    if copies is None:
        return {}
    sides = {"record": copies.record, "pointer": copies.pointer}
    entries = {name: None if entry is None else _entry_json(entry) for name, entry in sides.items()}
    return {"ledger": {**entries, "agreement": copies.agreement}}


def _lag_json(status: QueryStatus, now_ms: int) -> dict[str, Any]:
    sources = [None if source is None else _source_json(source, now_ms) for source in status.sources]
    totals = {"unread": status.unread, "held": status.held, "lost": status.lost, "late_ms": status.late_ms(now_ms)}
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
        "last_stable_offset": lag.log_ends.last_stable_offset,
        "high_watermark": lag.log_ends.high_watermark,
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
            owner_fields = {"producer_id": owner.producer_id, "epoch": owner.epoch, "state": owner.state}
            return {**owner_fields, "timeout_ms": owner.timeout_ms, "started_ms": owner.started_ms}
        case Unavailable():
            return {"unknown": owner.reason}
    return None
