"""Streams whose records never enter the JVM: one Python task reads them, transforms them and encodes them, in Arrow.

    writer = TransactionalWriter(sink)
    arrow_stream(spark, source, writer, transform).option("checkpointLocation", path).start()

The query's DataFrame has a row for each offset range (the source's option `rows=offsetRanges`), and the encode tasks
read those ranges. With a DataFrame of records, each record passes from the Python that reads to the JVM, and from there
to the Python that encodes. Offsets, checkpoint and everything after encoding are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType

from spark_kafka_eos.appending.blocks import ROWS, EncodeSettings
from spark_kafka_eos.errors import ConfigurationError, InvalidSchema, errors_of_source
from spark_kafka_eos.options import SourceOptions, source_options
from spark_kafka_eos.reading.ranges import from_rows
from spark_kafka_eos.spark.datasource import limits_applied
from spark_kafka_eos.spark.encode_stage import RowBatches
from spark_kafka_eos.spark.features import LIMITS
from spark_kafka_eos.spark.rows import check_schema
from spark_kafka_eos.spark.schema import selecting
from spark_kafka_eos.spark.source import read_records
from spark_kafka_eos.spark.writer import TransactionalWriter

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Transform = Callable[[pa.RecordBatch], pa.RecordBatch]

_ROWS = "rows"
_RETURN = "Return a pyarrow.RecordBatch with columns of the sink from transform (docs/arrow.md)."


def arrow_stream(
    spark: SparkSession,
    source: Mapping[str, object],
    writer: TransactionalWriter,
    transform: Transform | None = None,
    *,
    schema: StructType | str | None = None,
) -> DataStreamWriter:
    """A stream from Kafka to Kafka whose records never enter the JVM; set its checkpoint and trigger, and start it.

    `source` has the options of the `kafka-eos` source. `transform` runs in Spark's tasks: it gets the columns of the
    source, or those of `schema`, and returns columns of the sink, with as many rows as it likes. Batches have up to
    65,536 rows; a micro-batch has many. Without it, `key` and `value` are copied, and `headers` with includeHeaders, or
    the columns of `schema`.

    Raises ConfigurationError for options or a schema that the source does not accept. If `transform` returns something
    that does not fit the sink, the query fails with InvalidSchema; other errors of it fail the task, with a traceback.
    """
    if any(name.lower() == _ROWS for name in source):
        raise ConfigurationError(_ROWS, "is set by arrow_stream", action="Remove it from the source's options.")
    with errors_of_source():
        options = chosen(limits_applied(source_options(source, streaming=True), LIMITS), schema, copy=not transform)
    given = {**source, _ROWS: "offsetRanges"}
    # PySpark declares fewer types than it takes: it makes text of any value.
    ranges = spark.readStream.format("kafka-eos").options(**given).load()  # type: ignore[arg-type]
    return ranges.writeStream.foreachBatch(
        functools.partial(writer.write_ranges, rows_of=RangeReader(options, transform))
    )


def chosen(options: SourceOptions, schema: StructType | str | None, *, copy: bool) -> SourceOptions:
    """The options, with the columns to read: those of `schema`; without one, for a `copy` those that it writes."""
    if schema is None:
        copied = ("key", "value", "headers") if options.include_headers else ("key", "value")
        return replace(options, columns=copied) if copy else options
    wanted = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise ConfigurationError("schema", f"must list columns, but is {wanted.simpleString()}")
    return selecting(options, wanted)


@dataclass(frozen=True)
class RangeReader:
    """In an encode task: the records of the offset ranges that Spark passes, with columns of the sink."""

    source: SourceOptions
    transform: Transform | None

    def __call__(self, batches: RowBatches, settings: EncodeSettings) -> Iterator[pa.RecordBatch]:
        ranges = from_rows(batches)
        if not ranges:
            return
        first: list[str] | None = None
        for records in read_records(ranges, self.source):
            rows = sink_columns(records if self.transform is None else self.transform(records), settings)
            first = first or rows.schema.names
            if rows.schema.names != first:
                raise InvalidSchema(
                    f"transform returned the columns {', '.join(first)}, then {', '.join(rows.schema.names)}",
                    action="Return the same columns for each batch, with nulls where there is nothing.",
                )
            yield rows


def sink_columns(returned: object, settings: EncodeSettings) -> pa.RecordBatch:
    """The columns that the sink writes, of what a transform has returned, in the sink's order and lower case. Raises
    InvalidSchema if it does not fit.
    """
    if not isinstance(returned, pa.RecordBatch):
        raise InvalidSchema(f"transform returned {type(returned).__name__}, not pyarrow.RecordBatch", action=_RETURN)
    rows = returned.select([number for number, name in enumerate(returned.schema.names) if name.lower() in ROWS])
    names = [name.lower() for name in rows.schema.names]
    try:
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidSchema(f"there are two columns {min(twice)!r}")
        written = check_schema(
            from_arrow_schema(rows.schema), topic=settings.topic, dead_letters=settings.dead_letters is not None
        )
    except (InvalidSchema, PySparkTypeError) as error:
        problem = error.what if isinstance(error, InvalidSchema) else str(error)
        raise InvalidSchema(f"what transform returned does not fit the sink: {problem}", action=_RETURN) from None
    return pa.RecordBatch.from_arrays([rows.column(names.index(name)) for name in written], names=written)
