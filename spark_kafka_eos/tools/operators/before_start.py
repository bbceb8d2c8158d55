"""What the preflight checks, and what only an operator asks before a query starts: what hangs in its output.

In a task or a driver, the start itself ends what hangs of the query (`transaction.hanging`), so it need not ask.
"""

from __future__ import annotations

import time

from spark_kafka_eos.errors import AuthorizationFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.topics import unknown
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import BUCKETS, written_topics
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey
from spark_kafka_eos.tools.operators.queries import QueryReader
from spark_kafka_eos.tools.operators.survey import Ending, OpenPart, Survey


def examine_query(cluster: Cluster, options: SinkOptions, *, real_time: bool = False) -> list[Finding]:
    """The findings of the preflight, and those on what hangs in the topics that the query writes. In `real_time` also
    on its buckets: as many as its ledger says, at first one.
    """
    buckets = _buckets(cluster, options) if real_time else 0
    findings = examine(cluster, options, buckets=buckets)
    return [*findings, *_hanging(cluster, options)] if options.transactional_id else findings


def _buckets(cluster: Cluster, options: SinkOptions) -> int:
    reader = QueryReader(cluster, ledger_topics=[options.ledger_topic], only=options.transactional_id)
    try:
        statuses = reader.read(lag=False, owners=False)
    except AuthorizationFailed:  # of which the preflight has a finding
        return 1
    return max(1, *(len(status.buckets) for status in statuses)) if statuses else 1


def _hanging(cluster: Cluster, options: SinkOptions) -> list[Finding]:
    topics = written_topics(options)
    there = set(topics) - unknown(cluster, topics).keys() if topics else set()
    now_ms = int(time.time() * 1e3)
    transactions = survey(cluster, partitions_of(cluster, there), now_ms=now_ms)
    hanging = [hanging_finding(part, options.transactional_id, now_ms) for part in transactions.hanging]
    return [*hanging, *unjudged_findings(transactions)]


def unjudged_findings(transactions: Survey) -> list[Finding]:
    """The finding on what could not be looked at, or not be judged; none if there is nothing."""
    reasons = list(dict.fromkeys(transactions.unavailable.values()))
    if suspects := [str(part.partition) for part in transactions.open_parts if part.ending is Ending.UNKNOWN]:
        reasons.append(
            f"a transaction is open in {', '.join(dict.fromkeys(suspects))}, and not every coordinator answered, or "
            "this principal may not describe every transactional id and the topic __transaction_state"
        )
    if not reasons:
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            subject="open transactions in the output",
            found=f"could not be checked: {'; '.join(reasons)}",
            meaning="Whether one hangs, so that whoever reads with read_committed waits there, is not known",
            action="Look again when every broker answers, or with these rights: kafka-eos transactions hanging",
        )
    ]


def hanging_finding(part: OpenPart, transactional_id: str, now_ms: int) -> Finding:
    """The finding on a part of a transaction that nobody but an operator, or the query's start, will end."""
    tp, name = part.partition, None if part.facts is None else part.facts.transactional_id
    whose = f"producer {part.producer.producer_id}" if name is None else name
    since = "" if part.since_ms is None else f", since {duration(max(0, now_ms - part.since_ms))}"
    own = name == transactional_id or (name is not None and name.startswith(transactional_id + BUCKETS))
    return Finding(
        severity=Severity.WARNING,
        subject=f"open transaction in {tp}",
        found=f"of {whose} from offset {part.producer.start_offset} on{since}, and its coordinator will not end it",
        meaning="Whoever reads with read_committed waits there",
        action="Start the query: it ends its own" if own else f"End it: {part.end_command}",
    )
