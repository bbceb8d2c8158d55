"""`from_confluent` and `to_confluent`: columns for Spark. The only place here with PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from spark_kafka_eos.errors import ConfigurationError, errors_of_source
from spark_kafka_eos.registry.avro_schema import UnsupportedSchema
from spark_kafka_eos.registry.client import Kind, Registry, Text, UnknownSchema
from spark_kafka_eos.registry.decoding import ERROR, Target, decode, format_of, refuse, with_errors
from spark_kafka_eos.registry.framing import KEY_HEADER, VALUE_HEADER, header_ids

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

Mode = Literal["fail", "permissive"]


def from_confluent(
    column: Column | str,
    registry: str | Mapping[str, Any],
    *,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    schema: str | None = None,
    schema_type: Kind = "AVRO",
    message: str = "",
    headers: Column | str | None = None,
    mode: Mode = "fail",
) -> Column:
    """Decode values that a serializer of a schema registry wrote (Confluent's wire format).

    `registry` is a URL, or a mapping with the options of confluent-kafka's SchemaRegistryClient under its own names. It
    is asked now for the reader's schema, so that the column's type is known, and by the executors for writers' schemas.

    The reader's schema is `schema`, a text of type `schema_type` ("AVRO", "PROTOBUF", "JSON"), or the latest one of
    `subject`. `topic` stands for the subject `<topic>-value`, or `<topic>-key` if `key`. `message` is the full name of
    a Protobuf message, if it is not the file's first one. `headers` is the column of headers: with it, schema ids in
    headers are found, too.

    With mode "fail", a record that cannot be decoded raises UndecodableRecord. With "permissive", the column is a
    struct of `value` and `error` (cause, message, schema_id), one of which is null; both are for a value that is null.
    A registry that does not answer always raises RegistryError.

    Raises ConfigurationError for options that contradict each other, an unknown subject and a schema that Spark has no
    type for; RegistryError; ImportError before Spark 4.1.
    """
    if mode not in {"fail", "permissive"}:
        raise ConfigurationError("mode", f"must be 'fail' or 'permissive', not {mode!r}")
    where = Registry.of(registry)
    target = Target(_wanted(where, _subject(subject, topic, key=key), schema, schema_type), message)
    try:
        kind = format_of(target).arrow
    except UnsupportedSchema as error:
        raise ConfigurationError("schema", f"the reader's schema cannot be used: {error}") from None
    permissive, name = mode == "permissive", KEY_HEADER if key else VALUE_HEADER

    def from_registry(values: pa.Array, *more: pa.Array) -> pa.Array:
        ids = header_ids(more[0], name).cast(pa.binary()) if more else None
        with errors_of_source():
            decoded = decode(values.cast(pa.binary()), ids, where, target)
            return with_errors(decoded) if permissive else refuse(decoded)

    if permissive:
        kind = pa.struct([pa.field("value", kind), pa.field("error", ERROR)])
    made: Column = _udf(from_registry, kind)(column, *([] if headers is None else [headers]))
    return made


def _subject(subject: str | None, topic: str | None, *, key: bool) -> str | None:
    if subject is not None and topic is not None:
        raise ConfigurationError("subject", "give either the subject or the topic, not both")
    return f"{topic}-{'key' if key else 'value'}" if topic is not None else subject


def _wanted(registry: Registry, subject: str | None, schema: str | None, kind: Kind) -> Text:
    if schema is not None:
        if kind not in {"AVRO", "PROTOBUF", "JSON"}:
            raise ConfigurationError("schema_type", f"must be AVRO, PROTOBUF or JSON, not {kind!r}")
        return Text(kind, schema)
    if subject is None:
        raise ConfigurationError("subject", "the reader's schema is not known: give subject, topic or schema")
    try:
        return registry.session.latest(subject)
    except UnknownSchema:
        raise ConfigurationError(
            "subject",
            f"the registry at {registry.hosts} has no subject {subject!r}",
            action="Check the name; with a naming strategy other than the topic's, give the subject itself.",
        ) from None


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
