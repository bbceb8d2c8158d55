"""A case: what the suites of Spark's own Kafka connector demand, and what both connectors do about it.

A case that differs names the words of `docs/migrating.md` which say so; it cannot be made without them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_kafka_eos.errors import KafkaEosError
from tests.spark.peer.connector import Connector

Run = Callable[[Connector], object]
CASES: list[Case] = []


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error; its message has a match of `words` (a regular expression, in any case)."""

    words: str

    def __str__(self) -> str:
        return f"refused: {self.words}"


@dataclass(frozen=True, slots=True)
class Documented:
    """The section of docs/migrating.md, and its words, that a difference is described by."""

    section: str
    words: str

    def __str__(self) -> str:
        return f"documented: {self.section}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`demand`: the outcome that the peer's suite expects of the built-in connector. `here`: that of this connector.
    `options`: what the case shows of the rows of the page.
    """

    sentence: str
    suite: str
    run: Run
    demand: object
    here: object
    options: tuple[str, ...] = ()
    documented: Documented | None = None
    in_every_run: bool = False

    def __post_init__(self) -> None:
        both_refuse = isinstance(self.demand, Refusal) and isinstance(self.here, Refusal)
        if (self.demand == self.here or both_refuse) != (self.documented is None):
            raise ValueError(f"{self.sentence}: a difference is documented, and nothing else")

    @property
    def verdict(self) -> str:
        return "equal" if self.documented is None else str(self.documented)


def case(
    suite: str,
    demand: object,
    *options: str,
    here: object = ...,
    documented: Documented | None = None,
    in_every_run: bool = False,
    sentence: str = "",
) -> Callable[[Run], Run]:
    """Adds a case whose sentence is the function's name. `here` is given where it is not `demand`."""

    def add(run: Run) -> Run:
        CASES.append(
            Case(
                sentence=sentence or run.__name__,
                suite=suite,
                run=run,
                demand=demand,
                here=demand if here is ... else here,
                options=options,
                documented=documented,
                in_every_run=in_every_run,
            )
        )
        return run

    return add


def outcome(run: Run, connector: Connector) -> object:
    """What the case returns, or the text of the error that it ends with."""
    try:
        return run(connector)
    except (PySparkException, Py4JError, KafkaEosError, ValueError) as error:
        return error


def differs(expected: object, actual: object) -> str:
    """How `actual` is not what is expected; empty if it is."""
    if isinstance(expected, Refusal):
        text = f"{actual}" if isinstance(actual, Exception) else ""
        return "" if text and re.search(expected.words, text, re.IGNORECASE) else f"{expected} ≠ {_shown(actual)}"
    return "" if actual == expected else f"{expected} ≠ {_shown(actual)}"


def shown(expected: Any) -> str:
    """An outcome in a cell of a table."""
    text = " ".join(str(expected).split())
    return text if len(text) <= 40 else f"{text[:39]}…"


def _shown(actual: object) -> str:
    """An outcome in an assertion, of an error what it says and not where."""
    lines = [line for line in str(actual).splitlines() if not line.startswith("\tat ")]
    return "\n".join([f"{type(actual).__name__}:", *lines] if isinstance(actual, Exception) else lines)
