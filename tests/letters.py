"""The headers of one dead letter, as the product writes them for many at once."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa

from spark_kafka_eos.dead_letters.headers import LETTERS, DeadLetter, header_columns


def headers_of(letter: DeadLetter) -> list[tuple[str, bytes]]:
    """The headers that a dead letter has after the record's own."""
    row = pa.RecordBatch.from_pylist([asdict(letter)], schema=LETTERS)
    return [(name, value.as_py()) for name, _, values in header_columns(row) for value in values]
