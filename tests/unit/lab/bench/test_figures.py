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


def test_a_point_has_the_median_and_the_quartiles_of_its_runs():
    point = Point.of("a", 1, [5.0, 1.0, 3.0, 2.0, 4.0])
    assert (point.low, point.value, point.high) == (2.0, 3.0, 4.0)
    assert point.runs == (5.0, 1.0, 3.0, 2.0, 4.0)
    assert Point.of("a", 1, [7.0]) == Point(line="a", at=1, value=7.0, low=7.0, high=7.0, runs=(7.0,))


def test_medians_whose_quartiles_overlap_are_equal():
    slow, fast = Point.of("a", 1, [1.0, 2.0, 3.0, 4.0, 5.0]), Point.of("b", 1, [4.0, 4.0, 5.0, 6.0, 7.0])
    assert slow.equals(fast)
    assert fast.equals(slow)
    assert not slow.equals(Point.of("b", 1, [4.5, 4.5, 5.0, 6.0, 7.0]))


def test_a_line_is_compared_with_the_first_one_of_its_panel():
    points = tuple(Point(line=line, at=1, value=1.0) for line in ("A, plain", "A, other", "B, plain"))
    found = Sweep(title="t", x="x", y="y", points=points, panels=("A", "B"))
    assert [found.baseline(line) for line in found.lines] == [None, "A, plain", None]
    assert Sweep(title="t", x="x", y="y", points=points).baseline("A, other") is None


def test_an_order_is_stable_if_both_halves_of_the_runs_have_it():
    runs = {
        "A, plain": [9.0, 9.0, 9.0, 9.0],
        "A, equal": [8.0, 10.0, 9.0, 9.0],
        "A, slower": [5.0, 5.0, 5.0, 5.0],
        "A, turned": [4.0, 4.0, 4.0, 6.0, 6.0, 4.0],
        "B, plain": [1.0, 1.0, 1.0, 1.0],
    }
    points = tuple(Point.of(line, 1, values) for line, values in runs.items())
    found = Sweep(title="t", x="x", y="y", points=points, panels=("A", "B")).order()
    # plain and equal are no pair, and slower and turned overlap: plain and equal differ from slower and turned.
    assert (found.differ, found.stable) == (4, 4)
    turned = {"A, plain": [1.0] * 7, "A, slower at last": [1.1, 1.1, 0.8, 0.8, 0.8, 0.8, 0.8]}
    points = tuple(Point.of(line, 1, values) for line, values in turned.items())
    found = Sweep(title="t", x="x", y="y", points=points, panels=("A",)).order()
    assert (found.differ, found.stable) == (1, 0)
