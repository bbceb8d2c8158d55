"""What Kafka's perf tools print, read."""

import pytest

from lab.bench.java import fetch_seconds, produced
from spark_kafka_eos.errors import ToolFailed

# Printed by the tools of Kafka 4.3.1.
PRODUCED = """\
49825 records sent, 9963.0 records/sec (0.95 MB/sec), 2.1 ms avg latency, 250.0 ms max latency.
100000 records sent, 95238.095238 records/sec (9.08 MB/sec), 141.66 ms avg latency, 352.00 ms max latency, \
129 ms 50th, 301 ms 95th, 318 ms 99th, 321 ms 99.9th.
"""
CONSUMED = (
    "2026-11-21 16:50:00:000, 2026-11-21 16:50:01:500, 190.7349, 127.1566, 2000000, 1333333.3333, 500, 1000, 190.7349,"
    " 2000000.0000\n"
)


def test_the_last_summary_counts():
    found = produced(PRODUCED)
    assert (found.records, found.mean, found.p50, found.p95, found.p99) == (100_000, 141.66, 129, 301, 318)
    assert found.seconds == pytest.approx(1.05)


def test_a_warm_up_does_not_count():
    steady = "75000 steady state records sent, 150000.000000 records/sec (1.00 MB/sec), 2.00 ms avg latency, "
    found = produced(f"{PRODUCED}{steady}3.00 ms max latency, 1 ms 50th, 3 ms 95th, 3 ms 99th, 3 ms 99.9th.\n")
    assert (found.records, found.seconds) == (75_000, 0.5)


def test_output_without_a_summary_is_an_error_that_shows_it():
    with pytest.raises(ToolFailed, match="printed no summary") as error:
        produced("java.lang.OutOfMemoryError")
    assert "OutOfMemoryError" in str(error.value)


def test_joining_the_group_does_not_count_as_fetching():
    assert fetch_seconds(CONSUMED, 2_000_000) == 1.0


def test_fewer_records_than_asked_for_are_an_error():
    with pytest.raises(ToolFailed, match="2000000 of 3,000,000"):
        fetch_seconds(CONSUMED, 3_000_000)
    with pytest.raises(ToolFailed, match="no result"):
        fetch_seconds("WARNING: Exiting before consuming the expected number of records", 1)
