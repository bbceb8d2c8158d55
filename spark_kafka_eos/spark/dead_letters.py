"""For users: from a decoded DataFrame to rows of the sink, with the records that could not be decoded as dead letters.

The decoded column is a struct with the field `error`, null where the record was decoded, as `from_confluent` returns in
mode `permissive`. The DataFrame has the columns of a Kafka source.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType

from spark_kafka_eos.spark.rows import ERROR, SOURCE, check_type
from spark_kafka_eos.spark.stopping import stop_recognized

_GIVEN_BY_USER = ("topic", "partition", "timestamp")


def to_dead_letters(
    frame: DataFrame,
    decoded: str,
    *,
    value: Column,
    key: Column | None = None,
    headers: Column | None = None,
    topic: Column | None = None,
    partition: Column | None = None,
    timestamp: Column | None = None,
) -> DataFrame:
    """One DataFrame with the sink's columns: the decoded rows with the columns that are given here, and the others with
    their original key, value and headers, and with `error` and `source`.

    `decoded` is the name of the decoded column. A `key` or `headers` that is not given is the original one. Source and
    decoder are evaluated once. The sink needs the option `deadLetterTopic`.

    A function in Python is called for all rows, because Spark evaluates it before it chooses: what is passed to one,
    such as `to_confluent`, must be null where `error` is not, as `F.when(F.col("decoded.error").isNull(), …)` is.

    Raises InvalidSchema if a key or a value is neither a string nor binary.
    """
    dead = _error(decoded).isNotNull()
    columns = [_either(frame, dead, "key", key), _either(frame, dead, "value", value)]
    if headers is not None or "headers" in frame.columns:
        original = _original(frame, "headers")
        columns.append((original if headers is None else F.when(dead, original).otherwise(headers)).alias("headers"))
    optional = zip(_GIVEN_BY_USER, (topic, partition, timestamp), strict=True)
    columns += [column.alias(name) for name, column in optional if column is not None]
    return frame.select(*columns, _sink_error(frame, decoded).alias("error"), _source(frame))


def split_errors(frame: DataFrame, decoded: str) -> tuple[DataFrame, DataFrame]:
    """The rows that were decoded, as they are, and the others as rows for `transaction.write`, which makes them dead
    letters.

    For a function in foreachBatch. Decodes the batch now, once, and keeps its rows on the executors until nobody refers
    to them, because a decoder may say something else when it is asked again: in another process, or a second later. An
    executor that is lost meanwhile fails the batch. `to_dead_letters` keeps nothing.
    """
    with stop_recognized(frame.sparkSession, lambda: None):  # the writer may have been called before
        frame = frame.localCheckpoint()  # not `persist`: Spark would decode again what it has lost
    good, dead = frame.where(_error(decoded).isNull()), frame.where(_error(decoded).isNotNull())
    originals = [name for name in ("key", "value", "headers") if name in frame.columns]
    return good, dead.select(*originals, _sink_error(frame, decoded).alias("error"), _source(frame))


def _error(decoded: str) -> Column:
    return F.col(f"{decoded}.error")


def _sink_error(frame: DataFrame, decoded: str) -> Column:
    """The error with the fields of the sink's column, by their names: Spark casts a struct by position. Raises
    InvalidSchema if it has others.
    """
    error = _error(decoded)
    kind = frame.select(error).schema.fields[0].dataType
    given = {field.name.lower(): field.name for field in kind.fields} if isinstance(kind, StructType) else {}
    if "cause" not in given or not given.keys() <= set(ERROR.names):
        check_type("error", kind)
    fields = (
        (error[given[field.name]] if field.name in given else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in ERROR
    )
    return error.cast(ERROR) if [*given] == ERROR.names else F.when(error.isNotNull(), F.struct(*fields))


def _original(frame: DataFrame, name: str) -> Column:
    return F.col(name) if name in frame.columns else F.lit(None)


def _either(frame: DataFrame, dead: Column, name: str, column: Column | None) -> Column:
    """The original of a dead letter, and `column` of the other rows; binary, as the source's columns are."""
    original = _original(frame, name)
    fields = frame.select(original, *([] if column is None else [column])).schema.fields
    for field in fields:
        if not isinstance(field.dataType, NullType):
            check_type(name, field.dataType)  # Spark without ANSI mode casts a number to its raw bytes
    if column is None:
        return original.cast("binary").alias(name)
    metadata = fields[1].metadata  # what `to_confluent` says of a column, `when` forgets
    return F.when(dead, original.cast("binary")).otherwise(column.cast("binary")).alias(name, metadata=metadata)


def _source(frame: DataFrame) -> Column:
    """Where each row was read, as far as the DataFrame has the columns of it."""
    fields = (_original(frame, field.name).cast(field.dataType).alias(field.name) for field in SOURCE)
    return F.struct(*fields).alias("source")


aside, split = to_dead_letters, split_errors  # the earlier names
