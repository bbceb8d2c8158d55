"""The timeline of a micro-batch: what its process did when, and every request to a broker. Pure.

Times are milliseconds since the batch began. A `Request` is one attempt; `rpcs` joins the attempts of each RPC.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Self

_TRIGGER = "triggerExecution"
_TASKS_REQUESTS = 500  # of all append tasks, in a trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to the broker at `node` (`host:port`), until its response, or the loss of its connection.

    `api` is Kafka's name (`EndTxn`), or `connect`, for a TCP and TLS connection. `about` names what it is about: group,
    topics, partitions, `commit` or `abort`. `error` is the first error in the response, as Kafka names it, or
    `no response`; "" if there was none. `task` is the append task that sent it (`appendMode=executors`), None for the
    driver.
    """

    api: str
    node: str
    start: float
    milliseconds: float
    about: str = ""
    error: str = ""
    task: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A step of the batch: `begin`, `job` (Spark encodes the rows and, with appendMode=executors, appends them),
    `append`, `offsets`, `end`, `abort`. An attempt that was aborted has its own.
    """

    name: str
    start: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC: its attempts, in order. All but the last one had an error."""

    attempts: tuple[Request, ...]

    @property
    def first(self) -> Request:
        return self.attempts[0]

    @property
    def last(self) -> Request:
        return self.attempts[-1]

    @property
    def milliseconds(self) -> float:
        """From the start of the first attempt to the end of the last one, with the waits between them."""
        return self.last.start + self.last.milliseconds - self.first.start

    @property
    def retries(self) -> Counter[str]:
        """How often the request was sent again, by the error before."""
        return Counter(attempt.error for attempt in self.attempts[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A batch's phases and requests, by start. It began at `began_ms` (since 1970) and took `milliseconds`.

    Only a limited number of requests is kept, the first and the last ones; `left_out` are the others. `links` are
    headers `traceparent` of source records, as W3C Trace Context defines them.
    """

    began_ms: float
    milliseconds: float
    phases: tuple[Phase, ...] = ()
    requests: tuple[Request, ...] = ()
    left_out: int = 0
    links: tuple[str, ...] = ()

    @property
    def retries(self) -> Counter[str]:
        """The number of requests that were sent again, by the error before."""
        return sum((rpc.retries for rpc in self.rpcs()), Counter())

    @property
    def waited(self) -> dict[str, float]:
        """Milliseconds from failed requests to their next attempts, by error; what overlaps counts once."""
        spans: dict[str, list[tuple[float, float]]] = {}
        for rpc in self.rpcs():
            for failed, following in pairwise(rpc.attempts):
                spans.setdefault(failed.error, []).append((failed.start, following.start))
        return {error: _covered(intervals) for error, intervals in spans.items()}

    def rpcs(self) -> list[Rpc]:
        """The requests, joined with their retries, by start."""
        attempts: dict[tuple[int | None, str, str], list[Request]] = {}
        joined: list[list[Request]] = []
        for request in self.requests:
            of = request.task, request.api, request.about
            if (before := attempts.get(of)) is not None and before[-1].error:
                before.append(request)
            else:
                attempts[of] = [request]
                joined.append(attempts[of])
        return [Rpc(tuple(fields)) for fields in joined]

    def with_tasks(self, tasks: Sequence[tuple[int, Trace]]) -> Trace:
        """This trace with the requests of append tasks, each with its slot, placed by their machines' clocks.

        Of many, those that failed are kept, then the slowest.
        """
        theirs = [
            replace(request, start=request.start + trace.began_ms - self.began_ms, task=slot)
            for slot, trace in tasks
            for request in trace.requests
        ]
        kept = sorted(theirs, key=lambda request: (not request.error, -request.milliseconds))[:_TASKS_REQUESTS]
        left_out = len(theirs) - len(kept) + sum(trace.left_out for _, trace in tasks)
        links = dict.fromkeys([*self.links, *(link for _, trace in tasks for link in trace.links)])
        return replace(
            self,
            requests=by_start([*self.requests, *kept]),
            left_out=self.left_out + left_out,
            links=tuple(links),
        )

    def to_json(self) -> dict[str, Any]:
        """This trace as a JSON object; see `from_json`. Times are rounded to microseconds."""
        return {name: _rounded(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The trace of `to_json`. Raises KeyError or TypeError for anything else."""
        return cls(
            began_ms=value["began_ms"],
            milliseconds=value["milliseconds"],
            phases=tuple(Phase(**phase) for phase in value["phases"]),
            requests=tuple(Request(**request) for request in value["requests"]),
            left_out=value["left_out"],
            links=tuple(value["links"]),
        )


NO_TRACE = Trace(began_ms=0.0, milliseconds=0.0)


# In the order of a trigger (Spark's MicroBatchExecution). Spark reports how long each took, not when it began.
_OF_A_TRIGGER = (
    "latestOffset", "getOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitBatch", "commitOffsets",
)  # fmt: skip


def trigger_phases(began_ms: float, durations: Mapping[str, float], trace: Trace) -> tuple[Phase, ...]:
    """The phases of a trigger beside a batch's trace: one after the other from the trigger's begin (since 1970) on.

    `durations` are those of the progress's `durationMs`. The trigger itself, `triggerExecution`, comes first.
    """
    start = began_ms - trace.began_ms
    phases = [Phase(name=name, start=start, milliseconds=durations[name]) for name in durations if name == _TRIGGER]
    for name in _OF_A_TRIGGER:
        if name in durations:
            phases.append(Phase(name=name, start=start, milliseconds=durations[name]))
            start += durations[name]
    return tuple(phases)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of these spans."""
    covered, until = 0.0, -math.inf
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def by_start(requests: Iterable[Request]) -> tuple[Request, ...]:
    """The requests in the order of their starts."""
    return tuple(sorted(requests, key=lambda request: request.start))


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {name: _rounded(item) for name, item in value.items()}
        case list() | tuple():
            return [_rounded(item) for item in value]
    return value
