"""The preflight: reads the facts, has `checks` check them, raises on errors, logs each warning once."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import KafkaEosError, PreflightFailed, StagingFull
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import GroupFacts
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger.source_mark import other_ids
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import bucket_id, internal_topics, ledger_topics, written_topics
from spark_kafka_eos.options.sink import groups as groups_of
from spark_kafka_eos.preflight import checks, message_formats, releases
from spark_kafka_eos.preflight.abilities import sink_findings, source_findings
from spark_kafka_eos.preflight.checks import Facts
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.services import Service, recognised

_log = logger(__name__)

Examine = Callable[[Cluster, SinkOptions], list[Finding]]


def examine(cluster: Cluster, options: SinkOptions, *, buckets: int = 0) -> list[Finding]:
    """The findings of all checks, also on so many buckets of a query in real time. Changes nothing in the cluster,
    except that Kafka may create its internal topics.
    """
    transactional_id = options.transactional_id
    abilities = describe.abilities(cluster)
    findings = list(sink_findings(abilities, service_of(cluster), transactions=bool(transactional_id)))
    if any(finding.severity is Severity.ERROR for finding in findings):
        return findings
    groups = {name: describe.group(cluster, name) for name in groups_of(options)}
    if transactional_id and isinstance(of_source := groups.get(options.group_id), GroupFacts):
        committed = GroupCoordinator(cluster, options.group_id).fetch_all(require_stable=False)
        groups[options.group_id] = replace(of_source, sinks=tuple(other_ids(committed, transactional_id)))
    transaction = settings = None
    now_ms = int(time.time() * 1e3)
    of_buckets = [bucket_id(transactional_id, number) for number in range(buckets)]
    if transactional_id:
        transaction = describe.transaction(cluster, transactional_id, now_ms=now_ms)
        settings = describe.coordinator_settings(
            cluster,
            transactional_id,
            checks.BROKER_SETTINGS,
            optional=(*checks.OPTIONAL_BROKER_SETTINGS, *message_formats.BROKER_SETTINGS),
        )
    # The internal topics exist once a coordinator has been found.
    written, others = written_topics(options), [*ledger_topics(options), *internal_topics(options)]
    brokers, topics = describe.topics(
        cluster,
        [*written, *others],
        checks.TOPIC_SETTINGS,
        optional=(*checks.OPTIONAL_TOPIC_SETTINGS, *message_formats.TOPIC_SETTINGS),
        awaited=written,
    )
    can_create = "CreateTopics" not in abilities.lacking  # which has a finding of its own
    to_create = [name for name in ledger_topics(options) if can_create and topics[name] is None]
    version = cluster.transaction_version()
    facts = Facts(
        brokers=brokers,
        transaction_version=version,
        settings={} if settings is None else settings,
        transaction=transaction,
        buckets={name: describe.transaction(cluster, name, now_ms=now_ms) for name in of_buckets},
        groups=groups,
        topics=topics,
        refusals=_refusals(cluster, to_create),
        two_phase_commit=abilities.two_phase_commit,
    )
    if settings is None and message_formats.any_old(facts):
        any_broker = cluster.nodes()[0]
        facts = replace(facts, settings=describe.broker_settings(cluster, any_broker, message_formats.BROKER_SETTINGS))
    return [
        *checks.findings(facts, options),
        *message_formats.findings(facts, options),
        *(releases.findings(abilities, version) if transactional_id else ()),
        *findings,
    ]


def _refusals(cluster: Cluster, to_create: Sequence[str]) -> dict[str, KafkaEosError]:
    """The errors with which brokers would refuse to create these ledger topics."""
    if not to_create:
        return {}
    from spark_kafka_eos.ledger.create import refusal  # on new clusters only

    return {name: refused for name in to_create if (refused := refusal(cluster, name)) is not None}


def examine_source(cluster: Cluster, topics: Sequence[str]) -> list[Finding]:
    """The findings on `topics` that a query reads, on the cluster they are on."""
    if lacking := list(source_findings(describe.abilities(cluster))):
        return lacking
    _, facts = describe.topics(cluster, topics, (), awaited=topics)
    return checks.source_findings(facts)


def examine_staging(staging: Staging) -> Finding:
    """Whether this process, on the driver, can use the staging directory."""
    subject = f"staging directory {staging.directory}"
    try:
        staging.probe()
    except Exception as error:  # noqa: BLE001 - each file system has its own errors
        what = error.what if isinstance(error, KafkaEosError) else f"{type(error).__name__}: {error}"
        full = error if isinstance(error, StagingFull) else None  # small batches need no space
        return Finding(
            severity=Severity.WARNING if full else Severity.ERROR,
            subject=subject,
            found=f"cannot be written ({what})",
            meaning="Every task with more than 100 kB of record batches would fail",
            action=full.action.removesuffix(".")
            if full
            else "Set stagingDir to a directory that the driver and all executors share",
        )
    return Finding(severity=Severity.OK, subject=subject, found="can be written by the driver")


def service_of(cluster: Cluster) -> Service | None:
    """The service behind these brokers, if it is one that is known to lack something."""
    return recognised((host for host, _ in cluster.options.bootstrap_servers), cluster.cluster_id())


def preflight(
    cluster: Cluster, options: SinkOptions, staging: Staging | None = None, *, examine: Examine = examine
) -> None:
    """Call it before any task of the first batch runs. Does nothing with `preflight=false`.

    `staging` is where the tasks will leave their blocks, None if they leave none. Warnings are logged once per process.
    Raises PreflightFailed with every error found; BrokerUnreachable, AuthenticationFailed or BrokerError if the facts
    could not be read.
    """
    if not options.preflight:
        return
    started = time.perf_counter()
    findings = [*([] if staging is None else [examine_staging(staging)]), *examine(cluster, options)]
    _log.info("preflight: %d checks in %.0f ms", len(findings), (time.perf_counter() - started) * 1e3)
    for finding in findings:
        if finding.severity is Severity.WARNING:
            _warn_once(str(finding))
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        listed = "".join(f"\n- {error}" for error in errors)
        raise PreflightFailed(
            f"the preflight found {len(errors)} error{'' if len(errors) == 1 else 's'}:{listed}",
            action="Fix this and restart; with preflight=false, the query starts in spite of it.",
        )


@functools.cache
def _warn_once(text: str) -> None:
    _log.warning("preflight: %s", text)
