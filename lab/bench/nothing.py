"""A source and a sink in Python that do nothing: how long the start of a query takes that has any.

Spark's processes are those of a query with ours. This module is imported in each of them, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_ROWS = 1_000  # in one task, as a few records of ours are


class Nothing(DataSource):
    """Gives some rows, and drops what it gets."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "key binary, value binary"

    def streamReader(self, schema: StructType) -> NothingReader:  # noqa: N802, ARG002 - Spark's signature
        return NothingReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NothingWriter:  # noqa: N802, ARG002 - Spark's signature
        return NothingWriter()


class NothingReader(DataSourceStreamReader):
    """A stream of one micro-batch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802 - the signature without limits
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002 - Spark's signature
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's signature
        import pyarrow as pa

        columns = {"key": [b"k" * 8] * _ROWS, "value": [b"v" * 100] * _ROWS}
        yield pa.record_batch({name: pa.array(values, pa.binary()) for name, values in columns.items()})


class NothingWriter(DataSourceStreamArrowWriter):
    """Drops all rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: how many rows each batch has."""
    import pyarrow as pa

    for batch in batches:
        yield pa.record_batch({"n": pa.array([batch.num_rows], pa.int64())})
