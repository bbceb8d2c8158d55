"""The codec's benchmark, at a size that takes no time."""

from lab.bench.codec import BLOCKS, DECODE, ENCODE, FLOOR, codec, small_batches
from lab.bench.inputs import Mixed


def test_every_direction_is_measured_beside_the_floor():
    found = codec(records=1_000, runs=2)
    assert [series.name for series in found.series] == [ENCODE, DECODE, BLOCKS, FLOOR]
    assert {len(series.seconds) for series in found.series} == {2}
    assert {series.records for series in found.series} == {1_000}
    assert found.ratio(FLOOR, ENCODE) > 1
    assert 108_000 < found.settings["bytes"] < 130_000


def test_small_record_batches_of_mixed_sizes_come_many_in_a_response():
    found = codec(records=3_000, mixed=Mixed(), runs=1)
    assert found.settings["values"] == "20 to 2,000 bytes, linger 0"
    assert {series.records for series in found.series} == {3_000}


def test_small_batches_are_measured_by_their_size():
    found = small_batches(records=100, runs=1)
    assert [series.name for series in found.series] == [
        "1 per batch",
        "5 per batch",
        "100 per batch",
        "1 per batch, zstd",
        "5 per batch, zstd",
        "100 per batch, zstd",
    ]
    assert {series.records for series in found.series} == {100}
