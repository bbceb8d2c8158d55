"""One local Spark session for every test that needs one, and the table of what test_write_paths.py tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_kafka_eos.tools.jars import BUILT_IN_CONNECTOR, files


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two local cores, two shuffle partitions, no UI, Spark's own Kafka source; a session time zone other than UTC, so
    that a mix-up shows."""
    # Workers run the tests' Python and find the package wherever the tests do.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark-kafka-eos tests")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(map(str, files(BUILT_IN_CONNECTOR))))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    yield session
    session.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every scenario with each way to write, and how it went under both transaction protocols."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for outcome, shown in (("passed", "ok"), ("failed", "FAILED"), ("error", "ERROR")):
        for report in terminalreporter.getreports(outcome):
            cell = dict(report.user_properties).get("write path")
            if cell is not None:
                scenario, way, protocol = cell
                cells.setdefault((scenario, way), {})[protocol] = shown
    if not cells:
        return
    terminalreporter.section("write paths")
    widths = [max(len(names[column]) for names in cells) for column in (0, 1)]
    for (scenario, way), found in sorted(cells.items()):
        protocols = "  ".join(f"{name} {found.get(name, '-'):6}" for name in ("TV1", "TV2"))
        terminalreporter.write_line(f"{scenario:{widths[0]}}  {way:{widths[1]}}  {protocols}")
