"""The Databricks notebook runs from its first cell to its last, against a broker with logins and ACLs.

Not Databricks: `dbutils` (`Dbutils` below), the Unity Catalog volume (a folder), and the notebook server, which runs
the cells (`run`). `%pip` is not run, because the package is installed. Spark is the release that is installed here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lab.jars import built_in_connector
from spark_kafka_eos.testing.driver import python_environment
from spark_kafka_eos.testing.jars import files
from tests.conftest import SecuredKafka
from tests.pages import ROOT
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "jobs" / "databricks_over_connect.py"
NOTEBOOK = ROOT / "notebooks" / "databricks.py"
SAMPLES = sorted(f"order {number}" for number in range(1000))
FIRST_LINE = "# Databricks notebook source\n"


class Dbutils:
    """The parts of `dbutils` that the notebook uses."""

    def __init__(
        self, values: dict[str, str], secrets: dict[tuple[str, str], str], namespace: dict[str, object]
    ) -> None:
        self.widgets = self.secrets = self.library = self
        self.values, self._secrets, self._namespace = values, secrets, namespace

    def text(self, name: str, default: str) -> None:
        self.values.setdefault(name, default)

    def get(self, name: str, key: str | None = None) -> str:
        return self.values[name] if key is None else self._secrets[name, key]

    def restartPython(self) -> None:
        for name in self._namespace.keys() - {"spark", "dbutils"}:
            del self._namespace[name]


def cells() -> Iterator[str]:
    """The notebook's Python cells. Fails for a magic command other than %md and the %pip that installs the package."""
    text = NOTEBOOK.read_text()
    assert text.startswith(FIRST_LINE)
    for cell in text.removeprefix(FIRST_LINE).split("# COMMAND ----------\n"):
        magic = re.match(r"\s*# MAGIC (%\w+)(.*)", cell)
        if magic is None:
            yield cell
        else:
            assert magic[1] == "%md" or magic.group(1, 2) == ("%pip", " install spark-kafka-eos")


def run(cell: str, namespace: dict[str, object]) -> None:
    exec(compile(cell, str(NOTEBOOK), "exec"), namespace)


def widgets(secured: SecuredKafka, folder: Path) -> dict[str, str]:
    """Values for the notebook's widgets, with new topics."""
    names = {
        name: f"databricks-{name}-{uuid.uuid4().hex[:8]}" for name in ("input", "foreachbatch", "format", "migrated")
    }
    return {
        "bootstrap_servers": secured.kafka.bootstrap_of("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "volume": str(folder),
        **{f"{name}_topic": secured.kafka.create_topic(topic, 2) for name, topic in names.items()},
    }


def written(secured: SecuredKafka, topic: str) -> list[str]:
    return sorted(bytes(message.value() or b"").decode() for message in read_committed(secured.kafka.bootstrap, topic))


def test_the_notebook_copies_every_record_once_and_migrates_a_query(
    spark: SparkSession, secured: SecuredKafka, tmp_path: Path
) -> None:
    values = widgets(secured, tmp_path)
    user, password = secured.allowed
    names: dict[str, Any] = {"spark": spark}
    names["dbutils"] = Dbutils(values, {("kafka", "user"): user, ("kafka", "password"): password}, names)
    *before, migration = cells()
    for cell in before:
        run(cell, names)
    assert names["writer"].last_commit.records == 1000

    with pytest.raises(PySparkException, match="LedgerRefused") as refused:
        run(migration, names)
    values["resolve"] = re.search(r"write:none/[\w.]+", str(refused.value))[0]  # type: ignore[index]
    run(migration, names)
    assert written(secured, values["foreachbatch_topic"]) == written(secured, values["format_topic"]) == SAMPLES
    assert written(secured, values["migrated_topic"]) == sorted(SAMPLES * 2)
    assert password not in str(refused.value)


@pytest.mark.slow
def test_the_notebook_copies_every_record_once_over_spark_connect(secured: SecuredKafka, tmp_path: Path) -> None:
    """As in standard access mode and on serverless compute: no JVM, and the writer runs in another process."""
    values = widgets(secured, tmp_path)
    jars = ",".join(map(str, files(built_in_connector(pyspark.__version__))))
    done = subprocess.run(
        [sys.executable, JOB, json.dumps(values), *secured.allowed, jars],
        env={**os.environ, **python_environment(), "SPARK_TESTING": "1"},  # a free port for the server
        stdout=subprocess.PIPE,
        check=True,
        timeout=280,
    )
    assert b"no report: " in done.stdout
    assert written(secured, values["foreachbatch_topic"]) == written(secured, values["format_topic"]) == SAMPLES
