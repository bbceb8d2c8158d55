"""`kafka-eos query`: the queries of a cluster as Kafka knows them, and why one is refused."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from spark_kafka_eos.errors import AuthorizationFailed, ToolFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.topics import unknown
from spark_kafka_eos.kafka.words import printable
from spark_kafka_eos.ledger.diagnosis import diagnose
from spark_kafka_eos.ledger.entry import MovedLedger
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Verdict
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.participants.decide import Finish
from spark_kafka_eos.participants.diagnosis import TableDiagnosis, diagnose_with_table
from spark_kafka_eos.spark.checkpoint import next_batch_at
from spark_kafka_eos.tools.cli.errors import FAILED, NOT_CHECKED
from spark_kafka_eos.tools.cli.query_json import commit_json, lag_json, ledger_json, query_json, show_json
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
from spark_kafka_eos.tools.cli.query_tables import (
    Snapshot,
    gaps,
    history_view,
    lag_view,
    ledger_view,
    list_table,
    not_looked_into,
    remarks,
    show_view,
)
from spark_kafka_eos.tools.cli.refusal import diagnosis_json, diagnosis_view
from spark_kafka_eos.tools.cli.shown import AsJson, AsJsonOnce, Watch, watch
from spark_kafka_eos.tools.cli.table import (
    TableOption,
    participant_of,
    settlement_json,
    settlement_view,
    table_json,
    table_lines,
)
from spark_kafka_eos.tools.cli.terminal import Console
from spark_kafka_eos.tools.operators.ending import carry_out
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey
from spark_kafka_eos.tools.operators.outputs import Output, outputs
from spark_kafka_eos.tools.operators.queries import QueryReader
from spark_kafka_eos.tools.operators.settle import settle as settle_table
from spark_kafka_eos.tools.operators.status import QueryStatus

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

    \b
    Exit code 0: these are all that could be found
              3: it could not be looked everywhere; where not is shown, with --json on standard error
    """
    clients = _clients(bootstrap_servers, properties, source_bootstrap_servers, source_properties)
    with _reader(clients, ledger_topic) as reader:
        skipped = 0 if ledger_topic else reader.find()

        def look() -> Snapshot:
            return Snapshot(queries=reader.read(), now_ms=_now())

        def view(snapshot: Snapshot) -> RenderableType:
            return Group(list_table(snapshot.queries, snapshot.now_ms), *remarks(reader, snapshot, skipped))

        def to_json(snapshot: Snapshot) -> list[dict[str, Any]]:
            for gap in gaps(reader, snapshot, skipped):
                print(printable(gap), file=sys.stderr)
            return [query_json(status, snapshot) for status in snapshot.queries]

        watch(look, seconds, view=view, to_json=to_json, as_json=as_json)
        if [*not_looked_into(reader, skipped)]:
            raise typer.Exit(NOT_CHECKED)


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

        def look() -> Snapshot:
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
            return Snapshot(queries=statuses, copies=copies, now_ms=now_ms, table=diagnosis, written=written)

        watch(look, seconds, view=show_view, to_json=show_json, as_json=as_json)


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

        def look() -> Snapshot:
            return Snapshot(queries=_statuses(reader, transactional_id, times=True, owners=False), now_ms=_now())

        watch(
            look,
            seconds,
            view=lag_view,
            to_json=lambda snapshot: lag_json(snapshot.status, snapshot.now_ms),
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

        def look() -> Snapshot:
            statuses = reader.read(lag=False, owners=False)
            copies = reader.copies(transactional_id)
            if not statuses and copies.valid is None:
                raise _unknown(reader, transactional_id)
            return Snapshot(queries=statuses, copies=copies, now_ms=_now())

        watch(look, seconds, view=ledger_view, to_json=ledger_json, as_json=as_json)


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

        def look() -> Snapshot:
            return Snapshot(queries=_statuses(reader, transactional_id, lag=False, owners=False), now_ms=_now())

        def to_json(snapshot: Snapshot) -> list[dict[str, Any]]:
            return [commit_json(commit) for commit in snapshot.status.commits]

        watch(look, seconds, view=history_view, to_json=to_json, as_json=as_json)


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
    real_time: Annotated[
        bool,
        typer.Option("--real-time", help="The query is to run in real time; as it does if it did so last."),
    ] = False,
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
    if real_time and table is not None:
        raise typer.BadParameter("a query with a table does not run in real time", param_hint="--real-time")
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
        diagnosis = diagnose(
            cluster, options, lambda: next_batch_at(options.checkpoint_location), in_real_time=real_time
        )
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
        copies = reader.copies(transactional_id)
        if isinstance(copies.valid, MovedLedger):
            return ToolFailed(
                f"the ledger of {transactional_id!r} is in topic {copies.valid.topic!r} since commit "
                f"{copies.valid.serial}",
                action="Name that topic with --ledger-topic.",
            )
        if copies.pointer is not None:
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
