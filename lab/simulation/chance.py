"""What answers the questions at which a history branches: does a fault happen here, of which kind, who goes on?

Each question has a name. The seeded mode draws a random number for each; `exhaustive` answers by name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """The answers of one history; `what` names the question."""

    def happens(self, what: str, share: float) -> bool:
        """Yes with the probability `share`."""

    def choose(self, what: str, options: Sequence[T]) -> T:
        """One of the options, which are equally probable."""

    def kind(self, what: str, weights: Mapping[str, int]) -> str:
        """One of the keys, each as probable as its weight says."""

    def fraction(self, what: str) -> float:
        """A number in [0, 1)."""


class Seeded:
    """Random numbers of one generator in a fixed order, so a seed determines a whole history."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets

    def happens(self, what: str, share: float) -> bool:  # noqa: ARG002 - every question is a number here
        return self._random.random() < share

    def choose(self, what: str, options: Sequence[T]) -> T:  # noqa: ARG002
        return self._random.choice(options)

    def kind(self, what: str, weights: Mapping[str, int]) -> str:  # noqa: ARG002
        return self._random.choices(tuple(weights), tuple(weights.values()))[0]

    def fraction(self, what: str) -> float:  # noqa: ARG002
        return self._random.random()
