"""The timeline of a micro-batch: what its process did when, and every request to a broker.

Times are milliseconds since the batch began. A `Request` is one attempt; `rpcs` joins the attempts of each RPC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """One RPC, from its first attempt's start to its last one's end.

    `retries` is the number of further attempts, `errors` has the error of each attempt that had one. `failed`: so had
    the last one.
    """

    api: str
    about: str
    node: str
    start: float
    milliseconds: float
    retries: int
    errors: tuple[str, ...]
    failed: bool
    task: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A batch's phases and requests, by start. It began at `began_ms` (since 1970) and took `milliseconds`.

    Only a limited number of requests is kept, the first and the last ones; `left_out` are the others.
    """

    began_ms: float
    milliseconds: float
    phases: tuple[Phase, ...] = ()
    requests: tuple[Request, ...] = ()
    left_out: int = 0

    @property
    def retries(self) -> Counter[str]:
        """The number of requests that were sent again, by the error before."""
        return Counter(error for rpc in self.rpcs() for error in rpc.errors[: rpc.retries])

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
        return [_joined(each) for each in joined]

    def with_tasks(self, tasks: Sequence[tuple[int, Trace]]) -> Trace:
        """This trace with the requests of append tasks, each with its slot, placed by their machines' clocks.

        Of many, those that failed are kept, then the slowest.
        """
        theirs = [
            _moved(request, trace.began_ms - self.began_ms, slot) for slot, trace in tasks for request in trace.requests
        ]
        kept = sorted(theirs, key=lambda request: (not request.error, -request.milliseconds))[:_TASKS_REQUESTS]
        left_out = len(theirs) - len(kept) + sum(trace.left_out for _, trace in tasks)
        return replace(self, requests=by_start([*self.requests, *kept]), left_out=self.left_out + left_out)

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
        )


NO_TRACE = Trace(began_ms=0.0, milliseconds=0.0)


def by_start(requests: Iterable[Request]) -> tuple[Request, ...]:
    """The requests in the order of their starts."""
    return tuple(sorted(requests, key=lambda request: request.start))


def _joined(attempts: list[Request]) -> Rpc:
    first, last = attempts[0], attempts[-1]
    return Rpc(
        api=first.api,
        about=first.about,
        node=last.node,
        start=first.start,
        milliseconds=last.start + last.milliseconds - first.start,
        retries=len(attempts) - 1,
        errors=tuple(attempt.error for attempt in attempts if attempt.error),
        failed=bool(last.error),
        task=first.task,
    )


def _moved(request: Request, by: float, slot: int) -> Request:
    return replace(request, start=request.start + by, task=slot)


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
    return value
