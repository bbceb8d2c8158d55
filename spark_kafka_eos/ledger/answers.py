"""What coordinators answered before a batch, to be confirmed before its transaction ends.

A paused group coordinator answers with old offsets until it learns of its successor, and only the current one accepts
the transaction's offsets: what it answers afterwards counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition

_GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata | None]
_AskAgain = Callable[[], _GroupOffsets]


class CoordinatorAnswers:
    """The answers that no coordinator has confirmed yet. Falsy without any. Not thread-safe."""

    def __init__(self) -> None:
        self._answers: list[tuple[str, _AskAgain, _GroupOffsets]] = []

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, group_id: str, ask: _AskAgain, answer: _GroupOffsets) -> None:
        """`ask` asks again, without waiting for pending offsets: they are those of the own transaction."""
        self._answers.append((group_id, ask, answer))

    def confirm(self) -> None:
        """Ask again. Raises TransactionAborted if a coordinator now answers otherwise, so that it was outdated."""
        for group_id, ask, answer in self._answers:
            now = ask()
            if now != answer:
                raise TransactionAborted(
                    f"group {group_id!r} is at {_to_text(now)}, not at {_to_text(answer)} as its coordinator answered "
                    "before the batch: that coordinator was outdated",
                    action="The ledger is read again before the batch is retried.",
                )

    def clear(self) -> None:
        self._answers.clear()


def _to_text(offsets: _GroupOffsets) -> str:
    return ", ".join(f"{tp}@{'none' if at is None else at.offset}" for tp, at in offsets.items()) or "nothing"
