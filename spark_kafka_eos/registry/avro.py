"""Avro, as one of the schema types.

Source of what is Confluent's, not Avro's: "Wire format" of Confluent Schema Registry, by which "raw bytes" are the
exception, and Java's `AbstractKafkaAvroSerializer`, where that is the type bytes with any logical type, also a decimal.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from spark_kafka_eos.registry.avro_reading import reader
from spark_kafka_eos.registry.avro_schema import Avro, Primitive, arrow_type, parse
from spark_kafka_eos.registry.avro_writing import write
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.rows import ReadColumn


class AvroFormat:
    def __init__(self, schema: SchemaText, *, connect_types: bool = False) -> None:
        self._connect_types = connect_types
        self._schema = self._parsed(schema)
        self.arrow: pa.DataType = arrow_type(self._schema)
        self.name: str = getattr(self._schema, "name", "")

    def reader(self, written: SchemaText) -> ReadColumn:
        return reader(self._parsed(written), self._schema)

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        return write(self._schema, column, prefix)

    def _parsed(self, schema: SchemaText) -> Avro:
        avro = parse(schema.text, dict(schema.references), connect_types=self._connect_types)
        return replace(avro, alone=True) if isinstance(avro, Primitive) and avro.name == "bytes" else avro
