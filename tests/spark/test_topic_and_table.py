"""The job as it is run: topic and table have every record once, also after a second run, and the commands find its
table by its name."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.testing.driver import Driver, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.verify import ComparedColumns, verify
from tests.pages import ROOT
from tests.producing import produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

JOB = ROOT / "jobs" / "topic_and_table.py"


def test_topic_and_table_have_every_record_once(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = kafka.create_topic("both-job-in", 2), kafka.create_topic("both-job-out", 3)
    produce(kafka.bootstrap, source, [b"value %d" % number for number in range(300)], partition=1)
    database = str(tmp_path / "shop.db")
    arguments = ["--bootstrap-servers", kafka.bootstrap, "--from", source, "--to", target, "--available-now"]
    arguments += ["--database", database, "--table", "bookings", "--max-offsets-per-trigger", "200"]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    conf = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    with Driver(JOB, arguments, conf=conf, env=python_environment(), log=tmp_path / "driver.log") as driver:
        driver.wait(meanwhile=lambda: None, timeout=240)

    with closing(sqlite3.connect(database)) as connection:
        report = verify(
            kafka.bootstrap,
            target,
            table=lambda: connection.execute("SELECT record_key, record_value FROM bookings"),
            columns=ComparedColumns(names=("key", "value")),
        )
    assert report.holds, report
    assert (report.records, report.findings[-1].checked) == (300, 300)

    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("TOPIC_AND_TABLE", f"{database}#bookings")
    words = ["query", "show", f"both-{source}-{target}", "--table", "jobs.topic_and_table:from_environment", "--json"]
    shown = CliRunner().invoke(app, [*words, "--bootstrap-servers", kafka.bootstrap])
    table = json.loads(shown.stdout)["table"]
    assert (table["version"], table["token"]["batch_id"], table["transaction"]) == (3, 1, "over")
