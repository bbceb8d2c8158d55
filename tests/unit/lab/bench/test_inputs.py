"""Inputs: as many records as asked for, of the size and kind asked for."""

import zlib

import pytest

from lab.bench.inputs import Mixed, Shape, rows


def columns(shape):
    keys, values = zip(*((keys.to_pylist(), values.to_pylist()) for keys, values in rows(shape)), strict=True)
    return [key for part in keys for key in part], [value for part in values for value in part]


@pytest.mark.parametrize("records", [1, 3, 20_000])
def test_every_record_has_a_key_of_its_own_and_a_value_of_the_size(records):
    keys, values = columns(Shape(records=records, value_bytes=17))
    assert keys == [b"%08d" % number for number in range(records)]
    assert {len(value) for value in values} == {17}


def test_values_cannot_be_compressed_unless_they_are_meant_to_be():
    plain = b"".join(columns(Shape(records=2_000))[1])
    meant = b"".join(columns(Shape(records=2_000, compression="zstd"))[1])
    assert len(zlib.compress(plain)) > 0.99 * len(plain)
    assert len(zlib.compress(meant)) < 0.7 * len(meant)


def test_there_is_a_record_batch_for_every_partition():
    shape = Shape(records=1_000, partitions=10, topics=5)
    assert len(list(rows(shape))) == shape.all_partitions


def test_a_record_batch_stays_below_a_megabyte():
    assert max(values.nbytes for _, values in rows(Shape(records=300, value_bytes=10_000))) < 1_000_000


def test_the_same_shape_has_the_same_values():
    assert columns(Shape(records=100)) == columns(Shape(records=100))


def test_mixed_records_have_every_size_and_more_small_ones():
    keys, values = columns(Shape(records=20_000, mixed=Mixed()))
    sizes = sorted(map(len, values))
    assert len(set(keys)) == 20_000
    assert 20 <= sizes[0] < 25 and 1_900 < sizes[-1] <= 2_000
    assert sizes[10_000] == pytest.approx((20 * 2_000) ** 0.5, rel=0.1)


def test_mixed_records_are_in_batches_from_one_record_up_to_16_kb_always_the_same():
    shape = Shape(records=5_000, mixed=Mixed())
    bytes_of = [keys.nbytes + values.nbytes for keys, values in rows(shape)]
    assert min(len(keys) for keys, _ in rows(shape)) == 1
    assert 12_000 < max(bytes_of) <= 16_384
    assert columns(shape) == columns(shape)
