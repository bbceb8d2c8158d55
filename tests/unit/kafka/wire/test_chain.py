"""Batches here are chains of lengths and filler: what stands in the records does not matter to the chain."""

from __future__ import annotations

import functools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire import chain
from spark_kafka_eos.kafka.wire.varint import varint_column, varints

FILLER = 0x55
SIZES = st.one_of(
    st.lists(st.integers(6, 200), min_size=1, max_size=30),  # all different
    st.builds(lambda size, count: [size] * count, st.integers(6, 9000), st.integers(1, 100)),  # all of equal size
    st.lists(st.tuples(st.integers(6, 9000), st.integers(1, 600)), min_size=1, max_size=4).map(
        lambda runs: [size for size, count in runs for _ in range(count)]
    ),
    st.builds(lambda size, a, b: [size] * a + [size + 1] * b, st.integers(6, 80), st.just(64), st.integers(0, 50)),
)


@functools.cache
def record_of(size: int) -> bytes:
    return bytes(varint_column([varints(size)], 1)[0].as_py()) + bytes([FILLER]) * size


def batch_of(sizes: list[int]) -> bytes:
    return b"".join(map(record_of, sizes))


def laid_out(batches: list[bytes], gap: int = 61) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """These batches in one buffer, each preceded by a gap, and where each starts and ends."""
    data, start = b"", []
    for batch in batches:
        data += bytes(gap)
        start.append(len(data))
        data += batch
    end = [at + len(batch) for at, batch in zip(start, batches, strict=True)]
    return np.frombuffer(data, np.uint8), np.array(start), np.array(end)


def bounds(batches: list[bytes], counts: list[int], **given: int) -> tuple[list[int], list[int]]:
    """`record_bounds` of these batches, each preceded by a gap, relative to the buffer."""
    data, start, end = laid_out(batches)
    begin, stop = chain.record_bounds(data, start, end, np.array(counts, np.int64), **given)
    return begin.tolist(), stop.tolist()


def expected(batches: list[list[int]], gap: int = 61) -> tuple[list[int], list[int]]:
    begin, stop, at = [], [], 0
    for sizes in batches:
        at += gap
        for size in sizes:
            at += len(record_of(size)) - size
            begin.append(at)
            at += size
            stop.append(at)
    return begin, stop


@settings(deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=5))
def test_records_are_found_whatever_their_sizes(batches: list[list[int]]) -> None:
    assert bounds([batch_of(sizes) for sizes in batches], [len(sizes) for sizes in batches]) == expected(batches)


@settings(deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=8), st.integers(1, 4))
def test_batches_walked_abreast_give_the_same(batches: list[list[int]], abreast: int) -> None:
    found = bounds([batch_of(sizes) for sizes in batches], [len(sizes) for sizes in batches], abreast=abreast)
    assert found == expected(batches)


@pytest.mark.parametrize("copies", [1, chain.ABREAST + 1], ids=["one", "abreast"])
def test_lengths_of_every_width_are_found_beside_each_other(copies: int) -> None:
    sizes = [9_000, 7, 63, 64, 8_191, 8_192, 20_000, 6]
    batches = [sizes[at % 3 :] for at in range(copies)]
    assert bounds([batch_of(sizes) for sizes in batches], [len(sizes) for sizes in batches]) == expected(batches)


def test_only_what_is_left_of_many_batches_is_walked_one_by_one() -> None:
    batches = [[6, 7, 9]] * 4 + [[6, 7, 9, 10, 8]]
    data, start, end = laid_out([batch_of(sizes) for sizes in batches])
    count = np.array([len(sizes) for sizes in batches])
    at = np.zeros(count.sum(), np.int64)
    left, position, done = chain.walk_abreast(at, np.arange(5), data, start, end, count, abreast=2)
    assert (left.tolist(), position.tolist(), done) == ([4], [start[4] + 7 + 8 + 10], 3)
    assert at.tolist() == [at for first in start for at in (first, first + 7, first + 15)] + [0, 0]


@pytest.mark.parametrize("size", [6, 62, 63, 64, 8190, 8191])
def test_equal_records_are_found_without_a_walk(size: int) -> None:
    """The offset delta takes a second byte from the 65th record on, a third from the 8193rd on."""
    sizes = [size] * 64 + [size + 1] * (8192 - 64) + [size + 2] * 10
    data, start, end = laid_out([batch_of(sizes)] * 2)
    at, guessed = chain.guess(data, start, end, np.array([len(sizes)] * 2))
    begin, _ = expected([sizes] * 2)
    assert guessed.all()
    assert at.tolist() == [first - len(record_of(of)) + of for first, of in zip(begin, sizes * 2, strict=True)]
    assert bounds([batch_of(sizes)] * 2, [len(sizes)] * 2) == expected([sizes] * 2)


def test_a_run_of_equal_records_is_walked_in_strides() -> None:
    """As where timestamp deltas grow by a byte somewhere in the batch."""
    sizes = [100] * 1000 + [101] * 5000
    data = np.frombuffer(batch_of(sizes), np.uint8)
    assert chain.run_at(data, data.data, 0, 6000) == (102, 1000)
    assert chain.run_at(data, data.data, 102_000, 5000) == (103, 5000)
    assert bounds([batch_of(sizes)], [len(sizes)]) == expected([sizes])


def test_a_guess_that_fits_the_size_but_not_the_lengths_is_dropped() -> None:
    sizes = [10, 9, 11, 10]
    assert bounds([batch_of(sizes)], [4]) == expected([sizes])


@pytest.mark.parametrize("copies", [1, chain.ABREAST + 1], ids=["one", "abreast"])
@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([10] * 10, 9),
        ([10] * 10, 11),
        ([10, 20, 30], 2),
        ([10, 20, 30], 4),
        ([10, 20, 5, 30], 4),  # a record is never that small
    ],
)
def test_a_count_or_size_that_does_not_fit_is_refused(sizes: list[int], count: int, copies: int) -> None:
    with pytest.raises(CorruptRecordBatch):
        bounds([batch_of(sizes)] * copies, [count] * copies)


@pytest.mark.parametrize("copies", [1, chain.ABREAST + 1], ids=["one", "abreast"])
@pytest.mark.parametrize("damage", ["01", "ffffffff0f", "fffffffff0", "feffffff0f", "80"], ids=str)
@pytest.mark.parametrize("where", [0, 1, -1])
def test_nonsense_for_a_length_is_refused(damage: str, where: int, copies: int) -> None:
    """Negative, too long, endless, beyond the batch."""
    records = [bytearray(batch_of([size])) for size in (10, 20, 30)]
    records[where][: len(damage) // 2] = bytes.fromhex(damage)
    with pytest.raises(CorruptRecordBatch):
        bounds([b"".join(records)] * copies, [3] * copies)


@pytest.mark.usefixtures("without_collector")
def test_a_length_without_end_takes_no_time() -> None:
    """Followed to its end it would be a number of a million bits, in a quadratic time."""
    started = time.process_time()
    with pytest.raises(CorruptRecordBatch):
        bounds([batch_of([10]) + b"\xff" * 200_000], [2])
    assert time.process_time() - started < 0.5
