"""Why a record may be a dead letter, how dead letters are counted, and how many a batch may have.

Spark loads this in each process that commits a batch of the sink, so it needs neither NumPy nor Arrow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from spark_kafka_eos.errors import TooManyDeadLetters
from spark_kafka_eos.options.values import Limit

LONGEST_CAUSE, LONGEST_MESSAGE = 64, 500  # characters
MOST_CAUSES = 20  # that are counted separately: a user's own may be many


class Cause(StrEnum):
    """Why a record is a dead letter, as far as this package finds out itself."""

    # It could not be decoded.
    NOT_FRAMED = "not-framed"  # no magic byte, or too short for a schema id
    UNKNOWN_SCHEMA = "unknown-schema"  # the registry has no schema with this id
    WRONG_SCHEMA = "wrong-schema"  # of another type or Protobuf message than the query asks for
    UNDECODABLE = "undecodable"  # the bytes do not fit the schema, or some are left over
    INCOMPATIBLE = "incompatible"  # the writer's and the reader's schema do not resolve
    OUT_OF_RANGE = "out-of-range"  # a value that Spark's type cannot hold
    # It could not be written.
    TOO_LARGE = "too-large"
    NO_TOPIC = "no-topic"  # neither the row nor an option names one
    TOPIC_NOT_ALLOWED = "topic-not-allowed"  # not in outputTopics, or only the ledger or the brokers write it
    PARTITION_NOT_ALLOWED = "partition-not-allowed"  # not in outputTopics
    UNKNOWN_TOPIC = "unknown-topic"
    UNKNOWN_PARTITION = "unknown-partition"
    INVALID_HEADERS = "invalid-headers"  # one is null or has no key
    INVALID_TIMESTAMP = "invalid-timestamp"  # before 1970, or too far from the broker's time for the topic
    NO_KEY = "no-key"  # and the topic is compacted
    # The row says so, but not why.
    OTHER = "other"


def cause_of(text: str | None) -> str:
    """A cause as headers and counts have it."""
    return shortened(text or "", LONGEST_CAUSE) or str(Cause.OTHER)


def counted(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts by cause, the most frequent first. Those beyond `MOST_CAUSES` count as `Cause.OTHER`."""
    totals: Counter[str] = Counter()
    for causes in counts:
        totals.update(causes)
    first = dict(totals.most_common(MOST_CAUSES))
    if rest := totals.total() - sum(first.values()):
        first[str(Cause.OTHER)] = first.get(Cause.OTHER, 0) + rest
    return first


def check_limit(dead: Mapping[str, int], records: int, limit: Limit | None) -> None:
    """Raise TooManyDeadLetters if a batch of so many `records`, these counts by cause among them, is above `limit`."""
    if limit is None:
        return
    bounds = [] if limit.count is None else [limit.count]
    bounds += [] if limit.share is None else [math.ceil(limit.share * records)]
    if (dead_letters := sum(dead.values())) > min(bounds):
        raise TooManyDeadLetters(
            f"{dead_letters:,} of the batch's {records:,} records are dead letters ({causes_to_text(dead)}), more than "
            f"maxDeadLetters={limit} allows",
            action="Fix the cause, or increase maxDeadLetters, and restart the query.",
        )


def causes_to_text(counts: Mapping[str, int]) -> str:
    """Counts by cause, in one line: `undecodable=3, not-framed=1`."""
    return ", ".join(f"{cause}={count}" for cause, count in counts.items())


def shortened(text: str, longest: int) -> str:
    """`text` on one line and within `longest` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
