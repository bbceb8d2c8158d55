"""conf/log-lines.schema.json describes every line of JSON that a query leaves behind, as the code writes it."""

from __future__ import annotations

import json
import logging
from typing import Any

import jsonschema
import pytest

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Trace
from spark_kafka_eos.observe import trace_file
from spark_kafka_eos.observe.lag import OpenTransaction
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.observe.progress import QueryFigures, SourceFigures
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark.commit_log import JsonLines
from tests.pages import ROOT

SCHEMA = json.loads((ROOT / "conf" / "log-lines.schema.json").read_text())
LINES = jsonschema.Draft202012Validator(SCHEMA)
OPTIONS = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "orders", "topic": "out"}
SENT = Request(api="EndTxn", node="b:1", start=1.0, milliseconds=1.0, error="NOT_COORDINATOR", task=1)
TIMELINE = Trace(
    began_ms=1.0, milliseconds=9.0, phases=(Phase(name="begin", start=0.0, milliseconds=1.0),), requests=(SENT, SENT)
)
HELD = OpenTransaction(
    partition=TopicPartition("t", 1),
    start_offset=4,
    producer_id=9,
    epoch=2,
    transactional_id=None,
    state=None,
    open_ms=None,
)
READ = SourceFigures(
    topics=("t",),
    rows=3,
    offsets=4,
    behind=(0, 2),
    lso_lag={HELD.partition: 5},
    held_by=(HELD,),
    bytes_read=1,
    rows_aborted=0,
)


def report(**given: Any) -> CommitReport:
    usual: dict[str, Any] = {"query_id": "q", "batch_id": 7, "outcome": "committed", "producer_id": 1, "epoch": 3}
    more = {"append_mode": "driver", "milliseconds": {"begin": 1.5}, "redone": ("late",), "trace": TIMELINE}
    return CommitReport(**usual | more | {"dead_letters": {"no-amount": 2}} | given)


@pytest.mark.parametrize(
    "given",
    [{}, {"outcome": "skipped"}, {"outcome": "refused", "error": "LedgerRefused", "producer_id": -1}],
    ids=["committed", "skipped", "refused"],
)
def test_the_line_of_a_batch_is_one_of_the_schema_in_the_log_of_either_sink_and_in_the_trace_file(
    tmp_path, caplog, given
):
    caplog.set_level(logging.INFO, "spark_kafka_eos")
    observer(sink_options(OPTIONS | {"logFormat": "json", "traceDir": str(tmp_path)}))(report(**given))
    LINES.validate(json.loads(caplog.messages[0]))
    LINES.validate(json.loads(JsonLines().format(caplog.records[0])))
    (kept,) = trace_file.read(tmp_path, "orders")
    LINES.validate(kept)
    assert set(SCHEMA["$defs"]["batch"]["properties"]) == set(kept) | {"time", "level", "logger"}


def test_any_other_line_of_the_sink_is_one_of_the_schema():
    record = logging.LogRecord(
        "spark_kafka_eos.kafka.protocol.retry", logging.WARNING, "f", 1, "retrying in %d ms", (5,), None
    )
    LINES.validate(json.loads(JsonLines().format(record)))


@pytest.mark.parametrize("source", [READ, SourceFigures(topics=("t",))], ids=["known", "unknown"])
def test_the_listeners_line_is_one_of_the_schema(source):
    line = json.loads(str(QueryFigures(query_id="q", run_id="r", batch_id=3, sources=(source,))))
    LINES.validate(line)
    assert set(SCHEMA["$defs"]["progress"]["properties"]) == set(line)


def test_a_trigger_in_the_trace_folder_is_one_of_the_schema(tmp_path):
    trace_file.append_trigger(tmp_path, "q", 3, "2026-01-01T00:00:00.000Z", {"addBatch": 5})
    (line,) = trace_file.read(tmp_path / "spark", "q")
    LINES.validate(line)


def test_a_line_with_another_name_for_a_field_is_none_of_the_schema():
    line = json.loads(str(QueryFigures(query_id="q", run_id="r", batch_id=3, sources=(READ,))))
    line["batch"] = line.pop("batch_id")
    assert not LINES.is_valid(line)
