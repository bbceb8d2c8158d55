from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.tools.verify.provenance_bytes import MAGIC, PROVENANCE, SIZE, pack, unpack

rows = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(-1, 99)
    ),
    min_size=1,
    max_size=20,
)


@given(rows, st.binary(max_size=9))
def test_what_is_packed_is_unpacked_whatever_follows_it(rows, payload):
    values = pack(*(np.array(column) for column in zip(*rows, strict=True)), payload=payload)
    values.validate(full=True)
    assert {len(value) for value in values.to_pylist()} == {SIZE + len(payload)}
    assert all(value.endswith(payload) for value in values.to_pylist())
    assert [(r["partition"], r["offset"], r["batch"], r["attempt"]) for r in unpack(values)] == rows


def test_the_layout_is_the_one_that_is_documented():
    (value,) = pack(1, 2, 3, 4, payload=b"rest").to_pylist()
    assert value == b"eos\x01" + bytes([0, 0, 0, 1]) + bytes(7) + b"\x02" + bytes(7) + b"\x03" + b"\0\0\0\x04" + b"rest"


def test_values_without_it_are_told_apart_in_any_position():
    (own,) = pack(7, 8, 9).to_pylist()
    values = pa.array([b"", None, own + b"x", own[:-1], b"x" * SIZE, own], pa.binary())
    for start in range(len(values)):
        found = unpack(values[start:])
        assert (found["magic"] == MAGIC).tolist() == [False, False, True, False, False, True][start:]
        assert found["offset"].tolist() == [0, 0, 8, 0, 0, 8][start:]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20))
def test_any_value_is_looked_at_without_harm(values):
    assert unpack(pa.array(values, pa.binary())).dtype == PROVENANCE
