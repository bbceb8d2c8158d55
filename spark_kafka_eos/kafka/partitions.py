"""Partitions, and offsets in them: frozen, picklable values without behavior. Pure.

Offsets are those of Kafka: the position of the next record to read. A range is half-open, `[start, end)`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; orders by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[TopicPartition, int]
IsolationLevel = Literal["read_committed", "read_uncommitted"]


def lowest(offset_maps: Iterable[Offsets]) -> dict[TopicPartition, int]:
    """The offsets of all of these; of a partition that is in several, the lowest one."""
    minima: dict[TopicPartition, int] = {}
    for offsets in offset_maps:
        for tp, offset in offsets.items():
            minima[tp] = min(offset, minima.get(tp, offset))
    return minima


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """`{topic: {partition: offset}}`, sorted: the shape of the built-in Kafka source's checkpoint."""
    out: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        out.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return out


def offsets_from_json(value: str | Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Inverse of `offsets_to_json`; also accepts JSON text. Raises ValueError for any other form."""
    parsed = json.loads(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping) or not all(isinstance(v, Mapping) for v in parsed.values()):
        raise ValueError(f"expected {{topic: {{partition: offset}}}}, got {value!r}")
    return {TopicPartition(t, int(p)): int(o) for t, ps in parsed.items() for p, o in ps.items()}


NumberRange = tuple[int, int]  # with both ends


def ranges_to_text(ranges: Iterable[NumberRange]) -> str:
    """`0-5,7`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def ranges_from_text(text: str) -> list[NumberRange]:
    """Inverse of `ranges_to_text`. Raises ValueError for any other form."""
    return [(int(first), int(last or first)) for first, _, last in (part.partition("-") for part in text.split(","))]


def joined(ranges: Iterable[NumberRange]) -> list[NumberRange]:
    """The same numbers in as few ranges as possible, sorted."""
    runs: list[NumberRange] = []
    for first, last in sorted(ranges):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
    return runs


def numbers_to_text(numbers: Iterable[int]) -> str:
    """Numbers as ranges, `0-5,7`."""
    return ranges_to_text(joined((number, number) for number in numbers))


NO_END = (1 << 63) - 1  # of a range that is followed


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition. There may be fewer records than `end - start` (markers, compaction).

    `topic_id` is the id of the topic (KIP-516), None if unknown: a topic that was created again has the same name and
    offsets, but other records. `leader_epoch` is the epoch of the leader when `end` was looked up, or a later one in
    which the range was planned (KIP-320); -1 if unknown. A broker that only knows an earlier one is outdated, and a
    record before `end` with a later one is another than was planned: the log was truncated since. `last_epoch` is that
    of the last record batch before `start` that was read, -1 if unknown: a leader whose log was truncated has another
    one there (KIP-595).
    """

    partition: TopicPartition
    start: int
    end: int
    topic_id: uuid.UUID | None = None
    leader_epoch: int = -1
    last_epoch: int = -1

    @property
    def size(self) -> int:
        return self.end - self.start


MAX_METADATA_BYTES = 4_096  # that a broker accepts, unless its offset.metadata.max.bytes says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """A consumer group's committed offset; `metadata` has at most MAX_METADATA_BYTES. `leader_epoch` is that of the
    last record before the offset (KIP-320), -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
