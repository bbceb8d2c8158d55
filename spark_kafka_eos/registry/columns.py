"""`from_confluent` and `to_confluent`: columns for Spark. The only place here with PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_kafka_eos.errors import errors_of_source
from spark_kafka_eos.registry.arrow import Strategy, confluent_decoder, confluent_encoder, connect_decoder
from spark_kafka_eos.registry.client import References, SchemaType
from spark_kafka_eos.registry.decoding import ParseMode

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def from_confluent(
    column: Column | str,
    registry: str | Mapping[str, Any],
    *,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    schema: str | None = None,
    schema_type: SchemaType = "AVRO",
    references: References | None = None,
    message: str = "",
    headers: Column | str | None = None,
    mode: ParseMode = "fail",
    ignore_rules: bool = False,
    connect_types: bool = False,
) -> Column:
    """Decode values that a serializer of a schema registry wrote (Confluent's wire format).

    `registry` is a URL, or a mapping with the options of confluent-kafka's SchemaRegistryClient under its own names. It
    is asked now for the reader's schema, so that the column's type is known, and by the executors for writers' schemas.

    The reader's schema is `schema`, a text of type `schema_type` ("AVRO", "PROTOBUF", "JSON"), with `references` from
    names in it to pairs of subject and version, or the latest one of `subject`. `topic` stands for the subject
    `<topic>-value`, or `<topic>-key` if `key`. `message` is the full name of a Protobuf message, if it is not the
    file's first one. `headers` is the column of headers: with it, schema ids in headers are found, too. Ids are those
    of the subject's context.

    Rules of a schema (data contracts) are not run: a schema that has some for readers is refused, and records whose own
    schema has some are not decoded. With `ignore_rules`, values are read as they are: what was encrypted stays so.

    With `connect_types`, what Kafka Connect's converters and Debezium mean by the names of Avro's types, by messages of
    Protobuf and by titles of JSON Schema counts: times, dates and numbers are columns of those types.

    With mode "fail", a record that cannot be decoded raises UndecodableRecord. With "permissive", the column is a
    struct of `value` and `error` (cause, message, schema_id), one of which is null; both are for a value that is null.
    A registry that does not answer always raises RegistryError.

    Raises ConfigurationError for options that contradict each other, an unknown subject, rules, and a schema that Spark
    has no type for; RegistryError; ImportError before Spark 4.1.
    """
    decoder = confluent_decoder(
        registry,
        subject=subject,
        topic=topic,
        key=key,
        schema=schema,
        schema_type=schema_type,
        references=references,
        message=message,
        mode=mode,
        ignore_rules=ignore_rules,
        connect_types=connect_types,
    )

    def from_registry(values: pa.Array, *more: pa.Array) -> pa.Array:
        return decoder(values, *more)

    made: Column = _udf(from_registry, decoder.returns)(column, *([] if headers is None else [headers]))
    return made


def from_connect(column: Column | str, schema: str, *, mode: ParseMode = "fail") -> Column:
    """Decode values that Kafka Connect's JsonConverter wrote with `schemas.enable`: an object of schema and payload.

    `schema` is the reader's: the text of such a schema, or of a whole record, whose payload does not count. Each record
    is read from its own schema to this one: by name, with defaults for fields that it lacks, null for optional ones.
    Types that Kafka Connect and Debezium name (dates, timestamps, decimals) are columns of those types.

    With mode "fail", a record that cannot be decoded raises UndecodableRecord. With "permissive", the column is a
    struct of `value` and `error` (cause, message), one of which is null; both are for a value or a payload that is
    null, such as Debezium's tombstones.

    Raises ConfigurationError for a schema that Spark has no type for; ImportError before Spark 4.1.
    """
    decoder = connect_decoder(schema, mode=mode)

    def from_json_converter(values: pa.Array) -> pa.Array:
        return decoder(values)

    made: Column = _udf(from_json_converter, decoder.returns)(column)
    return made


def to_confluent(
    column: Column | str,
    registry: str | Mapping[str, Any],
    *,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    schema: str | None = None,
    schema_type: SchemaType = "AVRO",
    references: References | None = None,
    message: str = "",
    strategy: Strategy = "topic",
    register: bool = False,
    ignore_rules: bool = False,
) -> Column:
    """Encode values as a serializer of a schema registry does (Confluent's wire format, magic byte 0); null stays null.

    The schema is the latest one of the subject, or `schema`, with `references` from names in it to pairs of subject and
    version. It must be registered under the subject; with `register`, it is registered now. The registry is asked now,
    and not by the executors.

    The subject is `subject`, or follows from `topic` and, with the strategies "record" and "topic-record", from the
    name of the record in `schema`: `<topic>-value`, `<record>`, `<topic>-<record>`.

    Rules of a schema are not run: one that has some for writers is refused. With `ignore_rules`, values are written as
    they are: nothing is encrypted.

    A struct's fields are matched by name. A field that the struct lacks is written with its default, in JSON if it is
    required, or else left out. A field that the schema lacks raises InvalidSchema, and a value that does not fit
    InvalidRow, when the query runs.

    Raises ConfigurationError for options that contradict each other, an unknown subject or schema, one that the
    registry refuses, and rules; RegistryError; ImportError before Spark 4.1.
    """
    encoder = confluent_encoder(
        registry,
        subject=subject,
        topic=topic,
        key=key,
        schema=schema,
        schema_type=schema_type,
        references=references,
        message=message,
        strategy=strategy,
        register=register,
        ignore_rules=ignore_rules,
    )

    def to_registry(values: pa.Array) -> pa.Array:
        with errors_of_source():
            return encoder(values)

    from spark_kafka_eos.spark.rows import SCHEMA_ID

    # For the sink, which then knows the headers that name another schema.
    made: Column = _udf(to_registry, pa.binary())(column).alias("encoded", metadata={SCHEMA_ID: encoder.schema_id})
    return made


def _udf(function: Any, kind: pa.DataType) -> Any:
    """Raises ImportError if this Spark has no functions of Arrow columns."""
    import pyspark
    from pyspark.sql import functions

    arrow_udf = getattr(functions, "arrow_udf", None)
    if arrow_udf is None:
        raise ImportError(
            f"from_confluent and to_confluent need functions of Arrow columns (arrow_udf), which came with PySpark "
            f"4.1, but this is {pyspark.__version__}"
        )
    return arrow_udf(function, _spark_type(kind))


def _spark_type(kind: pa.DataType) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    made: DataType = from_arrow_type(kind)
    return made
