"""One local Spark session for every test that needs one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from kafka_eos_python import beside
from lab.jars import built_in_connector
from spark_kafka_eos.testing.jars import files


def pytest_configure(config: pytest.Config) -> None:
    """Releases of PySpark before 4.2 leave sockets to the garbage collector and ask for versions in an old way."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
        for ignored in ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", f"ignore::{ignored}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two local cores, two shuffle partitions, no UI, Spark's own Kafka source; a session time zone other than UTC, so
    that a mix-up shows."""
    # Workers run the tests' Python and find the package wherever the tests do.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = beside(sys.executable)
    # What pyarrow's S3 client finds in a Python process of Spark; tests/s3.py accepts any.
    os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark-kafka-eos tests")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(map(str, files(built_in_connector(pyspark.__version__)))))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page's commands are run: nothing here leads to this package or to the tests' Python."""
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
