"""The topics, and partitions, that a writer declares: the option `outputTopics`, and KIP-609's pre-registration.

`orders:0-15,alerts` are the first 16 partitions of one topic, and a whole topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options.parsers import text, topic

_PARTITIONS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopic:
    """A topic that may be written, and which of its partitions; None means all of them."""

    topic: str
    partitions: frozenset[int] | None = None

    def __str__(self) -> str:
        """As in the option."""
        if self.partitions is None:
            return self.topic
        return ",".join(
            f"{self.topic}:{first}" if first == last else f"{self.topic}:{first}-{last}"
            for first, last in _ranges(self.partitions)
        )

    def within(self, others: Iterable[OutputTopic]) -> bool:
        """Whether all of it is declared among the `others`."""
        for other in others:
            if other.topic == self.topic:
                return other.partitions is None or (self.partitions is not None and self.partitions <= other.partitions)
        return False

    def named(self) -> list[TopicPartition]:
        """The partitions that are named, in order; none if it is a whole topic."""
        return [TopicPartition(self.topic, number) for number in sorted(self.partitions or ())]


def output_topics(value: str) -> tuple[OutputTopic, ...]:
    """Comma-separated topics, each of them whole, or with a partition or a range (`orders:3`, `orders:0-15`, both ends
    included), of which a topic may have several. Duplicates and blank entries are dropped.
    """
    declared: dict[str, set[int] | None] = {}
    for entry in (entry.strip() for entry in text(value).split(",") if entry.strip()):
        name, colon, numbers = entry.partition(":")
        name = topic(name)
        found = _numbers(entry, numbers) if colon else None
        if name in declared and (declared[name] is None) != (found is None):
            raise ValueError(f"{name} is listed as a whole topic and with partitions")
        declared[name] = None if found is None else (declared.get(name) or set()) | found
    return tuple(
        OutputTopic(topic=name, partitions=None if numbers is None else frozenset(numbers))
        for name, numbers in declared.items()
    ) or (OutputTopic(topic=topic("")),)


def names(declared: Iterable[OutputTopic]) -> list[str]:
    """The topics' names."""
    return [each.topic for each in declared]


def shown(declared: Iterable[OutputTopic]) -> str:
    """For messages."""
    return ", ".join(map(str, declared))


def _numbers(entry: str, numbers: str) -> set[int]:
    match = _PARTITIONS.fullmatch(numbers)
    if match is None:
        raise ValueError(f"{entry!r} is not a topic with a partition or a range, for example orders:3 or orders:0-15")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"{entry!r} is an empty range: {last} comes before {first}")
    return set(range(first, last + 1))


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted numbers as ranges, with both ends."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
