"""Avro, as one of the schema types."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_eos.registry.avro_reading import reader
from spark_kafka_eos.registry.avro_schema import arrow_type, parse
from spark_kafka_eos.registry.avro_writing import write
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.rows import ReadColumn


class AvroFormat:
    def __init__(self, wanted: SchemaText) -> None:
        self._wanted = parse(wanted.text, dict(wanted.references))
        self.arrow: pa.DataType = arrow_type(self._wanted)
        self.name: str = getattr(self._wanted, "name", "")

    def reader(self, written: SchemaText) -> ReadColumn:
        return reader(parse(written.text, dict(written.references)), self._wanted)

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        return write(self._wanted, column, prefix)
