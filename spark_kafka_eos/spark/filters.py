"""Converts Spark's filters for `core.filters`, and notes with which filters a loaded DataFrame was planned."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_kafka_eos.core.filters import Condition, Operator

_OPERATORS: dict[type, Operator] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_TYPES = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT_SECONDS = 7 * 86_400


def conditions(filters: Iterable[Filter]) -> Iterator[Condition]:
    """The filters that compare topic, partition, offset or timestamp with values. The others do not narrow the read."""
    for one in filters:
        operator = _OPERATORS.get(type(one))
        if operator is None:
            continue
        compared: Any = one  # all of these have a column and a value
        column = ".".join(compared.attribute)
        # Nothing equals null, so IN can ignore it.
        values = [value for value in (compared.value if isinstance(one, In) else [compared.value]) if value is not None]
        if column in _TYPES and values and all(isinstance(value, _TYPES[column]) for value in values):
            yield Condition(column=column, operator=operator, values=tuple(map(_comparable, values)))


def _comparable(value: Any) -> int | str:
    if not isinstance(value, datetime):
        return value  # type: ignore[no-any-return]
    return (value - _EPOCH) // timedelta(microseconds=1)


def is_first_plan(frame: str, filters: str) -> bool:
    """Whether this loaded DataFrame was planned with these filters only.

    Each plan is made in a separate process, so the filters are noted on the driver's disk, for a week.
    """
    folder = Path(tempfile.gettempdir()) / f"kafka-eos-plans-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    _remove_old(folder)
    note = folder / frame
    try:
        with note.open("x") as new:
            new.write(filters)
    except FileExistsError:
        if note.read_text() != filters:
            note.write_text("more than one")
            return False
        note.touch()
    return True


def _remove_old(folder: Path) -> None:
    before = time.time() - _KEPT_SECONDS
    for note in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it
            if note.stat().st_mtime < before:
                note.unlink()
