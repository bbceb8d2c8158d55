"""The registry's benchmark, at a size that takes no time."""

from lab.bench.registry import CONFLUENT, OURS, alone


def test_both_sides_decode_and_encode_on_one_core():
    found = alone(records=10_000, runs=1)
    assert [each.title.split()[0] for each in found] == ["decode", "encode"]
    assert all([series.name for series in each.series] == [OURS, CONFLUENT] for each in found)
