"""The preflight: read the facts, judge them (core.preflight), stop at errors, say each warning once."""

from __future__ import annotations

import functools
import logging
import time

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core import preflight as judge
from spark_kafka_eos.core.preflight import Facts, Finding, Severity
from spark_kafka_eos.errors import PreflightFailed
from spark_kafka_eos.options import SinkOptions

_log = logging.getLogger(__name__)


def preflight(cluster: Cluster, options: SinkOptions) -> None:
    """To be called before the first batch, before InitProducerId. Does nothing with `preflight=false`.

    Raises PreflightFailed with every error found; BrokerUnreachable, AuthenticationFailed and BrokerError where the
    cluster could not be asked. Warnings are logged once per process.
    """
    if not options.preflight:
        return
    started = time.perf_counter()
    findings = examine(cluster, options)
    _log.info("preflight: %d checks in %.0f ms", len(findings), (time.perf_counter() - started) * 1e3)
    for finding in findings:
        if finding.severity is Severity.WARNING:
            _warn_once(str(finding))
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        listed = "".join(f"\n- {error}" for error in errors)
        raise PreflightFailed(
            f"the preflight found {len(errors)} error{'' if len(errors) == 1 else 's'}:{listed}",
            action="Correct that and start again; preflight=false starts the query in spite of it.",
        )


def examine(cluster: Cluster, options: SinkOptions) -> list[Finding]:
    """Every check's finding. Changes nothing in the cluster, but may be the first to need its internal topics."""
    transactional_id = options.transactional_id
    groups = {name: describe.group(cluster, name) for name in judge.groups(options)}
    transaction = settings = None
    if transactional_id:
        transaction = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1e3))
        settings = describe.coordinator_settings(cluster, transactional_id, judge.BROKER_SETTINGS)
    # The internal topics exist once a coordinator was found.
    own, internal = judge.own_topics(options), judge.internal_topics(options)
    brokers, topics = describe.topics(cluster, [*own, *internal], judge.TOPIC_SETTINGS, awaited=own)
    facts = Facts(
        brokers=brokers,
        transaction_version=cluster.transaction_version(),
        settings={} if settings is None else settings,
        transaction=transaction,
        groups=groups,
        topics=topics,
    )
    return judge.findings(facts, options)


@functools.cache
def _warn_once(text: str) -> None:
    _log.warning("preflight: %s", text)
