"""`kafka-eos transactions`: what is open in a cluster, what hangs, and its abort."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from spark_kafka_eos.errors import KafkaEosError, ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.words import printable
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.tools.cli import transaction_tables as tables
from spark_kafka_eos.tools.cli.errors import FAILED, NOT_CHECKED, confirmed
from spark_kafka_eos.tools.cli.query_options import BootstrapServers, Properties, client_of
from spark_kafka_eos.tools.cli.shown import AsJson, Watch, watch
from spark_kafka_eos.tools.cli.terminal import Console
from spark_kafka_eos.tools.operators.abort import AbortDecision
from spark_kafka_eos.tools.operators.ending import ABORT_MS, HangingPart, OwnedTransaction, owner_of
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey, topics_left_out
from spark_kafka_eos.tools.operators.queries import taking_part
from spark_kafka_eos.tools.operators.survey import Survey

transactions = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Show the transactions of a cluster, find those that hang, and abort one.",
)

ANSWER_MS = 5_000  # a broker or partition that takes longer is shown as missing

TransactionalIdArgument = Annotated[str, typer.Argument(metavar="ID", help="A transactional id.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Look only at this topic; can be repeated.")]


# -- the commands


@transactions.command("list")
def list_(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only those with an open transaction.")] = False,
    every: Watch = None,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids of the cluster, those with the oldest open transaction first.

    producer: id and epoch. node: the coordinator. left: until the coordinator aborts it.
    held: offsets that read_committed consumers cannot read before it ends.
    """
    with _cluster(bootstrap_servers, properties) as cluster:
        watch(
            lambda: survey(cluster, now_ms=_now(), all_ids=not only_open),
            every,
            view=lambda survey: tables.listing(survey, only_open=only_open),
            to_json=lambda survey: tables.survey_json(survey, only_open=only_open),
            as_json=as_json,
        )


@transactions.command()
def describe(
    transactional_id: TransactionalIdArgument,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    every: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Describe a transactional id, and what its open transaction holds back in each partition."""
    with _cluster(bootstrap_servers, properties) as cluster:
        watch(
            lambda: _described(cluster, transactional_id),
            every,
            view=lambda description: tables.description(description.survey, description.facts, description.with_table),
            to_json=lambda description: tables.transaction_json(
                description.survey, description.facts, description.with_table
            ),
            as_json=as_json,
        )


@transactions.command()
def hanging(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    topic: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Find transactions that no coordinator will end, in all topics or in some.

    \b
    Exit code 0: nothing hangs
              1: a transaction hangs
              3: it could not be checked, or not in all partitions
    """
    with _cluster(bootstrap_servers, properties) as cluster:
        snapshot = _of_topics(cluster, topic)
    if as_json:
        print(json.dumps(tables.hanging_json(snapshot), indent=1))
    else:
        Console(highlight=False).print(tables.hanging(snapshot))
    if snapshot.hanging:
        raise typer.Exit(FAILED)
    if snapshot.unavailable or snapshot.left_out or tables.suspected(snapshot):
        raise typer.Exit(NOT_CHECKED)


@transactions.command()
def counts(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    topic: Topics = None,
    every: Watch = None,
    as_json: AsJson = False,
) -> None:
    """Count transactional ids by coordinator, and producer ids and open transactions by partition (KIP-98)."""
    with _cluster(bootstrap_servers, properties) as cluster:
        watch(
            lambda: _of_topics(cluster, topic),
            every,
            view=tables.counts,
            to_json=tables.counts_json,
            as_json=as_json,
        )


@transactions.command()
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Abort what this transactional id has open, and fence its owner."),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Instead of ID: where a transaction hangs.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="With --topic: the partition's number.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="With --topic: where it starts, as `hanging` shows it.")
    ] = None,
    fence_owner: Annotated[
        bool, typer.Option("--fence-owner", help="With ID: even if its owner may be alive. The owner is fenced.")
    ] = False,
    commit: Annotated[
        bool,
        typer.Option(
            "--commit", help="With --topic: commit what hangs there, because it was committed in other partitions."
        ),
    ] = False,
    ledger_topic: Annotated[
        list[str] | None,
        typer.Option(
            help="With --topic: the ledgerTopic of the query that may have written there, where it is not found by "
            f"itself; {LEDGER_TOPIC}, if no query has one of its own. Can be repeated."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    as_json: AsJson = False,
) -> None:
    """Abort a transaction, unless its owner may be alive or it is already decided.

    \b
    Exit code 0: it was aborted; with --dry-run: it would be
              1: refused; nothing was changed
              3: it could not be checked or done
    """
    place = _place(transactional_id, topic, partition, start_offset)
    if fence_owner and transactional_id is None:
        raise typer.BadParameter("requires ID", param_hint="--fence-owner")
    if commit and place is None:
        raise typer.BadParameter("requires --topic", param_hint="--commit")
    if ledger_topic and place is None:
        raise typer.BadParameter("requires --topic", param_hint="--ledger-topic")
    with _cluster(bootstrap_servers, properties, answer_ms=ABORT_MS) as cluster:
        target = (
            HangingPart(cluster, *place, commit=commit, ledger_topics=ledger_topic or ())
            if place is not None
            else OwnedTransaction(cluster, transactional_id or "", fence_owner=fence_owner)
        )
        decision = target.judge()
        if decision.abort and not (dry_run or yes):
            if not confirmed(f"{printable(target.plan())}\nReally?"):
                raise typer.Abort
            decision = target.judge()  # it may have ended, or gone on, in the meantime
        if decision.abort and not dry_run:
            target.abort()
        _report(target, decision, done=decision.abort and not dry_run, as_json=as_json)
    if not decision.abort:
        raise typer.Exit(FAILED)


# -- aborting


def _report(target: HangingPart | OwnedTransaction, decision: AbortDecision, *, done: bool, as_json: bool) -> None:
    if as_json:
        fields = {"target": target.name, "abort": decision.abort, "done": done}
        fields |= {"plan": target.plan()} if decision.abort else {}
        print(json.dumps({**fields, "reason": decision.reason, "action": decision.action}, indent=1))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if done:
        console.print(f"{target.ended} {target.name}.")
    elif decision.abort:
        console.print(f"Would be {target.ended.lower()}, because {decision.reason}. {target.plan()}")
    else:
        console.print(f"Refused for {target.name}: {decision.reason}. Nothing was changed. {decision.action}".rstrip())


def _place(
    transactional_id: str | None, topic: str | None, partition: int | None, start_offset: int | None
) -> tuple[TopicPartition, int] | None:
    """Where to write a marker; None if a whole transactional.id is meant. Raises typer.BadParameter."""
    flags = {"--topic": topic, "--partition": partition, "--start-offset": start_offset}
    if transactional_id is not None:
        for flag, value in flags.items():
            if value is not None:
                raise typer.BadParameter(
                    "cannot be combined with ID, which aborts the whole transaction", param_hint=flag
                )
        return None
    if topic is None and partition is None and start_offset is None:
        raise typer.BadParameter("give an ID, or --topic, --partition and --start-offset", param_hint="ID")
    if topic is None or partition is None or start_offset is None:
        lacking = next(flag for flag, value in flags.items() if value is None)
        raise typer.BadParameter("--topic, --partition and --start-offset are needed together", param_hint=lacking)
    return TopicPartition(topic, partition), start_offset


# -- looking


def _of_topics(cluster: Cluster, topics: list[str] | None) -> Survey:
    """What is open in these topics, by default in all."""
    snapshot = survey(cluster, partitions_of(cluster, topics), now_ms=_now())
    return snapshot if topics else replace(snapshot, left_out=topics_left_out(cluster))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """One transactional.id, with a survey of its partitions, and the entry in its open transaction if a table takes
    part.
    """

    survey: Survey
    facts: TransactionFacts
    with_table: LedgerEntry | None = None


def _described(cluster: Cluster, transactional_id: str) -> _Description:
    facts = owner_of(cluster, transactional_id)
    if facts is None:
        raise ToolFailed(
            f"no coordinator knows the transactional id {transactional_id!r}",
            action="`kafka-eos transactions list` shows those that there are.",
        )
    snapshot = survey(cluster, facts.partitions, now_ms=_now())
    facts = snapshot.transactions.get(transactional_id, facts)
    with_table = None
    with contextlib.suppress(KafkaEosError):  # of the ledger, which need not be read to describe the rest
        with_table = taking_part(cluster, facts)
    return _Description(survey=snapshot, facts=facts, with_table=with_table)


def _cluster(bootstrap_servers: str | None, properties: Path | None, *, answer_ms: int = ANSWER_MS) -> Cluster:
    return Cluster(client_of("--bootstrap-servers", bootstrap_servers, properties).answering_within(answer_ms))


def _now() -> int:
    return int(time.time() * 1e3)
