"""The option `openTelemetry`: a span per micro-batch, through the tracer provider that the application has set.

Only OpenTelemetry's API is used. Without a provider, it does nothing; the application sets one with the SDK, its
exporters and its sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.observe.spans import Span, batch_span

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_NAME = "spark_kafka_eos"


class Telemetry:
    """An observer that exports each batch. Raises ConfigurationError if OpenTelemetry is not installed."""

    def __init__(self, transactional_id: str, links: int = 0) -> None:
        try:
            from opentelemetry import trace
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "openTelemetry",
                "requires OpenTelemetry, which is not installed on the driver",
                action='Run: pip install "spark-kafka-eos[otel]"',
            ) from error
        self._tracer = trace.get_tracer(_NAME)
        self._transactional_id, self._links = transactional_id, links

    def __call__(self, report: CommitReport) -> None:
        _emit(self._tracer, batch_span(report, self._transactional_id), report.trace.links[: self._links])


def _emit(tracer: Tracer, span: Span, traceparents: Sequence[str] = ()) -> None:
    """Export a span and its children, as a child of the current span."""
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, use_span

    kind = SpanKind.CLIENT if span.request else SpanKind.INTERNAL
    links = []
    for traceparent in traceparents:
        _, trace_id, span_id, flags = (int(part, 16) for part in traceparent.split("-"))
        links.append(Link(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))))
    exported = tracer.start_span(
        span.name, kind=kind, attributes=dict(span.attributes), links=links, start_time=span.start
    )
    for event in span.events:
        exported.add_event(event.name, dict(event.attributes), event.at)
    if span.error:
        exported.set_attribute("error.type", span.error)
        exported.set_status(Status(StatusCode.ERROR, span.error))
    with use_span(exported):
        for child in span.children:
            _emit(tracer, child)
    exported.end(span.end)
