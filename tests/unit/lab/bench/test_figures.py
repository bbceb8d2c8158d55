"""Medians, ratios, percentiles, growth: the arithmetic of benchmarks."""

import pytest

from lab.bench.figures import Comparison, Point, Series, Sweep, growth, latencies, phases


def series(name, *seconds, records=1_000):
    return Series(name=name, records=records, seconds=seconds)


def test_a_series_median_is_not_moved_by_one_slow_run():
    found = series("ours", 1.0, 1.2, 9.0)
    assert found.median == 1.2
    assert found.rate == pytest.approx(1_000 / 1.2)
    assert found.spread == pytest.approx(8.0 / 1.2)


def test_a_ratio_above_one_means_more_records_a_second():
    found = Comparison(title="t", series=(series("ours", 2.0), series("theirs", 5.0)))
    assert found.ratio("ours", "theirs") == pytest.approx(2.5)
    assert found.ratio("theirs", "ours") == pytest.approx(0.4)
    with pytest.raises(KeyError):
        found.named("nobody")


def test_quantiles_are_taken_at_producer_performance_s_index():
    # ProducerPerformance: index (int) (percentile * count) of the ascending latencies.
    found = latencies(((float(ms), 1) for ms in range(100, 0, -1)), (0.5, 0.95, 0.99, 0.999))
    assert dict(found.quantiles) == {0.5: 51.0, 0.95: 96.0, 0.99: 100.0, 0.999: 100.0}
    assert (found.count, found.mean, found.maximum, found.median) == (100, 50.5, 100.0, 51.0)


def test_a_latency_counts_as_often_as_records_had_it():
    found = latencies([(5.0, 1), (1.0, 98), (9.0, 1), (7.0, 0)], (0.5, 0.98, 0.99))
    assert dict(found.quantiles) == {0.5: 1.0, 0.98: 5.0, 0.99: 9.0}
    assert found.count == 100


def test_no_latencies_are_an_error():
    with pytest.raises(ValueError, match="no latencies"):
        latencies([])


def test_growth_is_the_power_of_the_steepest_step():
    assert growth([(1, 1.0), (10, 10.0), (100, 100.0)]) == pytest.approx(1.0)
    assert growth([(64, 1.0), (512, 1.0)]) == pytest.approx(0.0)
    assert growth([(1, 1.0), (2, 2.0), (4, 8.0)]) == pytest.approx(2.0)


def test_a_sweep_s_lines_keep_their_order():
    points = tuple(Point(line=line, at=at, value=1.0) for at in (1, 2) for line in ("b", "a"))
    found = Sweep(title="t", x="x", y="y", points=points)
    assert found.lines == ("b", "a")
    assert [point.at for point in found.line("a")] == [1, 2]


def test_phases_of_micro_batches_are_medians_the_longest_first():
    batches = [{"walCommit": 10, "addBatch": 80}, {"walCommit": 30, "addBatch": 90}, {"walCommit": 20, "getBatch": 1}]
    assert list(phases(batches).items()) == [("addBatch", 80.0), ("walCommit", 20.0)]
