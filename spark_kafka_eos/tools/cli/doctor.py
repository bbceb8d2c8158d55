"""`kafka-eos doctor`: what this machine, its Spark and its Python workers lack, and what to do."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_eos_python import beside
from kafka_eos_python.launcher import hindrance
from spark_kafka_eos.preflight.findings import Finding
from spark_kafka_eos.tools.cli.errors import FAILED
from spark_kafka_eos.tools.cli.findings import counted, errors, table
from spark_kafka_eos.tools.cli.query_options import (
    BootstrapServers,
    Properties,
    QueryOptions,
    RealTime,
    client_of,
    parse_pairs,
)
from spark_kafka_eos.tools.cli.terminal import Console, Text
from spark_kafka_eos.tools.doctor import folders, gather, pythons, spark_home, start
from spark_kafka_eos.tools.doctor.facts import Interpreter, Silent, Spark


def doctor(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    transactional_id: Annotated[
        str | None, typer.Option(help="The query's kafka.transactional.id: check its rights and topics, too.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="The query's option topic.")] = None,
    real_time: RealTime = False,
    checkpoint_location: Annotated[str | None, typer.Option(help="The query's checkpointLocation.")] = None,
    staging_dir: Annotated[str | None, typer.Option(help="The query's stagingDir.")] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Also ask each executor, with a small job; needs PySpark.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master. Default: that of spark-defaults.conf.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; can be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at this machine, its Spark and its Python workers, and say what to do. Changes nothing.

    Run it where the driver runs, in the same shell: environment variables decide what Spark starts.

    \b
    Exit code 0: ready; there may be warnings
              1: not ready: a query would fail
              2: the command line is wrong
              3: it could not be checked or done
    """
    overrides = parse_pairs(conf or [], "--conf", "spark.executor.cores=2")
    environment = dict(os.environ)
    spark = gather.spark_of(environment)
    settings = {**gather.settings_of(spark, environment), **overrides}
    master = master or settings.get("spark.master") or "local[*]"
    findings = _of_machine(spark, environment, settings, master if cluster else None)
    for kind, location in (
        (folders.Kind.CHECKPOINT, checkpoint_location),
        (folders.Kind.STAGING, staging_dir),
    ):
        if location is not None:
            folder = gather.folder_at(location)
            findings += folders.findings(kind, folder, user=gather.user(), is_local=master.startswith("local"))
    if bootstrap_servers or properties or transactional_id or topic:
        findings += _of_brokers(bootstrap_servers, properties, transactional_id, topic, real_time=real_time)
    if as_json:
        print(json.dumps(to_json(findings), indent=1))
    else:
        console = Console(highlight=False)
        console.print(table(findings, actions=False))
        for subjects, action in actions(findings):  # below the table, whose cells would break commands
            console.print(Text(f"- {', '.join(subjects)}: {action}"), soft_wrap=True)
        console.print(f"{counted(findings)}: {_verdict(findings)}.")
    if errors(findings):
        raise typer.Exit(FAILED)


def actions(findings: Sequence[Finding]) -> Iterator[tuple[list[str], str]]:
    """What to do, each once, with the checks that need it."""
    for action in dict.fromkeys(finding.action for finding in findings if finding.action):
        yield [finding.subject for finding in findings if finding.action == action], action


def to_json(findings: Sequence[Finding]) -> Mapping[str, Any]:
    """The verdict and the findings as plain values."""
    return {"verdict": _verdict(findings), "findings": [asdict(finding) for finding in findings]}


def _verdict(findings: Sequence[Finding]) -> str:
    return "not ready" if errors(findings) else "ready"


def _of_machine(
    spark: Spark | None, environment: Mapping[str, str], settings: Mapping[str, str], master: str | None
) -> list[Finding]:
    """What was found of Spark, Java and the Pythons; with a master, also of its executors' Pythons."""
    commands = dict.fromkeys(pythons.commands(environment, settings).values())
    answers = {command: gather.ask(command, spark, environment) for command in commands}
    findings = [
        *spark_home.findings(spark, gather.java_of(environment), gather.installed_pyspark()),
        *pythons.variables(environment, settings),
        *_of_pythons(answers, environment, settings),
    ]
    heard = {who: answer for who, answer in answers.items() if isinstance(answer, Interpreter)}
    if master is not None:
        there, of_executors = _of_executors(master, settings)
        findings += of_executors
        heard |= there
    return [
        *findings,
        *pythons.together(heard),
        *pythons.extras_together(heard),
        *start.findings(heard, environment, launcher=_launcher(), hindrance=hindrance(environment)),
    ]


def _of_pythons(
    answers: Mapping[str, Interpreter | Silent], environment: Mapping[str, str], settings: Mapping[str, str]
) -> Iterator[Finding]:
    uses = pythons.commands(environment, settings)
    another = pythons.to_use(_launcher() or sys.executable, environment)
    this = f"Run: {shlex.quote(sys.executable)} -m pip install spark-kafka-eos"
    for command, answer in answers.items():
        is_this = isinstance(answer, Interpreter) and answer.executable == sys.executable
        named_for = [use for use, named in uses.items() if named == command]
        yield from pythons.findings(command, answer, uses=named_for, cure=this if is_this else another)


def _of_executors(master: str, settings: Mapping[str, str]) -> tuple[Mapping[str, Interpreter], list[Finding]]:
    """The executors' Pythons, by who they are, and what was found of them."""
    from spark_kafka_eos.tools.doctor import executors

    answers = executors.ask(master, settings)
    cure = "Install spark-kafka-eos for that Python there, or ship an environment with --archives"
    findings = [pythons.findings(who, python, cure=cure) for who, python in answers.pythons.items()]
    return answers.pythons, [*executors.findings(answers), *chain.from_iterable(findings)]


def _of_brokers(
    bootstrap_servers: str | None,
    properties: Path | None,
    transactional_id: str | None,
    topic: str | None,
    *,
    real_time: bool,
) -> Sequence[Finding]:
    from spark_kafka_eos.tools.doctor import brokers

    if transactional_id is None and topic is None:
        return brokers.findings(client_of("--bootstrap-servers", bootstrap_servers, properties), None)
    query_options = QueryOptions(
        {
            "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
            "kafka.transactional.id": ("--transactional-id", transactional_id),
            "topic": ("--topic", topic),
        },
        properties=properties,
    )
    query = query_options.sink()
    return brokers.findings(query.client, query, real_time=real_time)


def _launcher() -> str | None:
    """kafka-eos-python of this command's environment, None if it is not installed there."""
    launcher = beside(sys.executable)
    return None if launcher == sys.executable else launcher
