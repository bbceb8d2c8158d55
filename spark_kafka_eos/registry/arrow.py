"""`confluent_decoder` and `confluent_encoder`: functions of Arrow arrays, for `arrow_stream` and for `columns`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from spark_kafka_eos.errors import ConfigurationError, InvalidRow, InvalidSchema, errors_of_source
from spark_kafka_eos.registry import connect_json
from spark_kafka_eos.registry.client import (
    References,
    Registry,
    SchemaText,
    SchemaType,
    SubjectVersion,
    TooLargeSchema,
    UnknownSchema,
)
from spark_kafka_eos.registry.decoding import ParseMode, decode, returned, type_returned
from spark_kafka_eos.registry.formats import QuerySchema, check_written, format_of, same
from spark_kafka_eos.registry.framing import header_ids
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rules import READING, WRITING, rule_names

Strategy = Literal["topic", "record", "topic-record"]


@dataclass(frozen=True)
class ConfluentDecoder:
    """Decodes arrays of framed values. Pickles, with the registry's options: they go to Spark's tasks.

    `mode` is what it does with a value that cannot be decoded. Ids are of the context of `subject`.
    """

    registry: Registry
    target: QuerySchema
    mode: ParseMode
    key: bool = False
    subject: str | None = None
    ignore_rules: bool = False

    @property
    def type(self) -> pa.DataType:
        """Of the decoded values."""
        return format_of(self.target).arrow

    @property
    def returns(self) -> pa.DataType:
        """Of the array that it returns: `type`, or in mode "permissive" a struct of `value` and `error`."""
        return type_returned(self.type, self.mode)

    def __call__(self, values: pa.Array, headers: pa.ListArray | None = None) -> pa.Array:
        """Decode `values`, an array of binary. `headers` is the source's column, for schema ids that are in headers.

        Raises UndecodableRecord in mode "fail", RegistryError in both.
        """
        ids = None if headers is None else header_ids(headers, "key" if self.key else "value")
        with errors_of_source():
            decoded = decode(
                values.cast(pa.binary()),
                ids,
                self.registry,
                self.target,
                subject=self.subject,
                ignore_rules=self.ignore_rules,
            )
            return returned(decoded, self.mode)


@dataclass(frozen=True)
class ConnectDecoder:
    """Decodes arrays of Kafka Connect's JSON whose records have their schema. Pickles.

    `mode` is what it does with a value that cannot be decoded.
    """

    schema: str
    mode: ParseMode

    @property
    def type(self) -> pa.DataType:
        """Of the decoded values."""
        return connect_json.format_of(self.schema).arrow

    @property
    def returns(self) -> pa.DataType:
        """Of the array that it returns: `type`, or in mode "permissive" a struct of `value` and `error`."""
        return type_returned(self.type, self.mode)

    def __call__(
        self,
        values: pa.Array,
        headers: pa.ListArray | None = None,  # noqa: ARG002 - what `arrow_stream` gives a decoder
    ) -> pa.Array:
        """Decode `values`, an array of binary or of strings; headers say nothing. Raises UndecodableRecord in mode
        "fail".
        """
        with errors_of_source():
            return returned(connect_json.format_of(self.schema).decode(values.cast(pa.binary())), self.mode)


@dataclass(frozen=True)
class ConfluentEncoder:
    """Encodes arrays as framed values. Pickles; it does not ask the registry."""

    target: QuerySchema
    schema_id: int

    @property
    def type(self) -> pa.DataType:
        """What it encodes, with all fields; those with a default may be missing."""
        return format_of(self.target).arrow

    def __call__(self, values: pa.Array) -> pa.Array:
        """Null stays null. Raises InvalidSchema for a field that the schema lacks, InvalidRow for a value that does not
        fit it.
        """
        return format_of(self.target).write(values, b"\0" + self.schema_id.to_bytes(4, "big"))

    def check(self, kind: pa.DataType) -> None:
        """Raise InvalidSchema if values of this type certainly do not fit: of another type, a struct with a field that
        the schema lacks, or without one that has no default.
        """
        with suppress(InvalidRow):  # records have other values
            self(pa.array([_sample(kind)], kind))


def _sample(kind: pa.DataType) -> Any:
    """A value of the type, as `pa.array` takes it; None if that is the only one, or the type is a rare one."""
    if pa.types.is_struct(kind):
        return {field.name: _sample(field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_sample(kind.value_type)]
    if pa.types.is_map(kind):
        return [(_sample(kind.key_type), _sample(kind.item_type))]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    return 0 if pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) else None


def confluent_decoder(
    registry: str | Mapping[str, Any],
    *,
    subject: str | None = None,
    topic: str | None = None,
    key: bool = False,
    schema: str | None = None,
    schema_type: SchemaType = "AVRO",
    references: References | None = None,
    message: str = "",
    mode: ParseMode = "fail",
    ignore_rules: bool = False,
    connect_types: bool = False,
) -> ConfluentDecoder:
    """A function from Arrow arrays of values in a schema registry's wire format to Arrow arrays of their type.

    The arguments are those of `from_confluent`. The registry is asked now for the reader's schema, and by the tasks for
    writers' schemas. Raises what `from_confluent` raises, but needs no release of Spark.
    """
    _check_mode(mode)
    where = Registry.of(registry)
    subject = _subject(subject, topic, key=key)
    if schema is not None:
        text = _given(where, schema, schema_type, references or {}, subject)
    else:
        version = _latest(where, subject)
        subject, text = version.subject, version.schema
        if not ignore_rules:
            _refuse_rules(version, READING)
    target = QuerySchema(replace(text, rules=()), message, connect_types)
    _usable(target)
    return ConfluentDecoder(where, target, mode, key, subject, ignore_rules)


def connect_decoder(schema: str, *, mode: ParseMode = "fail") -> ConnectDecoder:
    """A function from Arrow arrays of Kafka Connect's JSON, as JsonConverter writes it with `schemas.enable`, to Arrow
    arrays of their payloads' type.

    The arguments are those of `from_connect`. Raises ConfigurationError, but needs no release of Spark.
    """
    _check_mode(mode)
    decoder = ConnectDecoder(schema, mode)
    with _usable_schema():
        _ = decoder.type
    return decoder


def _check_mode(mode: str) -> None:
    if mode not in {"fail", "permissive"}:
        raise ConfigurationError("mode", f"must be 'fail' or 'permissive', not {mode!r}")


def confluent_encoder(
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
) -> ConfluentEncoder:
    """A function from Arrow arrays to values in a schema registry's wire format; the inverse of `confluent_decoder`.

    The arguments are those of `to_confluent`. The registry is asked now, and not by the tasks. Raises what
    `to_confluent` raises, but needs no release of Spark.
    """
    where = Registry.of(registry)
    if schema is not None:
        text = _given(where, schema, schema_type, references or {}, subject)
        subject = _subject(subject, topic, key=key, strategy=strategy, name=lambda: _record_name(text, message))
        if subject is None:
            raise ConfigurationError("subject", "where the schema is registered is not known: give subject or topic")
        version = _registered(where, subject, text, references or {}, register=register, ignore_rules=ignore_rules)
    else:
        subject = _subject(subject, topic, key=key, strategy=strategy)
        version = _latest(where, subject)
        text = version.schema
    if not ignore_rules:
        _refuse_rules(version, WRITING)
    target = QuerySchema(SchemaText(text.kind, text.text, version.schema.references), message)
    with _usable_schema():
        check_written(target)
    return ConfluentEncoder(target, version.schema_id)


def _registered(
    registry: Registry,
    subject: str,
    text: SchemaText,
    references: References,
    *,
    register: bool,
    ignore_rules: bool,
) -> SubjectVersion:
    """The schema as the registry has it under `subject`: a version that says the same, also in other words, because a
    registry compares texts. Raises ConfigurationError.
    """
    with _reading(
        f"a schema of {subject!r}",
        option="schema",
        unknown=f"the registry at {registry.hosts} does not have this schema under the subject {subject!r}",
        action="Register it, or set register=True.",
    ):
        session = registry.session
        with suppress(UnknownSchema):
            latest = session.latest(subject)
            if _says(latest, text):
                return latest
            if register and not ignore_rules:
                _refuse_rules(latest, WRITING)  # before anything is registered, which would inherit them
            with suppress(UnknownSchema):
                return session.registered(subject, text, references, register=False)
            for version in session.versions(subject):
                if _says(version, text):
                    return version
        return session.registered(subject, text, references, register=register)


def _says(version: SubjectVersion, text: SchemaText) -> bool:
    return same(text, version.schema) and text.references in ((), version.schema.references)


_RULES = {
    READING: ("read", "Set ignore_rules=True to read values as they are: what a rule encrypted stays so."),
    WRITING: ("write", "Set ignore_rules=True to write values as they are: nothing is encrypted."),
}


def _refuse_rules(version: SubjectVersion, modes: frozenset[str]) -> None:
    """Raise ConfigurationError if clients run a rule of these modes. This package runs none."""
    if rules := rule_names(version.schema.rules, modes):
        verb, action = _RULES[modes]
        raise ConfigurationError(
            "schema",
            f"schema {version.schema_id} of {version.subject!r} has rules, which other clients run when they {verb} "
            f"values, and this package does not: {rules}",
            action=action,
        )


def _record_name(text: SchemaText, message: str) -> str:
    target = QuerySchema(text, message)
    _usable(target)
    return format_of(target).name


def _usable(target: QuerySchema) -> pa.DataType:
    """The type of the values. Raises ConfigurationError for a schema that Spark has no type for."""
    with _usable_schema():
        return format_of(target).arrow


@contextmanager
def _usable_schema() -> Iterator[None]:
    try:
        yield
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


def _given(
    registry: Registry, schema: str, kind: SchemaType, references: References, subject: str | None
) -> SchemaText:
    if kind not in {"AVRO", "PROTOBUF", "JSON"}:
        raise ConfigurationError("schema_type", f"must be AVRO, PROTOBUF or JSON, not {kind!r}")
    if not references:
        return SchemaText(kind, schema)
    with _reading(
        "the schema",
        option="references",
        unknown=f"the registry at {registry.hosts} lacks one of these versions: {references}",
        action="Give each name in the schema the subject and the version behind it.",
    ):
        return registry.session.given(schema, kind, references, subject)


def _latest(registry: Registry, subject: str | None) -> SubjectVersion:
    if subject is None:
        raise ConfigurationError("subject", "the schema is not known: give subject, topic or schema")
    with _reading(
        f"the latest schema of {subject!r}",
        option="subject",
        unknown=f"the registry at {registry.hosts} has no subject {subject!r}",
        action="Check the name; with a naming strategy other than the topic's, give the subject itself.",
    ):
        return registry.session.latest(subject)


@contextmanager
def _reading(what: str, *, option: str, unknown: str, action: str) -> Iterator[None]:
    """Refuse a schema that the registry lacks, with the text `unknown`, and one that is too large."""
    try:
        yield
    except UnknownSchema:
        raise ConfigurationError(option, unknown, action=action) from None
    except TooLargeSchema as error:
        raise InvalidSchema(f"{what} cannot be read: {error}") from None
