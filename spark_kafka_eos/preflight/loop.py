"""Whether a query reads its own dead letters: each would come back in every batch."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.preflight.findings import Finding, Severity


def loop(topics: Iterable[str], options: SinkOptions) -> Finding | None:
    """The finding that a query which reads `topics` of the sink's cluster reads its own dead letters; None if not."""
    if options.dead_letter_topic is None or options.dead_letter_topic not in topics:
        return None
    return Finding(
        severity=Severity.ERROR,
        subject=f"topic {options.dead_letter_topic}",
        found="the query reads its deadLetterTopic",
        meaning="A dead letter would come back in every batch",
        action="Leave it out of what the query reads (subscribePattern may match it), or set another deadLetterTopic",
    )
