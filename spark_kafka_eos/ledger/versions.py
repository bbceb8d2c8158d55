"""The versions of batch writes that are known to be written to a destination: ranges such as `1-57,60`. Pure.

Versions may be dates or times, so ranges are never expanded.
"""

from __future__ import annotations

from spark_kafka_eos.kafka.partitions import NumberRange, joined, ranges_from_text, ranges_to_text

MOST_RANGES = 100  # of one destination: of older ones it is not known any more which versions ran


def contains(versions: str, version: int) -> bool:
    """Whether this version is among them."""
    return any(first <= version <= last for first, last in _ranges(versions))


def last(versions: str) -> int:
    """The highest version, -1 if there is none."""
    return max((last for _, last in _ranges(versions)), default=-1)


def added(versions: str, version: int) -> str:
    """The versions with this one; the lowest ranges are dropped if there are too many."""
    return ranges_to_text(joined([*_ranges(versions), (version, version)])[-MOST_RANGES:])


def _ranges(versions: str) -> list[NumberRange]:
    return ranges_from_text(versions) if versions else []
