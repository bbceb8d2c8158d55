"""The topics, and partitions, that a writer declares: the option `outputTopics`, and KIP-609's pre-registration.

`orders:0-15,alerts` are the first 16 partitions of one topic, and a whole topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_eos.kafka.partitions import TopicPartition, numbers_to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopic:
    """A topic that may be written, and which of its partitions; None means all of them."""

    topic: str
    partitions: frozenset[int] | None = None

    def __str__(self) -> str:
        """As in the option."""
        if self.partitions is None:
            return self.topic
        return ",".join(f"{self.topic}:{part}" for part in numbers_to_text(self.partitions).split(","))

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
    return [output.topic for output in declared]


def outputs_to_text(declared: Iterable[OutputTopic]) -> str:
    """For messages."""
    return ", ".join(map(str, declared))
