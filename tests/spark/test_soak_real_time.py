"""Half an hour of faults while a query in real time copies 5,000 records a second: each is written once, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.spark.soaking import SECONDS, Soak, soaked

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3_600)]


@pytest.fixture
def soak(kafka_version: str, tmp_path: Path) -> Iterator[Soak]:
    with soaked(kafka_version, tmp_path, "soak_real_time.py", "1 minute") as soak:
        yield soak


def test_half_an_hour_of_faults_in_real_time_leaves_each_record_once_and_in_order(soak: Soak, cell) -> None:
    ran, logs = soak.run(), soak.logs
    batches = [int(count) for count in re.findall(r"in real time: records=(\d+) written=", logs)]
    told = ran.told | {
        "micro-batches to their end": len(batches),
        "buckets started again": len(re.findall(r"buckets .* are started again: ", logs)),
        **{f"{name}, ms": latency(logs, name) for name in ("latency_p50", "latency_p99")},
    }
    for name, figure in told.items():
        cell("Soak in real time", f"{SECONDS} s", name, figure)
    print(told)
    assert ran.outcome.holds, ran.outcome
    assert ran.outcome.found == ran.outcome.expected
    if SECONDS >= 600:
        assert len(batches) >= 3


def latency(logs: str, name: str) -> float | None:
    """The median of this quantile in ten seconds, as the drivers' logs have it; None if no query ran for so long."""
    by_interval = [float(ms) for ms in re.findall(rf"in real time: seconds=.* {name}=([\d.]+)ms", logs)]
    return median(by_interval) if by_interval else None
