"""The topics, and partitions, that a writer declares: the option `outputTopics`, and KIP-609's pre-registration.

`orders:0-15,alerts` are the first 16 partitions of one topic, and a whole topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_eos.model import TopicPartition


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


def names(declared: Iterable[OutputTopic]) -> list[str]:
    """The topics' names."""
    return [each.topic for each in declared]


def shown(declared: Iterable[OutputTopic]) -> str:
    """For messages."""
    return ", ".join(map(str, declared))


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted numbers as ranges, with both ends."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
