"""Whether a query reads what it writes: each batch would give the next one something to read, for ever. Pure.

It writes more than its output: dead letters, a ledger entry with each batch, and offsets. Only topics on the sink's
cluster count: another cluster's topic of the same name is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.reserved import LEDGER, LEDGER_TOPIC
from spark_kafka_eos.options.sink import internal_topics, ledger_topics, written_topics
from spark_kafka_eos.preflight.findings import Finding, Severity

_LEAVE_OUT = "Leave it out of what the query reads (subscribePattern may match it)"
_MEANT = "If you mean it, set allowLoop=true"


def loop(topics: Collection[str], options: SinkOptions, written: Iterable[str] = ()) -> Finding | None:
    """The finding that a query which reads `topics` of the sink's cluster writes one of them; None if not.

    `written` are topics that rows name.
    """
    if options.allow_loop:
        return None
    if options.dead_letter_topic is not None and options.dead_letter_topic in topics:
        return _finding(
            options.dead_letter_topic,
            "the query reads its deadLetterTopic",
            "A dead letter would come back in every batch",
            f"{_LEAVE_OUT}, or set another deadLetterTopic",
        )
    if own := sorted({*written_topics(options), *written}.intersection(topics)):
        return _finding(
            own[0],
            "the query reads this topic, which it writes",
            "It would read its own output, and write it again, for ever",
            f"{_LEAVE_OUT}, or write to another topic",
        )
    if kept := sorted({LEDGER_TOPIC, *ledger_topics(options)}.intersection(topics)):
        return _finding(
            kept[0],
            f"the query reads this topic, which {LEDGER}",
            "Ledger entries are no data, and each batch would add one to its own ledger, for ever",
            _LEAVE_OUT,
        )
    if internal := sorted(set(internal_topics(options)).intersection(topics)):
        return _finding(
            internal[0],
            "the query reads this topic of Kafka's own",
            "Each batch would add what it commits there, for ever",
            _LEAVE_OUT,
        )
    return None


def _finding(topic: str, observation: str, meaning: str, action: str) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        subject=f"topic {topic}",
        found=observation,
        meaning=meaning,
        action=f"{action}. {_MEANT}",
    )
