"""Streams whose records never enter the JVM: one Python task reads them, transforms them and encodes them, in Arrow.

    writer = TransactionalWriter(sink)
    arrow_stream(spark, source, writer, transform).option("checkpointLocation", path).start()
    arrow_stream(spark, source, writer, sql="SELECT key, value FROM records WHERE …").option(…).start()

The query's DataFrame has a row for each offset range (the source's option `rows=offsetRanges`), and the encode tasks
read those ranges. With a DataFrame of records, each record passes from the Python that reads to the JVM, and from there
to the Python that encodes. Offsets, checkpoint and everything after encoding are the same.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType

from spark_kafka_eos.appending.blocks import ROWS, EncodeSettings
from spark_kafka_eos.dead_letters.rows import DeadLetterTopic
from spark_kafka_eos.errors import ConfigurationError, InvalidSchema, errors_of_source
from spark_kafka_eos.options import SourceOptions, source_options
from spark_kafka_eos.options.parsers import duration_ms
from spark_kafka_eos.reading.ranges import from_rows
from spark_kafka_eos.reading.records import arrow_schema
from spark_kafka_eos.spark.arrow_columns import (
    Decoder,
    Encoder,
    check_types,
    decoded,
    encoded,
    given_schema,
    needed,
    permissive,
    with_dead,
)
from spark_kafka_eos.spark.encode_stage import RowBatches
from spark_kafka_eos.spark.rows import check_schema
from spark_kafka_eos.spark.schema import selecting
from spark_kafka_eos.spark.source import read_records
from spark_kafka_eos.spark.sql_transform import SqlTransform
from spark_kafka_eos.spark.writer import TransactionalWriter

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_T = TypeVar("_T")
Transform = Callable[[pa.RecordBatch], pa.RecordBatch]

_ROWS = "rows"
_RETURN = "Return a pyarrow.RecordBatch with columns of the sink from transform (docs/arrow.md)."
_SELECT = "Select columns of the sink, for example … AS value (docs/arrow.md)."


def arrow_stream(
    spark: SparkSession,
    source: Mapping[str, object],
    writer: TransactionalWriter,
    transform: Transform | None = None,
    *,
    sql: str | None = None,
    schema: StructType | str | None = None,
    decode: Mapping[str, Decoder] | None = None,
    encode: Mapping[str, Encoder] | None = None,
    real_time: str | None = None,
    buckets: int | None = None,
    commit_interval: str | None = None,
) -> DataStreamWriter:
    """A stream from Kafka to Kafka whose records never enter the JVM; set its checkpoint and trigger, and start it.

    `source` has the options of the `kafka-eos` source. `transform` runs in Spark's tasks: it gets the columns of the
    source, or those of `schema`, and returns columns of the sink, with as many rows as it likes. Batches have up to
    65,536 rows; a micro-batch has many. Without it, `key` and `value` are copied, and `headers` with includeHeaders, or
    the columns of `schema`.

    `sql` is a query instead of `transform`: DuckDB runs it over each batch, as the table `records`. It may look at one
    record at a time only, and is checked now. Needs the extra `sql`.

    `decode` has what decodes `key` or `value` before the transform (`confluent_decoder`), which also gets what was read
    as `encoded_key` and `encoded_value`. With the mode "permissive", a record that cannot be decoded skips the
    transform and becomes a dead letter, with the option `deadLetterTopic` of the writer. `encode` has what encodes
    `key` or `value` after it (`confluent_encoder`).

    `real_time` is how long a micro-batch lasts, such as "5 minutes": its tasks then commit what they read within
    milliseconds, in transactions of their own (docs/real-time.md). `buckets` is the number of their transactional ids,
    and of tasks as far as Spark runs so many at once; by default one when the query first starts. A task commits as
    soon as there is something, but `commit_interval`, such as "100 milliseconds", after its last commit began at the
    soonest; by default, it rests for a quarter of what that took.

    Raises ConfigurationError for options, a schema or `sql` that cannot be used, and InvalidSchema if the result of
    `sql` does not fit the sink. If `transform` returns something that does not fit, the query fails with InvalidSchema;
    other errors of it fail the task, with a traceback.
    """
    if any(name.lower() == _ROWS for name in source):
        raise ConfigurationError(_ROWS, "is set by arrow_stream", action="Remove it from the source's options.")
    if sql is not None and transform is not None:
        raise ConfigurationError("sql", "there is a transform, too", action="Give one of the two.")
    with errors_of_source():
        options = chosen(source_options(source, streaming=True), schema, copy=not transform and sql is None)
    where = writer.settings
    reader = RangeReader(
        _read(options, decode or {}),
        transform if sql is None else SqlTransform(sql),
        columns=options.columns,
        decode=_of_key_and_value("decode", decode),
        encode=_of_key_and_value("encode", encode),
    )
    reader.check(EncodeSettings(topic=where.topic, targets={}, dead_letters=_dead_letters(where.dead_letter_topic)))
    options_of_ranges = {**source, _ROWS: "offsetRanges" if real_time is None else "realTime"}
    # PySpark declares fewer types than it takes: it makes text of any value.
    ranges = spark.readStream.format("kafka-eos").options(**options_of_ranges).load()  # type: ignore[arg-type]
    if real_time is not None:
        from spark_kafka_eos.spark.real_time import RealTimeWriter  # of few queries

        if (seconds := _seconds("real_time", real_time)) < 1:
            raise ConfigurationError("real_time", f"is {real_time!r}, but a batch lasts for a second at least")
        if buckets is not None and buckets < 1:
            raise ConfigurationError("buckets", f"is {buckets}, but nothing is read without a bucket")
        interval = None if commit_interval is None else _seconds("commit_interval", commit_interval)
        in_real_time = RealTimeWriter(where, reader, seconds, buckets=buckets, commit_interval=interval)
        return ranges.writeStream.foreachBatch(in_real_time)
    for argument, value in {"buckets": buckets, "commit_interval": commit_interval}.items():
        if value is not None:
            raise ConfigurationError(argument, "is set without real_time", action="Set real_time, too, or neither.")
    return ranges.writeStream.foreachBatch(functools.partial(writer.write_ranges, rows_of=reader))


_UNITS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h"}


def _seconds(argument: str, duration: str) -> float:
    """From `5 minutes`, as Spark's triggers are written, or `5m`."""
    count, _, unit = duration.strip().lower().partition(" ")
    unit = unit.strip()
    try:
        return duration_ms(count + _UNITS.get(unit.removesuffix("s"), unit)) / 1e3
    except ValueError as error:
        raise ConfigurationError(argument, str(error), action="Set it to a duration, such as 5 minutes.") from None


def _read(options: SourceOptions, decode: Mapping[str, Decoder]) -> SourceOptions:
    return replace(options, columns=needed(options.columns, decode, headers=options.include_headers))


def _of_key_and_value(option: str, codecs: Mapping[str, _T] | None) -> dict[str, _T]:
    if wrong := set(codecs or ()) - {"key", "value"}:
        raise ConfigurationError(option, f"has {min(wrong)!r}, but only key and value can be coded")
    return dict(codecs or {})


def _dead_letters(topic: str | None) -> DeadLetterTopic | None:
    return None if topic is None else DeadLetterTopic(topic=topic)


def chosen(options: SourceOptions, schema: StructType | str | None, *, copy: bool) -> SourceOptions:
    """The options, with the columns to read: those of `schema`; without one, for a `copy` those that it writes."""
    if schema is None:
        copied = ("key", "value", "headers") if options.include_headers else ("key", "value")
        return replace(options, columns=copied) if copy else options
    selection = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(selection, StructType):
        raise ConfigurationError("schema", f"must list columns, but is {selection.simpleString()}")
    return selecting(options, selection)


@dataclass(frozen=True)
class RangeReader:
    """In an encode task: the records of the offset ranges that Spark passes, with columns of the sink.

    `columns` are those for the transform; if it is empty, all that are read.
    """

    source: SourceOptions
    transform: Transform | SqlTransform | None
    columns: tuple[str, ...] = ()
    decode: Mapping[str, Decoder] = field(default_factory=dict)
    encode: Mapping[str, Encoder] = field(default_factory=dict)

    def __call__(self, batches: RowBatches, settings: EncodeSettings) -> Iterator[pa.RecordBatch]:
        ranges = from_rows(batches)
        if ranges:
            with contextlib.closing(self):
                yield from self.rows(read_records(ranges, self.source), settings)

    def rows(self, read: RowBatches, settings: EncodeSettings) -> Iterator[pa.RecordBatch]:
        """The rows of the sink that the records which were read become."""
        first: list[str] | None = None
        for records in read:
            for rows in self._rows(records, settings):
                first = first or rows.schema.names
                if rows.schema.names != first:
                    raise InvalidSchema(
                        f"transform returned the columns {', '.join(first)}, then {', '.join(rows.schema.names)}",
                        action="Return the same columns for each batch, with nulls where there is nothing.",
                    )
                yield rows

    def close(self) -> None:
        """Free what the transform has open; it opens it again when it is needed."""
        if isinstance(self.transform, SqlTransform):
            self.transform.close()

    def check(self, settings: EncodeSettings) -> None:
        """Raise what can be known before anything is read: all but what is wrong with a function or with records."""
        if permissive(self.decode) and settings.dead_letters is None:
            raise ConfigurationError(
                "deadLetterTopic",
                "is not set, and a decoder's mode is 'permissive': there is nowhere to put what it cannot decode",
                action="Set it on the TransactionalWriter, or decode with mode='fail'.",
            )
        read = arrow_schema(include_headers=self.source.include_headers, columns=self.source.columns)
        columns = given_schema(read, self.columns, self.decode)
        if isinstance(self.transform, SqlTransform):
            with contextlib.closing(self):
                empty = self.transform.check(columns)
        elif self.transform is None and (self.decode or self.encode):
            empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in columns], schema=columns)
        else:
            return
        check_types(empty.schema, self.encode)
        self._of_sink(empty, settings)

    def _rows(self, records: pa.RecordBatch, settings: EncodeSettings) -> Iterator[pa.RecordBatch]:
        batch, dead = decoded(records, self.columns, self.decode)
        for returned in self._transformed(batch):
            rows = self._of_sink(returned, settings)
            yield with_dead(rows, dead) if permissive(self.decode) else rows
            dead = None

    def _transformed(self, batch: pa.RecordBatch) -> Sequence[object]:
        if self.transform is None:
            return [batch]
        if isinstance(self.transform, SqlTransform):
            return self.transform(batch)
        return [self.transform(batch)]

    def _of_sink(self, returned: object, settings: EncodeSettings) -> pa.RecordBatch:
        if self.encode and isinstance(returned, pa.RecordBatch):
            returned = encoded(returned, self.encode)
        return sink_columns(returned, settings, sql=isinstance(self.transform, SqlTransform))


def sink_columns(returned: object, settings: EncodeSettings, *, sql: bool = False) -> pa.RecordBatch:
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
        if sql:
            raise InvalidSchema(f"the result of sql does not fit the sink: {problem}", action=_SELECT) from None
        raise InvalidSchema(f"what transform returned does not fit the sink: {problem}", action=_RETURN) from None
    return pa.RecordBatch.from_arrays([rows.column(names.index(name)) for name in written], names=written)
