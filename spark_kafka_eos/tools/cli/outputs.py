"""How `kafka-eos query show` and `top` show what is open in the topics that a query writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spark_kafka_eos.tools.cli.transaction_tables import WHO_ENDS, ago, part_json
from spark_kafka_eos.tools.operators.outputs import Output
from spark_kafka_eos.tools.operators.survey import Ending, OpenPart


def output_lines(written: Iterable[Output], now_ms: int) -> Iterator[tuple[str, str]]:
    """A line for each topic, and one for each partition that nobody will release; names are left of them."""
    for output in written:
        yield "output", f"{output.topic}: {_state(output, now_ms)}"
        yield from (("", part.end_command) for part in output.holding if part.ending is Ending.NOBODY)


def _state(output: Output, now_ms: int) -> str:
    oldest = output.oldest
    parts = []
    if oldest is not None:
        age = "" if oldest.since_ms is None else f", since {ago(now_ms - oldest.since_ms)}"
        count = "an unknown number of" if output.held_offsets is None else f"{output.held_offsets:,}"
        parts.append(
            f"open transactions hold {count} offsets in {len(output.holding)} of {_partitions(output)}; the oldest, in "
            f"{oldest.partition}, is {_owner(oldest)}{age}; who ends it: {WHO_ENDS[oldest.ending]}"
        )
    elif output.partitions:
        parts.append(f"no transaction is open in {_partitions(output)}")
    parts += [f"unknown: {why}" for why in output.unknown]
    return "; ".join(parts) or "not looked at"


def _partitions(output: Output) -> str:
    return "1 partition" if output.partitions == 1 else f"{output.partitions} partitions"


def _owner(part: OpenPart) -> str:
    if part.facts is not None:
        return f"of {part.facts.transactional_id}"
    return f"of producer {part.producer.producer_id}, epoch {part.producer.epoch}"


def outputs_json(written: Sequence[Output]) -> list[dict[str, Any]]:
    """The same for JSON; `held_offsets` is null if it is unknown."""
    return [
        {
            "topic": output.topic,
            "partitions": output.partitions,
            "held_offsets": output.held_offsets,
            "open": [part_json(part) for part in output.holding],
            "unknown": list(output.unknown),
        }
        for output in written
    ]
