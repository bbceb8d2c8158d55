"""Records what a process does for one micro-batch: its phases and its requests to brokers (`protocol.trace`).

    with recording() as recorder:
        with phase("begin"):
            ...             # `protocol.connection` records each request
    recorder.trace()

A recorder belongs to the thread (the context) that opened it. Where none is open, nothing is recorded. It costs a few
microseconds per request, and its memory is bounded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from spark_kafka_eos.kafka.protocol.backoff import Clock
from spark_kafka_eos.kafka.protocol.error_codes import name_of
from spark_kafka_eos.kafka.protocol.responses import error_of
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Trace, by_start

NO_RESPONSE = "no response"
_KEPT = 500  # the first requests of a batch, and as many of the last ones
_PHASES = 200


class Recorder:
    """The phases and requests since it was created; `kept` limits the first requests, and the last ones."""

    def __init__(self, *, kept: int = _KEPT, clock: Clock = time.perf_counter) -> None:
        self._clock, self._kept = clock, kept
        self._began, self._began_ms = clock(), time.time() * 1e3
        self._phases: list[Phase] = []
        self._first: list[Request] = []
        self._last: deque[Request] = deque(maxlen=kept)
        self._count = 0
        self._tasks: list[tuple[int, Trace]] = []
        self._links: dict[str, None] = {}

    def now(self) -> float:
        """Milliseconds since the batch began."""
        return (self._clock() - self._began) * 1e3

    def add(self, request: Request) -> None:
        """Record a request that has ended."""
        (self._first if len(self._first) < self._kept else self._last).append(request)
        self._count += 1

    def add_phase(self, name: str, start: float) -> None:
        """Record a phase that ends now."""
        if len(self._phases) < _PHASES:
            self._phases.append(Phase(name=name, start=start, milliseconds=self.now() - start))

    def add_tasks(self, tasks: Iterable[tuple[int, Trace]]) -> None:
        """Add what append tasks have recorded, each with its slot."""
        self._tasks += tasks

    def add_links(self, links: Iterable[str]) -> None:
        """Add headers that name traces of other programs, each once."""
        self._links |= dict.fromkeys(links)

    def spent(self, *names: str) -> dict[str, float]:
        """The milliseconds of the last phase of each of these names, if there was one."""
        spent = {phase.name: phase.milliseconds for phase in self._phases}
        return {name: spent[name] for name in names if name in spent}

    def trace(self) -> Trace:
        """What was recorded so far."""
        driver = Trace(
            began_ms=self._began_ms,
            milliseconds=self.now(),
            phases=tuple(self._phases),
            requests=by_start([*self._first, *self._last]),
            left_out=self._count - len(self._first) - len(self._last),
            links=tuple(self._links),
        )
        return driver.with_tasks(self._tasks) if self._tasks else driver


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording(*, kept: int = _KEPT, clock: Clock = time.perf_counter) -> Iterator[Recorder]:
    """Record this context's phases and requests."""
    recorder = Recorder(kept=kept, clock=clock)
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Record a phase, also one that fails."""
    recorder = _recorder.get()
    start = recorder.now() if recorder else 0.0
    try:
        yield
    finally:
        if recorder is not None:
            recorder.add_phase(name, start)


def add_tasks(tasks: Iterable[tuple[int, Trace]]) -> None:
    """Add what append tasks have recorded, each with its slot."""
    if recorder := _recorder.get():
        recorder.add_tasks(tasks)


def add_links(links: Iterable[str]) -> None:
    """Add headers that name traces of other programs."""
    if recorder := _recorder.get():
        recorder.add_links(links)


class Sent:
    """A request that is being sent; `answered` or `unanswered` ends it. Without a recorder, nothing is recorded."""

    __slots__ = ("_about", "_api", "_node", "_recorder", "_start")

    def __init__(self, recorder: Recorder | None, api: str, node: str, about: str = "") -> None:
        self._recorder, self._api, self._node, self._about = recorder, api, node, about
        self._start = recorder.now() if recorder else 0.0

    def answered(self, response: Any = None) -> None:
        if self._recorder is not None:
            code = error_of(response)
            self._end(self._recorder, name_of(code) if code else "")

    def unanswered(self) -> None:
        if self._recorder is not None:
            self._end(self._recorder, NO_RESPONSE)

    def _end(self, recorder: Recorder, error: str) -> None:
        recorder.add(
            Request(
                api=self._api,
                node=self._node,
                start=self._start,
                milliseconds=recorder.now() - self._start,
                about=self._about,
                error=error,
            )
        )


def sending(request: Any, node: str) -> Sent:
    """The recording of `request` (a class of kafka-python) to `node`, from now on."""
    recorder = _recorder.get()
    if recorder is None:
        return _UNRECORDED
    api = request.name.removesuffix("Request")
    about = _ABOUT.get(api)
    return Sent(recorder, api, node, about(request) if about else "")


@contextmanager
def connecting(node: str) -> Iterator[None]:
    """Record a connection to `node` that is being opened."""
    sent = Sent(_recorder.get(), "connect", node)
    try:
        yield
    except BaseException:
        sent.unanswered()
        raise
    sent.answered()


_UNRECORDED = Sent(None, "", "")


def _some(names: Sequence[str]) -> str:
    """The first name, and how many others there are."""
    return "" if not names else names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def _partitions(topics: Any, name: str, partitions: str, index: str | None) -> str:
    """The same of partitions, of which a request may have thousands."""
    listed = [topic for topic in topics or () if getattr(topic, partitions)]
    if not listed:
        return ""
    first = getattr(listed[0], partitions)[0]
    others = sum(len(getattr(topic, partitions)) for topic in listed) - 1
    label = f"{getattr(listed[0], name)}-{first if index is None else getattr(first, index)}"
    return f"{label} +{others}" if others else label


# What a request is about, by its API.
_ABOUT: dict[str, Callable[[Any], str]] = {
    "AddOffsetsToTxn": lambda request: request.group_id,
    "AddPartitionsToTxn": lambda request: _partitions(request.v3_and_below_topics, "name", "partitions", None),
    "EndTxn": lambda request: "commit" if request.committed else "abort",
    "FindCoordinator": lambda request: request.key,
    "ListOffsets": lambda request: _partitions(request.topics, "name", "partitions", "partition_index"),
    "Metadata": lambda request: _some([topic.name for topic in request.topics or ()]),
    "OffsetCommit": lambda request: request.group_id,
    "OffsetFetch": lambda request: request.group_id,
    "OffsetForLeaderEpoch": lambda request: _partitions(request.topics, "topic", "partitions", "partition"),
    "Produce": lambda request: _partitions(request.topic_data, "name", "partition_data", "index"),
    "TxnOffsetCommit": lambda request: request.group_id,
}
