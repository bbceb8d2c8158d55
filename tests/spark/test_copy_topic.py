"""The job as it is run: spark-submit with the files of conf/, TLS and SASL, a line per batch, an exact copy.

It keeps no checkpoint: Kafka is it."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.testing.driver import Driver, python_environment
from spark_kafka_eos.tools.verify.verification import verify
from tests.pages import ROOT
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

JOB, CONF = ROOT / "jobs" / "copy_topic.py", ROOT / "conf"


def test_a_topic_is_copied_over_tls_and_sasl_with_headers_and_each_keys_order(secured, tmp_path: Path) -> None:
    kafka, (_, password) = secured.kafka, secured.allowed
    kafka.create_topic("copied-from", partitions=3)
    kafka.create_topic("copied-to", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(500):
        producer.produce("copied-from", key=f"k{number % 50}", value=f"v{number}", headers={"n": str(number)})
    producer.flush()
    properties = tmp_path / "client.properties"
    properties.write_text(secured.properties())

    log = tmp_path / "driver.log"
    arguments = ["--properties", str(properties), "--from", "copied-from", "--to", "copied-to"]
    arguments += ["--available-now", "--max-offsets-per-trigger", "300"]
    events = tmp_path / "events"
    events.mkdir()
    conf = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    conf += ["--properties-file", str(CONF / "spark-defaults.conf")]
    conf += ["--driver-java-options", f"-Dlog4j2.configurationFile={CONF / 'log4j2.properties'}"]
    conf += ["--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}"]
    conf += ["--conf", "spark.eventLog.compress=false", "--conf", "spark.eventLog.rolling.enabled=false"]
    with Driver(JOB, arguments, conf=conf, env=python_environment() | {"TMPDIR": str(tmp_path)}, log=log) as driver:
        driver.wait(timeout=240)

    assert list(tmp_path.glob("kafka-eos-checkpoint-*")) == [], "Kafka was the checkpoint, and nothing is left"
    copied = [
        (message.key(), message.value(), message.headers()) for message in read_committed(kafka.bootstrap, "copied-to")
    ]
    sent = [(f"k{n % 50}".encode(), f"v{n}".encode(), [("n", str(n).encode())]) for n in range(500)]
    assert sorted(copied) == sorted(sent)
    by_key: dict[object, list[int]] = {}
    for key, value, _ in copied:
        by_key.setdefault(key, []).append(int(bytes(value or b"")[1:]))
    assert [key for key, numbers in by_key.items() if numbers != sorted(numbers)] == [], "a key's order was lost"
    shown = [line for line in log.read_text().splitlines() if line.startswith("batch ")]
    assert len(shown) == 2, log.read_text()
    committed = [line for line in log.read_text().splitlines() if " committed: records=" in line]
    assert len(committed) == 2, log.read_text()
    assert all(
        re.search(r"batch \d+ of query \S+ .* producer=\d+/\d+ mode=driver .* end=\d+ms", line) for line in committed
    )
    assert password not in log.read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARN ", log.read_text(), re.MULTILINE), (
        "log4j2.properties"
    )
    assert not re.search(r"^\d\d/\d\d/\d\d ", log.read_text(), re.MULTILINE), "Spark's own log format"
    assert defaults().items() <= settings_of(events).items()
    for copy in (False, True):
        proven = verify(
            kafka.bootstrap,
            "copied-to",
            source="copied-from",
            copy=copy,
            transactional_id="copy-copied-from-copied-to",
        )
        assert proven.holds, proven
        assert {finding.verdict for finding in proven.findings[:2]} == {"holds"}, proven

    for number in range(500, 600):
        producer.produce("copied-from", key=f"k{number % 50}", value=f"v{number}", headers={"n": str(number)})
    producer.flush()
    arguments = [*arguments[:6], "--real-time", "1 minute", "--available-now"]
    with Driver(JOB, arguments, conf=conf, env=python_environment() | {"TMPDIR": str(tmp_path)}, log=log) as driver:
        driver.wait(timeout=240)
    copied = [
        (message.key(), message.value(), message.headers()) for message in read_committed(kafka.bootstrap, "copied-to")
    ]
    sent = [(f"k{n % 50}".encode(), f"v{n}".encode(), [("n", str(n).encode())]) for n in range(600)]
    assert sorted(copied) == sorted(sent), "in real time, it went on where the micro-batches ended"
    assert password not in log.read_text()


def defaults() -> dict[str, str]:
    """The settings in conf/spark-defaults.conf."""
    lines = (CONF / "spark-defaults.conf").read_text().splitlines()
    found = dict(line.split() for line in lines if line and not line.startswith("#"))
    assert len(found) >= 4
    return found


def settings_of(events: Path) -> dict[str, str]:
    """The settings that an application ran with, from its event log."""
    [log] = (path for path in events.iterdir() if path.is_file())
    told = [json.loads(line) for line in log.read_text().splitlines()]
    [update] = [event for event in told if event["Event"] == "SparkListenerEnvironmentUpdate"]
    return {str(name): str(value) for name, value in dict(update["Spark Properties"]).items()}
