"""The schema types, and what decoding and encoding ask of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

import pyarrow as pa

from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.rows import ReadColumn
from spark_kafka_eos.startup.quickack import QuickAck


@dataclass(frozen=True)
class QuerySchema(QuickAck):
    """What a query reads or writes: a schema and, in Protobuf, the message's full name ("" for the first one), and
    whether Kafka Connect's types count. Spark pickles it with the function of each column.
    """

    schema: SchemaText
    message: str = ""
    connect_types: bool = False


class Format(Protocol):
    """A schema type with the schema of a query."""

    arrow: pa.DataType  # of the column that it reads and writes
    name: str  # of the record, as the subject's strategies use it

    def reader(self, written: SchemaText) -> ReadColumn:
        """The function that reads bodies of schema `written`. Raises Incompatible and UnsupportedSchema."""

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        """Each row's body after `prefix`; null stays null. Raises InvalidSchema and InvalidRow, and UnsupportedSchema
        if `check_written` does.
        """


@lru_cache(maxsize=64)
def format_of(target: QuerySchema) -> Format:
    """Raises UnsupportedSchema."""
    match target.schema.kind:
        case "PROTOBUF":
            from spark_kafka_eos.registry.protobuf import ProtobufFormat

            return ProtobufFormat(target.schema, target.message, connect_types=target.connect_types)
        case "JSON" if target.connect_types:
            from spark_kafka_eos.registry.connect_json_schema import ConnectJsonFormat

            return ConnectJsonFormat(target.schema)
        case "JSON":
            from spark_kafka_eos.registry.json_schema import JsonFormat

            return JsonFormat(target.schema)
    from spark_kafka_eos.registry.avro import AvroFormat

    return AvroFormat(target.schema, connect_types=target.connect_types)


def check_written(target: QuerySchema) -> None:
    """Raises UnsupportedSchema as `format_of`, and for what can only be read: a message that the file imports."""
    made = format_of(target)
    if target.schema.kind == "PROTOBUF":
        from spark_kafka_eos.registry.protobuf import ProtobufFormat

        _ = cast(ProtobufFormat, made).indexes


def same(first: SchemaText, second: SchemaText) -> bool:
    """Whether the texts certainly say the same: in JSON in another order, in Protobuf in another form of a file. What
    they refer to is not compared.
    """
    if first.kind != second.kind:
        return False
    if first.kind == "PROTOBUF":
        from spark_kafka_eos.registry.protobuf import same_file

        return same_file(first, second)
    try:
        texts = {json.dumps(json.loads(text), sort_keys=True) for text in (first.text, second.text)}
    except (ValueError, RecursionError):
        return first.text == second.text
    return len(texts) == 1
