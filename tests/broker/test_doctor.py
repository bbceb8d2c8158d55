"""What the doctor reads of real brokers."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.doctor import brokers

pytestmark = pytest.mark.broker


def test_release_apis_and_limits_of_a_cluster_are_read(either_kafka):
    client = source_options({"kafka.bootstrap.servers": either_kafka.bootstrap, "subscribe": "any"}).client
    found = {each.subject: each for each in brokers.findings(client, None)}
    assert found["cluster"].found == "reachable, 1 broker"
    assert "transaction.max.timeout.ms=" in found["limits of a broker"].found
    assert "message.max.bytes=" in found["limits of a broker"].found
    assert {each.severity for each in found.values()} <= {Severity.OK, Severity.WARNING}


def test_with_a_query_its_preflight_is_part_of_the_findings(kafka):
    query = sink_options(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "kafka.transactional.id": "doctor-1",
            "topic": kafka.create_topic("doctor-out", 1),
        }
    )
    subjects = {each.subject for each in brokers.findings(query.client, query)}
    assert {"cluster", "transaction.version", "limits of a broker"} <= subjects
    assert any("doctor-out" in subject for subject in subjects)


def test_an_error_of_the_preflight_makes_the_command_say_not_ready(kafka, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("transaction.timeout.ms=86400000\n")
    given = ["--bootstrap-servers", kafka.bootstrap, "--properties", str(file), "--transactional-id", "doctor-2"]
    done = CliRunner().invoke(app, ["doctor", "--json", *given, "--topic", kafka.create_topic("doctor-late", 1)])
    assert done.exit_code == 1, done.output
    shown = json.loads(done.stdout)
    assert shown["verdict"] == "not ready"
    (limit,) = (each for each in shown["findings"] if each["subject"] == "kafka.transaction.timeout.ms")
    assert limit["severity"] == "error"
