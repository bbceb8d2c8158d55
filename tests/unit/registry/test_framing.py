"""Which values have a schema id: by their first bytes, wherever they lie in Arrow's buffers."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
import pytest

from spark_kafka_eos.registry.framing import EIGHT_BYTES, NOT_FRAMED, framed

GOOD = b"\0\0\0\0\x07x"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([GOOD, b""], [0]),
        ([b"", GOOD], [1]),
        ([b"", b""], []),
        ([GOOD, GOOD[:4]], [0]),
        ([b"\2" + GOOD, GOOD], [1]),
    ],
)
def test_an_empty_value_has_none_also_where_the_buffer_ends(values, found):
    offsets = pa.array(accumulate(map(len, values), initial=0), pa.int32()).buffers()[1]
    data = pa.py_buffer(b"".join(values))  # with not one byte more
    groups, unframed = framed(pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, data]))
    assert [(group.schema, group.rows.tolist()) for group in groups] == ([(7, found)] if found else [])
    assert unframed == {row: NOT_FRAMED for row in range(len(values)) if row not in found}


def test_an_id_of_eight_bytes_is_named_and_no_registry_is_asked_for_schema_0():
    """As Apicurio's serializers write it by default. No registry gives a schema the id 0."""
    values = pa.array([GOOD, b"\0" + (4).to_bytes(8, "big") + b"x", b"\0" + (2**31).to_bytes(8, "big"), b"\0\0\0\0\0x"])
    groups, unframed = framed(values)
    assert {group.schema: group.rows.tolist() for group in groups} == {7: [0], 0: [3]}
    assert unframed == {1: EIGHT_BYTES, 2: EIGHT_BYTES}
    assert "as-confluent=true" in EIGHT_BYTES and "use-id=contentId" in EIGHT_BYTES
