"""DataFrames without a JVM, for what reads their rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.types import StructType


class Frame:
    """As much of a DataFrame as is read, with PySpark's own conversion of Spark's internal values."""

    def __init__(self, schema: StructType, *rows: tuple[Any, ...]) -> None:
        self.schema, self._rows = schema, rows

    _jdf = "of a classic session"

    def toLocalIterator(self) -> Iterator[Row]:
        return (self.schema.fromInternal(row) for row in self._rows)


def internal(instant: datetime) -> int:
    """Spark's own form of a time: microseconds since 1970."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
