"""A batch's report as spans, in OpenTelemetry's sense: the batch, its phases, and in each the RPCs that began in it.
Pure.

Names follow OpenTelemetry's semantic conventions where there is one (messaging, server, error). Times are nanoseconds
since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Rpc, Trace

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened in a span, at a time."""

    name: str
    at: int
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span; `request` is one to another process. `error` is the type of the error that ended it, or ""."""

    name: str
    start: int
    end: int
    attributes: Attributes = field(default_factory=dict)
    request: bool = False
    error: str = ""
    events: tuple[SpanEvent, ...] = ()
    children: tuple[Span, ...] = ()


def batch_span(report: CommitReport, transactional_id: str) -> Span:
    """The span of a batch, with those of its phases and RPCs."""
    trace = report.trace
    rpcs = trace.rpcs()
    inside = [[rpc for rpc in rpcs if _begins_in(phase, rpc.first)] for phase in trace.phases]
    phases = [_phase_span(trace, phase, within) for phase, within in zip(trace.phases, inside, strict=True)]
    taken = {id(rpc) for within in inside for rpc in within}
    others = [_rpc_span(trace, rpc) for rpc in rpcs if id(rpc) not in taken]
    return Span(
        name="kafka-eos batch",
        start=_ns(trace, 0.0),
        end=_ns(trace, trace.milliseconds),
        attributes={
            "messaging.system": "kafka",
            "messaging.batch.message_count": report.records,
            "kafka_eos.transactional_id": transactional_id,
            "kafka_eos.query_id": report.query_id,
            "kafka_eos.batch_id": report.batch_id,
            "kafka_eos.outcome": report.outcome,
            "kafka_eos.producer_id": report.producer_id,
            "kafka_eos.epoch": report.epoch,
            "kafka_eos.append_mode": report.append_mode,
            "kafka_eos.bytes": report.bytes,
            "kafka_eos.dead_letters": sum(report.dead_letters.values()),
            "kafka_eos.redone": len(report.redone),
            "kafka_eos.requests_left_out": trace.left_out,
        },
        error=report.error,
        children=(*phases, *others),
    )


def _begins_in(phase: Phase, request: Request) -> bool:
    return phase.start <= request.start < phase.start + phase.milliseconds


def _phase_span(trace: Trace, phase: Phase, rpcs: Sequence[Rpc]) -> Span:
    return Span(
        name=f"kafka-eos {phase.name}",
        start=_ns(trace, phase.start),
        end=_ns(trace, phase.start + phase.milliseconds),
        children=tuple(_rpc_span(trace, rpc) for rpc in rpcs),
    )


def _rpc_span(trace: Trace, rpc: Rpc) -> Span:
    first, last = rpc.first, rpc.last
    host, _, port = last.node.rpartition(":")
    server: dict[str, str | int] = {"server.address": host, "server.port": int(port)}
    attributes = server | {"kafka_eos.about": first.about}
    if first.task is not None:
        attributes["kafka_eos.append_task"] = first.task
    return Span(
        name=first.api,
        start=_ns(trace, first.start),
        end=_ns(trace, last.start + last.milliseconds),
        attributes=attributes | {"kafka_eos.retries": rpc.retries.total()},
        request=True,
        error=last.error,
        events=tuple(
            SpanEvent(
                name="retried",
                at=_ns(trace, attempt.start + attempt.milliseconds),
                attributes={"error.type": attempt.error, "server.address": attempt.node},
            )
            for attempt in rpc.attempts[:-1]
        ),
    )


def _ns(trace: Trace, milliseconds: float) -> int:
    return int((trace.began_ms + milliseconds) * 1e6)
