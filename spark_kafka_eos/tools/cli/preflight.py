"""`kafka-eos preflight`: the checks of a query's first batch, as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from spark_kafka_eos.appending.staging import staging_of
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.preflight.findings import Finding
from spark_kafka_eos.preflight.loop import loop
from spark_kafka_eos.preflight.probe import probe as send_probe
from spark_kafka_eos.preflight.run import examine_source, examine_staging, service_of
from spark_kafka_eos.tools.cli import acls
from spark_kafka_eos.tools.cli.errors import FAILED
from spark_kafka_eos.tools.cli.findings import counted, errors, table
from spark_kafka_eos.tools.cli.query_options import (
    BootstrapServers,
    Properties,
    QueryOptions,
    RealTime,
    SourceBootstrapServers,
    SourceProperties,
    parse_pairs,
    source_client_of,
)
from spark_kafka_eos.tools.cli.terminal import Console
from spark_kafka_eos.tools.operators.before_start import examine_query


def preflight(
    context: typer.Context,
    bootstrap_servers: BootstrapServers = None,
    transactional_id: Annotated[str | None, typer.Option(help="The query's kafka.transactional.id.")] = None,
    topic: Annotated[str | None, typer.Option(help="The query's option topic.")] = None,
    output_topic: Annotated[
        list[str] | None, typer.Option(help="A topic in the query's outputTopics; can be repeated.")
    ] = None,
    source: Annotated[list[str] | None, typer.Option(help="A topic that the query reads; can be repeated.")] = None,
    source_bootstrap_servers: SourceBootstrapServers = None,
    source_properties: SourceProperties = None,
    properties: Properties = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other option of the sink; can be repeated.")
    ] = None,
    real_time: RealTime = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also begin and abort a scratch transaction, as TRANSACTIONAL_ID.probe.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    print_acls: Annotated[
        bool, typer.Option("--print-acls", help="Print the kafka-acls.sh commands that the query needs; check nothing.")
    ] = False,
    principal: Annotated[
        str | None, typer.Option(help="With --print-acls: whom to allow. Default: the user of the options.")
    ] = None,
) -> None:
    """Check a cluster, its topics and groups before a query starts. Changes nothing in the cluster, unless --probe.

    With --probe, a transaction is begun and aborted, which leaves a marker in each output topic, and no record.

    \b
    Exit code 0: the query would start
              1: the query would not start
              2: the command line is wrong
              3: it could not be checked, for example because no broker can be reached
    """
    query_options = QueryOptions(
        {
            "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
            "kafka.transactional.id": ("--transactional-id", transactional_id),
            "topic": ("--topic", topic),
            "outputTopics": ("--output-topic", ",".join(output_topic or []) or None),
        },
        properties=properties,
        named=parse_pairs(option or []),
    )
    options = query_options.sink()
    elsewhere = source_client_of(source_bootstrap_servers, source_properties)
    if elsewhere is not None and not source:
        where = "--source-properties" if source_bootstrap_servers is None else "--source-bootstrap-servers"
        raise typer.BadParameter("requires --source, a topic on that cluster", param_hint=where)
    sources = list(dict.fromkeys(source or []))
    if print_acls:
        acls.show(options, sources, elsewhere, principal=principal, real_time=real_time, as_json=as_json)
        return
    if principal is not None:
        raise typer.BadParameter("requires --print-acls", param_hint="--principal")
    check = context.obj or _examine  # a test hands in another
    findings = check(options, sources, elsewhere, real_time)
    if options.staging_dir is not None:
        findings.append(examine_staging(staging_of(options, options.staging_dir)))
    if probe and not errors(findings):
        findings.append(_probe(options, sources if elsewhere is None else []))
    if as_json:
        print(json.dumps(to_json(findings), indent=1))
    else:
        console = Console(highlight=False)
        console.print(table(findings))
        console.print(summary(findings))
    if errors(findings):
        raise typer.Exit(FAILED)


def _examine(
    options: SinkOptions, sources: Sequence[str], elsewhere: ClientOptions | None, real_time: bool
) -> list[Finding]:
    with Cluster(options.client) as cluster:
        findings = examine_query(cluster, options, real_time=real_time)
        if elsewhere is None:
            return findings + _of_sources(cluster, sources) + _loops(sources, options)
        with Cluster(elsewhere) as origin:
            findings += _of_sources(origin, sources)
            return findings + (_loops(sources, options) if origin.cluster_id() == cluster.cluster_id() else [])


def _of_sources(cluster: Cluster, sources: Sequence[str]) -> list[Finding]:
    return examine_source(cluster, sources) if sources else []


def _loops(sources: Sequence[str], options: SinkOptions) -> list[Finding]:
    return [finding] if (finding := loop(sources, options)) else []


def _probe(options: SinkOptions, sources: Sequence[str]) -> Finding:
    with Cluster(options.client) as cluster:
        service = service_of(cluster)
    return send_probe(options, sources, service)


def summary(findings: Sequence[Finding]) -> str:
    """The numbers of errors and warnings, in a sentence."""
    return f"{counted(findings)}: the query {_verdict(findings)}."


def to_json(findings: Sequence[Finding]) -> Mapping[str, Any]:
    """The verdict and the findings as plain values."""
    return {"verdict": _verdict(findings), "findings": [asdict(finding) for finding in findings]}


def _verdict(findings: Sequence[Finding]) -> str:
    return "would not start" if errors(findings) else "would start"
