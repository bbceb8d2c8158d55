"""What brokers answered before a batch, to be confirmed before its transaction ends.

A paused group coordinator or leader answers with what is old until it learns of its successor, and only the current one
accepts the transaction's offsets and records: what it answers afterwards counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition

_GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata | None]
_AskAgain = Callable[[], _GroupOffsets]


class BrokerAnswers:
    """The answers that are not confirmed yet. Falsy without any. Not thread-safe."""

    def __init__(self) -> None:
        self._answers: list[tuple[str, _AskAgain, _GroupOffsets]] = []

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, where: str, ask: _AskAgain, answer: _GroupOffsets) -> None:
        """What `where` has. `ask` asks again, without waiting for what is pending: that is of the own transaction."""
        self._answers.append((where, ask, answer))

    def confirm(self) -> None:
        """Ask again. Raises TransactionAborted if a broker now answers otherwise, so that it was outdated."""
        for where, ask, answer in self._answers:
            now = ask()
            if now != answer:
                raise TransactionAborted(
                    f"{where} is at {_to_text(now)}, not at {_to_text(answer)} as its broker answered before the "
                    "batch: that broker was outdated",
                    action="The ledger is read again before the batch is retried.",
                )

    def clear(self) -> None:
        self._answers.clear()


def _to_text(offsets: _GroupOffsets) -> str:
    return ", ".join(f"{tp}@{'none' if at is None else at.offset}" for tp, at in offsets.items()) or "nothing"
