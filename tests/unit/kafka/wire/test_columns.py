from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.kafka.wire.columns import cut, from_numpy, from_offsets, interleave, lengths, nulls, to_numpy

VALUES = st.lists(st.none() | st.binary(max_size=20), min_size=1)


def test_columns_are_laid_end_to_end_row_by_row() -> None:
    one, two = pa.array([b"a", None, b"ccc"], pa.binary()), pa.array([b"1", b"22", b""], pa.binary())
    data, starts = interleave([one, two])
    assert bytes(data) == b"a122ccc"
    assert starts.tolist() == [0, 2, 4, 7]


@settings(deadline=None)
@given(VALUES, st.data())
def test_slices_count_from_their_own_start(values: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    column = pa.array([b"before", *values, b"behind"], pa.binary())[1 + start : 1 + len(values)]
    assert lengths(column).tolist() == [-1 if value is None else len(value) for value in values[start:]]
    assert bytes(interleave([column, column])[0]) == b"".join((value or b"") * 2 for value in values[start:])


def test_bytes_under_a_null_do_not_count() -> None:
    hidden = pa.BinaryArray.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 5], np.int32)), pa.py_buffer(b"abcde")]
    )
    assert hidden.to_pylist() == [None, b"de"]
    assert lengths(hidden).tolist() == [-1, 2]
    assert bytes(interleave([hidden])[0]) == b"de"


@settings(deadline=None)
@given(VALUES)
def test_what_is_laid_out_can_be_cut_out_again(values: list[bytes | None]) -> None:
    gap = pa.array([b"gap"] * len(values), pa.binary())
    data, starts = interleave([gap, pa.array(values, pa.binary())])
    length = np.array([-1 if value is None else len(value) for value in values])
    column = cut(np.frombuffer(data, np.uint8), starts[:-1].astype(np.int64) + 3, length)
    column.validate(full=True)
    assert column.to_pylist() == values


def test_columns_from_offsets_need_no_copy() -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    column = from_offsets(np.array([0, 1, 1, 6], np.int32), data)
    assert column.to_pylist() == [b"a", b"", b"bcdef"]
    assert column.buffers()[2].address == data.ctypes.data


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-9, 9), max_size=40), st.data())
def test_the_nulls_of_a_slice_are_its_own(values: list[int | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    behind = data.draw(st.integers(first, len(values)))
    some = pa.array(values, pa.int32()).slice(first, behind - first)
    assert nulls(some).tolist() == [value is None for value in values[first:behind]]


@settings(deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=40), st.sampled_from(["int16", "int32", "int64"]), st.data())
def test_numbers_go_to_arrow_and_back_also_in_slices(values: list[int], kind: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    column = from_numpy(np.array(values, kind))
    assert column.equals(pa.array(values, kind))
    assert to_numpy(column.slice(first)).tolist() == values[first:]
    assert to_numpy(column).dtype == np.dtype(kind)


def test_the_lengths_of_lists_are_their_elements() -> None:
    lists = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32()))
    assert lengths(lists).tolist() == [2, -1, 0, 1]
    assert lengths(lists.slice(1, 2)).tolist() == [-1, 0]
