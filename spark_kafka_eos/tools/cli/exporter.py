"""`kafka-eos exporter`: metrics of a cluster's queries and transactions for Prometheus, from Kafka alone."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterable
from time import monotonic
from typing import Annotated, Any

import typer
from prometheus_client import generate_latest

from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.words import printable
from spark_kafka_eos.observe.endpoint import Endpoint, registry_of
from spark_kafka_eos.observe.metrics import Series
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.table import SOURCE, parse_options
from spark_kafka_eos.tools.cli.query_options import (
    BootstrapServers,
    Properties,
    QueryOptions,
    SourceBootstrapServers,
    SourceProperties,
    source_client_of,
)
from spark_kafka_eos.tools.operators.cluster_metrics import CLUSTER_METRICS, down
from spark_kafka_eos.tools.operators.cluster_watch import ClusterWatch

_ANSWER_MS = 10_000  # a broker that takes longer is shown as one that does not answer
_OLD_SECONDS, _OLD_LOOKS = 120.0, 4  # figures are old after so long, and so many looks that were due


def exporter(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    ledger_topic: Annotated[
        list[str] | None, typer.Option(help=f"A ledger topic; can be repeated. Default: {LEDGER_TOPIC}.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to look at besides those that queries read and write; can be repeated."),
    ] = None,
    source_bootstrap_servers: SourceBootstrapServers = None,
    source_properties: SourceProperties = None,
    port: Annotated[int, typer.Option(help="Port to serve metrics on; 0 is a free one, which is shown.")] = 9410,
    host: Annotated[str, typer.Option(help="Address to serve metrics on. There is no login.")] = "127.0.0.1",
    interval: Annotated[float, typer.Option(help="Seconds between two looks at the cluster.", min=1)] = 15.0,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print them as JSON.")] = False,
) -> None:
    """Serve metrics of a cluster's queries and transactions for Prometheus, until Ctrl-C. Changes nothing.

    It needs no query: everything comes from the ledgers, the leaders and the transaction coordinators.
    """
    if as_json and not once:
        raise typer.BadParameter("requires --once", param_hint="--json")
    query_options = QueryOptions(
        {
            "kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers),
            "metricsPort": ("--port", str(port)),
            "metricsHost": ("--host", host),
        },
        properties=properties,
    )
    with query_options.named_as_given():
        clients = [client_options(parse_options(query_options.values, SOURCE))]
    if (elsewhere := source_client_of(source_bootstrap_servers, source_properties)) is not None:
        clients.append(elsewhere)
    with contextlib.ExitStack() as opened:
        cluster, *sources = [opened.enter_context(Cluster(client.answering_within(_ANSWER_MS))) for client in clients]
        watch = ClusterWatch(cluster, ledger_topics=ledger_topic or None, topics=topic or (), sources=sources)
        if once:
            _print(watch.look(), as_json=as_json)
        else:
            with query_options.named_as_given():
                _serve(watch, host, port, interval)


def _print(series: Series, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(list(_values(series)), indent=1))
    else:
        print(printable(generate_latest(registry_of(CLUSTER_METRICS, lambda: series)).decode()), end="")


def _values(series: Series) -> Iterable[dict[str, Any]]:
    for metric in CLUSTER_METRICS:
        for labels, value in series.values(metric).items():
            yield {
                "name": metric.name,
                "labels": dict(zip(metric.labels, labels, strict=True)),
                "value": value,
            }


def _serve(watch: ClusterWatch, host: str, port: int, interval: float) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    latest, until = down(), 0.0  # a look that waits for brokers may take longer than the next one's turn
    endpoint = Endpoint(
        CLUSTER_METRICS, lambda: latest if monotonic() < until else down(), host=host.strip(), port=port
    )
    try:
        while True:
            latest = watch.look_again()
            until = monotonic() + max(_OLD_SECONDS, _OLD_LOOKS * interval)
            time.sleep(interval)
    finally:
        endpoint.close()
