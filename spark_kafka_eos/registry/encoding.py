"""A column of values becomes a column of framed values: magic byte 0, the schema's id, and the body."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_eos.registry.formats import QuerySchema, format_of


def encode(values: pa.Array, schema_id: int, target: QuerySchema) -> pa.BinaryArray:
    """Null stays null. Raises InvalidSchema and InvalidRow."""
    return format_of(target).write(values, b"\0" + schema_id.to_bytes(4, "big"))
