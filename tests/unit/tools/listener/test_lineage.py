"""Run events for OpenLineage, checked with its own schema.

`openlineage-2-0-2.json` is the OpenLineage specification's schema of that version, unchanged, from its repository
OpenLineage/OpenLineage (spec/OpenLineage.json), which is licensed under the Apache License 2.0.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.serde import Serde

from spark_kafka_eos import ConfigurationError, LineageListener

SCHEMA = json.loads(Path(__file__).with_name("openlineage-2-0-2.json").read_text())
SOURCE = {"kafka.bootstrap.servers": "here:9092,here2:9092", "subscribe": "orders,payments"}
SINK = {"kafka.bootstrap.servers": "there:9093", "kafka.transactional.id": "copy", "topic": "joined"}
ID, RUN = uuid.uuid4(), uuid.uuid4()


class Client:
    """Keeps the events as they would be sent, each valid according to the schema."""

    def __init__(self):
        self.sent = []

    def emit(self, event):
        told = json.loads(Serde.to_json(event))
        jsonschema.validate(told, SCHEMA, format_checker=jsonschema.FormatChecker())
        self.sent.append(told)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def listener(client):
    return LineageListener(SOURCE, SINK, query="joining", client=client)


def started(name="joining"):
    return SimpleNamespace(id=ID, runId=RUN, name=name)


def progress(*topics):
    told = {"sources": [{"endOffset": {topic: {"0": 5} for topic in topics}}]}
    return SimpleNamespace(progress=SimpleNamespace(runId=RUN, json=json.dumps(told)))


def terminated(exception=None):
    return SimpleNamespace(id=ID, runId=RUN, exception=exception)


def names(datasets):
    return [(each["namespace"], each["name"]) for each in datasets]


def test_a_run_starts_and_completes_with_its_topics(listener, client):
    listener.onQueryStarted(started())
    listener.onQueryProgress(progress("orders", "payments"))
    listener.onQueryTerminated(terminated())
    assert [event["eventType"] for event in client.sent] == ["START", "COMPLETE"]
    for event in client.sent:
        assert event["run"]["runId"] == str(RUN)
        assert (event["job"]["namespace"], event["job"]["name"]) == ("spark", "joining")
        assert names(event["inputs"]) == [("kafka://here:9092", "orders"), ("kafka://here:9092", "payments")]
        assert names(event["outputs"]) == [("kafka://there:9093", "joined")]


def test_a_run_is_reported_again_only_when_its_input_topics_change(client):
    source = {"kafka.bootstrap.servers": "here:9092", "subscribePattern": "o.*"}
    listener = LineageListener(source, SINK, client=client)
    listener.onQueryStarted(started(None))
    for topics in (["orders"], ["orders"], ["offers", "orders"]):
        listener.onQueryProgress(progress(*topics))
    told = [(event["eventType"], [name for _, name in names(event["inputs"])]) for event in client.sent]
    assert told == [("START", []), ("RUNNING", ["orders"]), ("RUNNING", ["offers", "orders"])]
    assert client.sent[0]["job"]["name"] == str(ID)


def test_a_run_that_fails_has_the_error_and_not_all_of_its_stack_trace(listener, client):
    listener.onQueryStarted(started())
    listener.onQueryTerminated(terminated("LedgerRefused: " + "x" * 100_000))
    failed = client.sent[-1]
    assert failed["eventType"] == "FAIL"
    assert failed["run"]["facets"]["errorMessage"]["message"].startswith("LedgerRefused: xxx")
    assert len(json.dumps(failed)) < 5_000


def test_other_queries_of_the_session_are_not_reported(listener, client):
    listener.onQueryStarted(started("other"))
    listener.onQueryProgress(progress("orders"))
    listener.onQueryTerminated(terminated())
    assert not client.sent


def test_a_backend_that_is_away_is_logged_and_does_no_harm(caplog):
    away = OpenLineageClient(config={"transport": {"type": "http", "url": "http://127.0.0.1:1", "retry": {"total": 0}}})
    LineageListener(SOURCE, SINK, client=away).onQueryStarted(started())
    assert "cannot report run" in caplog.text


def test_without_the_client_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(ConfigurationError, match=r"spark-kafka-eos\[lineage\]"):
        LineageListener(SOURCE, SINK)
