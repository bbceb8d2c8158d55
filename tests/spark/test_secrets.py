"""What a driver shows of itself, from plans to the event log, shows no secret of its options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from spark_kafka_eos.preflight.rights import Right
from tests.conftest import SecuredKafka
from tests.principals import add_user
from tests.producing import produce

pytestmark = pytest.mark.spark

JOB = Path(__file__).parent / "jobs" / "show_everything.py"
PASSWORD, KEY_PASSWORD = "hunter2", "hunter3"
ENV_KEY, FILE_KEY = "hunter4 of sixteen letters", "hunter5 of sixteen letters"
CONF = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",  # it shows what the event log holds
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def encrypted(pem: bytes) -> str:
    key = serialization.load_pem_private_key(pem, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(KEY_PASSWORD.encode()),
    ).decode()


def test_no_secret_is_in_plans_logs_progress_checkpoints_and_the_event_log(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    kafka, keystore = secured.kafka, secured.certificates.client_keystore.read_text()
    for topic in ("shown-in", "shown-out"):
        kafka.create_topic(topic, 2)
    produce(kafka.bootstrap, "shown-in", [b"1", b"2", b"3"], timestamp=int(time.time() * 1000))
    everything = [Right("All", "topic", "*"), Right("All", "group", "*"), Right("All", "transactional id", "*")]
    add_user(kafka.bootstrap, "shown", PASSWORD, everything)
    connection = {
        "kafka.bootstrap.servers": kafka.bootstrap_of("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="shown" password="{PASSWORD}";',
        "kafka.ssl.truststore.certificates": secured.certificates.ca.read_text(),
        "kafka.ssl.keystore.certificate.chain": keystore[keystore.index("-----BEGIN CERTIFICATE") :],
        "kafka.ssl.keystore.key": encrypted(keystore.encode()),
        "kafka.ssl.key.password": KEY_PASSWORD,
    }
    (tmp_path.parent / "ledger-key").write_text(FILE_KEY)
    signing = {"ledgerKey": f"env:LEDGER_KEY,file:{tmp_path.parent / 'ledger-key'}"}
    events, work = tmp_path / "events", tmp_path / "work"
    events.mkdir()
    conf = CONF | {"spark.eventLog.dir": events.as_uri()}
    submitted = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, JOB, work],
        check=False,
        input=json.dumps(
            {
                "source": "shown-in",
                "target": "shown-out",
                "connection": connection,
                "signing": signing,
                "collector": str(tmp_path.parent / "collector"),
            }
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        env={
            **os.environ,
            "LEDGER_KEY": ENV_KEY,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join([*submitted, "pyspark-shell"]),
        },
    )
    shown = {path: path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    shown[Path("output")] = done.stdout
    assert done.returncode == 0, done.stdout[-5_000:]

    # It did show what it could …
    assert "kafka.sasl.jaas.config=*********(redacted)" in done.stdout
    assert "ledger_key=(***, ***)" in done.stdout
    assert 'kafka_eos_batches_total{outcome="committed",query=' in done.stdout
    assert any("spark.kafka-eos.progress.token" in text for path, text in shown.items() if events in path.parents)
    assert "DEBUG:spark_kafka_eos" in done.stdout or "INFO:spark_kafka_eos" in done.stdout
    assert any("SparkListenerSQLExecutionStart" in text for path, text in shown.items() if events in path.parents)
    assert {"offsets", "commits", "metadata"} <= {path.parent.name for path in shown} | {path.name for path in shown}
    # … and nothing that it must not.
    key_text = "".join(keystore.split("-----")[2].split())
    collector_key = (tmp_path.parent / "collector").read_text().rpartition(":")[2]
    for secret in (collector_key, PASSWORD, KEY_PASSWORD, ENV_KEY, FILE_KEY, key_text[:40], key_text[-40:]):
        assert [str(path) for path, text in shown.items() if secret in text] == []
