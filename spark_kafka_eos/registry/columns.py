"""`from_confluent` and `to_confluent`: columns for Spark. The only place here with PySpark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.errors import ConfigurationError, InvalidSchema, errors_of_source
from spark_kafka_eos.registry.client import Registry, SchemaText, SchemaType, TooLargeSchema, UnknownSchema
from spark_kafka_eos.registry.decoding import decode, refuse, with_errors
from spark_kafka_eos.registry.encoding import encode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import KEY_HEADER, VALUE_HEADER, header_ids
from spark_kafka_eos.registry.nesting import UnsupportedSchema

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

ParseMode = Literal["fail", "permissive"]
Strategy = Literal["topic", "record", "topic-record"]


def from_confluent(
    column: Column | str,
    registry: str | Mapping[str, Any],
    *,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    schema: str | None = None,
    schema_type: SchemaType = "AVRO",
    message: str = "",
    headers: Column | str | None = None,
    mode: ParseMode = "fail",
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
    subject = _subject(subject, topic, key=key)
    target = QuerySchema(_latest(where, subject) if schema is None else _given(schema, schema_type), message)
    kind = _usable(target)
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


def to_confluent(
    column: Column | str,
    registry: str | Mapping[str, Any],
    *,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    schema: str | None = None,
    schema_type: SchemaType = "AVRO",
    message: str = "",
    strategy: Strategy = "topic",
    register: bool = False,
) -> Column:
    """Encode values as a serializer of a schema registry does (Confluent's wire format, magic byte 0); null stays null.

    The schema is the latest one of the subject, or `schema`, which must be registered under it; with `register`, it is
    registered now. The registry is asked now, and not by the executors.

    The subject is `subject`, or follows from `topic` and, with the strategies "record" and "topic-record", from the
    name of the record in `schema`: `<topic>-value`, `<record>`, `<topic>-<record>`.

    A struct's fields are matched by name. A field that the struct lacks is written with its default. A field that the
    schema lacks raises InvalidSchema, and a value that does not fit InvalidRow, when the query runs.

    Raises ConfigurationError for options that contradict each other and for an unknown subject or schema;
    RegistryError; ImportError before Spark 4.1.
    """
    where = Registry.of(registry)
    if schema is not None:
        text = _given(schema, schema_type)
        subject = _subject(subject, topic, key=key, strategy=strategy, name=lambda: _record_name(text, message))
    else:
        subject = _subject(subject, topic, key=key, strategy=strategy)
        text = _latest(where, subject)
    if subject is None:
        raise ConfigurationError("subject", "where the schema is registered is not known: give subject or topic")
    try:
        schema_id = where.session.registered(subject, text, register=register)
    except UnknownSchema:
        raise ConfigurationError(
            "schema",
            f"the registry at {where.hosts} does not have this schema under the subject {subject!r}",
            action="Register it, or set register=True.",
        ) from None
    target = QuerySchema(text, message)
    _usable(target)

    def to_registry(values: pa.Array) -> pa.Array:
        with errors_of_source():
            return encode(values, schema_id, target)

    made: Column = _udf(to_registry, pa.binary())(column)
    return made


def _record_name(text: SchemaText, message: str) -> str:
    target = QuerySchema(text, message)
    _usable(target)
    return format_of(target).name


def _usable(target: QuerySchema) -> pa.DataType:
    """The type of the values. Raises ConfigurationError for a schema that Spark has no type for."""
    try:
        return format_of(target).arrow
    except UnsupportedSchema as error:
        raise ConfigurationError("schema", f"it cannot be used: {error}") from None


def _subject(
    subject: str | None,
    topic: str | None,
    *,
    key: bool,
    strategy: Strategy = "topic",
    name: Callable[[], str] | None = None,
) -> str | None:
    """The subject that the arguments name, None if they name none."""
    if subject is not None and (topic is not None or strategy != "topic"):
        raise ConfigurationError("subject", "give either the subject, or the topic and a strategy, not both")
    match strategy:
        case "topic":
            return f"{topic}-{'key' if key else 'value'}" if topic is not None else subject
        case "record" | "topic-record":
            if name is None:
                raise ConfigurationError("strategy", f"with {strategy!r}, the subject follows from the schema: give it")
            if strategy == "record":
                return name()
            if topic is None:
                raise ConfigurationError("topic", "the strategy 'topic-record' needs it")
            return f"{topic}-{name()}"
    raise ConfigurationError("strategy", f"must be 'topic', 'record' or 'topic-record', not {strategy!r}")


def _given(schema: str, kind: SchemaType) -> SchemaText:
    if kind not in {"AVRO", "PROTOBUF", "JSON"}:
        raise ConfigurationError("schema_type", f"must be AVRO, PROTOBUF or JSON, not {kind!r}")
    return SchemaText(kind, schema)


def _latest(registry: Registry, subject: str | None) -> SchemaText:
    if subject is None:
        raise ConfigurationError("subject", "the schema is not known: give subject, topic or schema")
    try:
        return registry.session.latest(subject)
    except UnknownSchema:
        raise ConfigurationError(
            "subject",
            f"the registry at {registry.hosts} has no subject {subject!r}",
            action="Check the name; with a naming strategy other than the topic's, give the subject itself.",
        ) from None
    except TooLargeSchema as error:
        raise InvalidSchema(f"the latest schema of {subject!r} cannot be read: {error}") from None


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
