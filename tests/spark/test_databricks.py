"""The Databricks notebook runs from its first cell to its last, against a broker with logins and ACLs.

Not Databricks: `dbutils` (`Dbutils` below), the Unity Catalog volume (a folder), and the notebook server, which runs
the cells (`run`). `%pip` is not run, because the package is installed. Spark is the release that is installed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.conftest import SecuredKafka
from tests.pages import ROOT
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

NOTEBOOK = ROOT / "notebooks" / "databricks.py"
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


def test_the_notebook_copies_every_record_once_and_migrates_a_query(
    spark: SparkSession, secured: SecuredKafka, tmp_path: Path
) -> None:
    broker = secured.kafka
    topics = {f"{name}_topic": broker.create_topic(f"databricks-{name}", 2) for name in ("foreachbatch", "format")}
    topics |= {
        "input_topic": broker.create_topic("databricks-in", 3),
        "migrated_topic": broker.create_topic("dbx-old", 2),
    }
    user, password = secured.allowed
    namespace: dict[str, object] = {"spark": spark}
    dbutils = Dbutils(
        {
            "bootstrap_servers": broker.bootstrap_of("SASL_PLAINTEXT"),
            "security_protocol": "SASL_PLAINTEXT",
            "volume": str(tmp_path),
            **topics,
        },
        {("kafka", "user"): user, ("kafka", "password"): password},
        namespace,
    )
    namespace["dbutils"] = dbutils

    *before, migration = cells()
    for cell in before:
        run(cell, namespace)
    assert set(namespace["counts"].values()) == {1000}  # type: ignore[attr-defined]
    assert namespace["writer"].last_commit.records == 1000  # type: ignore[attr-defined]

    with pytest.raises(PySparkException, match="LedgerRefused") as refused:
        run(migration, namespace)
    dbutils.values["resolve"] = re.search(r"write:none/[\w.]+", str(refused.value))[0]  # type: ignore[index]
    run(migration, namespace)
    for topic, copies in ((topics["format_topic"], 1), (topics["migrated_topic"], 2)):
        values = sorted(bytes(message.value() or b"").decode() for message in read_committed(broker.bootstrap, topic))
        assert values == sorted([f"order {number}" for number in range(1000)] * copies)
    assert password not in str(refused.value)
