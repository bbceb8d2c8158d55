"""The spans of a batch, as OpenTelemetry's SDK exports them; and nothing without the SDK."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Trace
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.observe.links import Traceparents
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.options import sink_options

OPTIONS = sink_options(
    {
        "kafka.bootstrap.servers": "b:1",
        "kafka.transactional.id": "orders",
        "topic": "out",
        "openTelemetry": "true",
        "openTelemetryLinks": "1",
    }
)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BEGAN_MS = 1_700_000_000_000.0


def request(api, start, error="", **given):
    return Request(api=api, node="broker:9092", start=start, milliseconds=3.0, error=error, **given)


def report(outcome="committed", error="", last_error=""):
    timeline = Trace(
        began_ms=BEGAN_MS,
        milliseconds=50.0,
        phases=(
            Phase(name="begin", start=0.0, milliseconds=20.0),
            Phase(name="job", start=20.0, milliseconds=10.0),
            Phase(name="end", start=30.0, milliseconds=20.0),
        ),
        requests=(
            request("InitProducerId", 1.0, "CONCURRENT_TRANSACTIONS"),
            request("InitProducerId", 9.0),
            request("Produce", 22.0, about="out-0", task=1),
            request("EndTxn", 40.0, last_error, about="commit"),
        ),
        links=(TRACEPARENT, TRACEPARENT.replace("1", "2")),
    )
    return CommitReport(
        query_id="q", batch_id=7, outcome=outcome, producer_id=1, epoch=3, append_mode="executors", records=10,
        error=error, trace=timeline,
    )  # fmt: skip


@pytest.fixture
def export(monkeypatch):
    """`export(report)`: the spans of this batch by name, as exported."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(api, "get_tracer", provider.get_tracer)

    def export(report):
        with provider.get_tracer("application").start_as_current_span("trigger"):
            observer(OPTIONS)(report)
        return {span.name: span for span in exporter.get_finished_spans()}

    return export


def test_a_batch_is_a_span_with_one_for_each_phase_and_in_it_the_rpcs(export):
    spans = export(report())
    parents = {span.context.span_id: name for name, span in spans.items()}
    assert {name: span.parent and parents[span.parent.span_id] for name, span in spans.items()} == {
        "trigger": None,
        "kafka-eos batch": "trigger",
        "kafka-eos begin": "kafka-eos batch",
        "InitProducerId": "kafka-eos begin",
        "kafka-eos job": "kafka-eos batch",
        "Produce": "kafka-eos job",
        "kafka-eos end": "kafka-eos batch",
        "EndTxn": "kafka-eos end",
    }
    batch, init = spans["kafka-eos batch"], spans["InitProducerId"]
    assert batch.attributes["kafka_eos.dead_letters"] == 0
    assert (batch.attributes["kafka_eos.batch_id"], batch.attributes["messaging.batch.message_count"]) == (7, 10)
    assert (init.kind, init.attributes["server.address"], init.attributes["server.port"]) == (
        SpanKind.CLIENT, "broker", 9092,
    )  # fmt: skip
    assert [event.attributes["error.type"] for event in init.events] == ["CONCURRENT_TRANSACTIONS"]
    assert (init.start_time, init.end_time) == (int((BEGAN_MS + 1) * 1e6), int((BEGAN_MS + 12) * 1e6))
    assert batch.status.status_code is not StatusCode.ERROR
    (link,) = batch.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == tuple(TRACEPARENT.split("-")[1:3])


def test_a_task_samples_different_valid_headers_up_to_the_limit():
    others = [f"00-{number:032x}-{number:016x}-01" for number in range(5)]  # the first one, of zeros, is invalid
    values = [TRACEPARENT, TRACEPARENT, "00-xyz-1-01", *others]
    headers: list[object] = [None, [None], [{"key": "other", "value": b"1"}, {"key": "traceparent", "value": None}]]
    headers += [[{"key": "traceparent", "value": value.encode()}] for value in values]
    rows = pa.record_batch([pa.array(headers, HEADERS)], names=["headers"])
    for limit, expected in ((0, ()), (3, (TRACEPARENT, *others[1:3])), (9, (TRACEPARENT, *others[1:]))):
        sample = Traceparents(limit)
        sample.add(rows)
        sample.add(pa.record_batch([pa.array([b"v"])], names=["value"]))
        assert sample.values == expected


def test_what_failed_has_the_status_of_an_error(export):
    spans = export(report("failed", "BrokerUnreachable", last_error="no response"))
    assert {name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR} == {
        "kafka-eos batch", "EndTxn",
    }  # fmt: skip
    assert spans["kafka-eos batch"].attributes["error.type"] == "BrokerUnreachable"


def test_without_a_provider_nothing_happens(caplog):
    observer(OPTIONS)(report("skipped"))
    assert not caplog.records


def test_without_the_package_the_option_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"openTelemetry.*spark-kafka-eos\[otel\]"):
        observer(OPTIONS)
