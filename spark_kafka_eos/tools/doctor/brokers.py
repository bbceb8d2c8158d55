"""What brokers say of themselves; of a query's topics and rights, what its preflight finds."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import Settings, Unavailable
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.preflight import checks, releases
from spark_kafka_eos.preflight.abilities import sink_findings
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.run import service_of
from spark_kafka_eos.tools.operators.before_start import examine_query

_LIMITS = (*checks.BROKER_SETTINGS, *checks.OPTIONAL_BROKER_SETTINGS, "message.max.bytes")


def findings(client: ClientOptions, query: SinkOptions | None, *, real_time: bool = False) -> list[Finding]:
    """Release, APIs and limits; with the options of a query all that its preflight checks, `real_time` also on its
    buckets. Changes nothing.
    """
    with Cluster(client) as cluster:
        limits = limit_finding(describe.broker_settings(cluster, cluster.nodes()[0], _LIMITS))
        return [*(examine_query(cluster, query, real_time=real_time) if query else _cluster(cluster)), limits]


def _cluster(cluster: Cluster) -> Iterator[Finding]:
    abilities = describe.abilities(cluster)
    brokers = len(cluster.nodes())
    yield Finding(
        severity=Severity.OK, subject="cluster", found=f"reachable, {brokers} broker{'' if brokers == 1 else 's'}"
    )
    yield from releases.findings(abilities, cluster.transaction_version())
    yield from sink_findings(abilities, service_of(cluster), transactions=True)


def limit_finding(limits: Settings | Unavailable) -> Finding:
    """The limits of a broker that options are compared with."""
    subject = "limits of a broker"
    if isinstance(limits, Unavailable):
        return Finding(
            severity=Severity.WARNING,
            subject=subject,
            found=f"could not be read: {limits.reason}",
            action=f"Grant {limits.grant} to this principal" if limits.grant else "",
        )
    observation = ", ".join(f"{name}={value}" for name, value in sorted(limits.items()))
    return Finding(severity=Severity.OK, subject=subject, found=observation)
