"""Avro: what `decoding` and `encoding` ask of a schema type."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spark_kafka_eos.registry.avro_reading import reader
from spark_kafka_eos.registry.avro_schema import arrow_type, parse
from spark_kafka_eos.registry.client import Text
from spark_kafka_eos.registry.rows import Rows


class AvroFormat:
    def __init__(self, wanted: Text) -> None:
        self._wanted = parse(wanted.text, dict(wanted.references))
        self.arrow: pa.DataType = arrow_type(self._wanted)

    def reader(self, written: Text) -> Callable[[Rows], pa.Array]:
        return reader(parse(written.text, dict(written.references)), self._wanted)
