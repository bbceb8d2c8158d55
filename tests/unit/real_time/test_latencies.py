"""Latencies: quantiles within a few percent of those of all values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.real_time.latencies import Latencies, added

VALUES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=200)


@given(VALUES, st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_that_of_the_values_to_five_percent(values: list[float], share: float) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    expected = float(np.quantile(values, share, method="inverted_cdf"))
    assert latencies.quantile(share) == pytest.approx(expected, rel=0.05)


@given(VALUES, VALUES)
def test_those_of_several_tasks_are_added(first: list[float], second: list[float]) -> None:
    parts = [Latencies(), Latencies(), Latencies()]
    for latencies, values in zip(parts, (first, second, first + second), strict=True):
        for value in values:
            latencies.add(value)
    assert added(parts[:2]).counts == parts[2].counts


def test_nothing_has_no_quantile_and_a_clock_that_is_behind_counts_as_nothing() -> None:
    assert Latencies().quantile(0.5) is None
    behind = Latencies()
    behind.add(-3.0, times=7)
    assert behind.quantile(0.99) == pytest.approx(0.1, rel=0.05)
