"""Connections between a process and the model's brokers, and random faults of the requests on them.

A connection keeps the order, as TCP does. So a request arrives twice only as on a real network: its sender gave up the
connection and sent it again, and the original arrives after that, possibly after the sender died.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from lab.simulation.kafka import ModelKafka
from lab.simulation.owners import Owners, is_bucket
from lab.simulation.record import Sent
from lab.simulation.refusals import refusal
from lab.simulation.shown import codes_in, shown, shown_answer
from lab.simulation.world import Process
from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.kafka.protocol.versions import RANGES, choose
from spark_kafka_eos.options import ClientOptions

_DELAYS_S = (0.002, 0.03, 0.5, 8.0, 45.0, 90.0, 300.0)
_RESET_S = 0.002
_LOADS_S = (0.05, 1.0, 8.0)
_FRAME = struct.Struct(">ib")  # correlation id, no tagged fields
_TIMEOUT_S = 30.0  # request.timeout.ms

# Retriable errors; the broker has not applied the request.
_PASSING = {
    "Produce": (6, 14, 19),
    "InitProducerId": (14, 15, 16, 51),
    "AddPartitionsToTxn": (14, 15, 16, 51),
    "AddOffsetsToTxn": (14, 15, 16, 51),
    "EndTxn": (14, 15, 16, 51),
    "TxnOffsetCommit": (14, 15, 16, 7),
    "OffsetFetch": (14, 16, 88),
    "Fetch": (6, 56, 78),
    "ListOffsets": (5, 6, 78),
    "DescribeTransactions": (14, 15, 16),
    "CreateTopics": (7,),
}
# Errors of a broker that has applied the request, but could not confirm it in time.
_DONE_ALL_THE_SAME = {"Produce": (7, 20), "CreateTopics": (7,)}

# How interesting a fault is at a request, as a factor of its probability.
OFTEN: Mapping[str, float] = {"EndTxn": 3.0, "OffsetFetch": 3.0, "FindCoordinator": 0.2, "Metadata": 0.2}
# The same where drivers come back late.
OFTEN_IF_LATE: Mapping[str, float] = {**OFTEN, "InitProducerId": 12.0}
# How often each kind of fault happens, relative to the others.
KINDS: Mapping[str, int] = {
    "request lost": 6,
    "answer lost": 8,
    "request delayed": 8,
    "passing error": 6,
    "killed": 6,
    "pause": 6,
    "outage": 1,
    "move": 2,
}


@cache
def _version(api: str, newest: int | None, exactly: int | None) -> int:
    return choose(api, RANGES[api], newest=newest) if exactly is None else exactly


class Network:
    """The network of one world, which leads to `kafka`; `kinds` are its faults, with their weights, and `often` is how
    often a request meets one, by API.
    """

    def __init__(
        self, kafka: ModelKafka, kinds: Mapping[str, int] = KINDS, *, often: Mapping[str, float] = OFTEN
    ) -> None:
        self.kafka, self.kinds, self.often = kafka, kinds, often
        self._cut_off: dict[Process, float] = {}  # the end of the outage
        self.misled: set[Process] = set()  # processes that received outdated offsets
        self.owners = Owners(kafka.transactions.states)
        self.polls: dict[Process, list[float]] = {}  # when the answers to the Fetch requests in flight arrive

    def cut_off(self, process: Process, seconds: float) -> None:
        """Let nothing from this process, or from those inside it, reach a broker for this time."""
        self._cut_off[process] = process.world.now + seconds

    def reaches(self, process: Process) -> bool:
        return not self._cut_off or self._cut_off.get(process.life, 0.0) <= process.world.now

    def connector(self, process: Process) -> Any:
        """The argument `connect` for `Cluster`."""

        def connect(host: str, _port: int, _options: ClientOptions) -> ModelConnection:
            node = int(host.removeprefix("node-"))
            return ModelConnection(self, process, node)

        return connect


class _Awaited(NamedTuple):
    answer: Any  # None: it never arrives
    due_s: float  # when it arrives: a leader waits for records before it answers without any
    sent: Sent | None  # as it is recorded


class ModelConnection:
    """Replaces `kafka.protocol.connection.Connection`."""

    def __init__(self, network: Network, process: Process, node: int) -> None:
        self._network, self._process, self._node = network, process, node
        self.address = f"node-{node}:9092"
        self.finalized_features = {"transaction.version": network.kafka.version}
        self.open = True
        self._pending: dict[int, _Awaited] = {}
        self._polls: list[float] = []
        self._number = 0
        self.arrival = (0, 0.0)
        self._cut = False  # whether everything that is sent from now on is lost
        self._late = 0.0  # the delay of everything that is sent from now on
        self._recorded: Sent | None = None  # the request that is being sent
        world = process.world
        world.step(process, "connect")
        refused = world.strikes("connect") and world.chance.happens("connection refused", 0.1)
        if refused:
            world.fault("connection refused", self.address)
        if refused or not network.reaches(process):
            world.wait(process.whole, _RESET_S)
            raise BrokerUnreachable(f"no connection to {self.address}: refused")

    @property
    def usable(self) -> bool:
        return self.open

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def readable(self) -> bool:
        return self._process.world.chance.happens("readable", 0.5)

    def arrived(self, correlation_id: int) -> bool:
        """Whether it is the next one: the fate of every request is decided, and time passes in `receive`."""
        awaited = self._pending.get(correlation_id)
        if awaited is None or awaited.due_s <= self._process.world.now:
            return True
        return awaited.due_s <= min(self._network.polls[self._process])

    def call(self, request: Any, *, newest: int | None = None, exactly: int | None = None) -> Any:
        return self.receive(self.send(request, newest=newest, exactly=exactly))

    def send(
        self,
        request: Any,
        *,
        newest: int | None = None,
        exactly: int | None = None,
        decode: Callable[[memoryview], Any] | None = None,
    ) -> int:
        """Send the request. Its fate is decided now, but takes effect in `receive`."""
        if not self.open:
            raise BrokerUnreachable(f"{self.address}: the connection is closed")
        api = request.name.removesuffix("Request")
        version = _version(api, newest, exactly)
        world = self._process.world
        world.step(self._process, api)
        self._number += 1
        if world.recorder is not None:
            driver, straggles = self._process.driver
            self._recorded = world.recorder.sends(driver, api, request, straggles=straggles)
        if self._cut or not self._network.reaches(self._process):
            answer = None
        elif self._late:
            self._arrive_later(api, version, request)
            answer = None
        elif world.strikes(api, self._network.often.get(api, 1.0)):
            answer = self._struck(api, version, request)
        else:
            answer = self._arrive(api, version, request)
        if answer is None and not _of_bucket(api, request):
            self._network.owners.unanswered(self._process.life, api)
        world.heard(self._process, answer)
        due = world.now
        if api == "Fetch":
            if answer is not None and not any(map(_has_records, answer.responses)):
                due += request.max_wait_ms / 1e3
            self._network.polls.setdefault(self._process, []).append(due)
            self._polls.append(due)
        if decode is not None and answer is not None:
            frame = memoryview(_FRAME.pack(self._number, 0) + answer.encode(version=version))
            answer, self.arrival = decode(frame), (len(frame), 0.0)
        self._pending[self._number] = _Awaited(answer, due, self._recorded)
        return self._number

    def receive(self, correlation_id: int) -> Any:
        """The answer. If there is none, wait for the timeout and raise BrokerUnreachable."""
        if correlation_id not in self._pending:
            raise BrokerUnreachable(f"{self.address}: connection lost with request {correlation_id} unanswered")
        answer, due, sent = self._pending.pop(correlation_id)
        world = self._process.world
        if due in self._polls:
            self._polls.remove(due)
            self._network.polls[self._process].remove(due)
        if due > world.now:
            world.wait(self._process.whole, due - world.now)
            self._process.check()
        if answer is not None:
            if sent is not None:
                sent.answered(answer)
            return answer
        self.close()
        world.wait(self._process.whole, _RESET_S if world.chance.happens("reset", 0.8) else _TIMEOUT_S)
        self._process.check()
        raise BrokerUnreachable(f"{self.address}: no response")

    def close(self) -> None:
        self.open = False
        self._pending.clear()
        for due in self._polls:
            self._network.polls[self._process].remove(due)
        self._polls.clear()

    # -- the fate of a request

    def _arrive(self, api: str, version: int, request: Any, *, in_time: bool = True) -> Any:
        answer = self._sent(api, version, request)(in_time)
        world = self._process.world
        if world.trace is not None:
            world.note(f"{shown(api, version, request)} -> {shown_answer(answer)}")
        return answer

    def _sent(self, api: str, version: int, request: Any) -> Callable[[bool], Any]:
        node, kafka = self._node, self._network.kafka
        handle: Callable[[], Any] = partial(kafka.handle, node, api, version, request)
        if api == "OffsetFetch" and (old := kafka.half_loaded(request, self._process.world.now)) is not None:
            handle = lambda: old  # noqa: E731
        if self._recorded is not None:
            handle = partial(self._recorded.arrives, handle)
        owners = self._network.owners
        if not _of_bucket(api, request):
            return owners.sends(self._process.life, api, handle)
        if api == "InitProducerId":
            return owners.takes_bucket(self._process.life, handle)
        return lambda _in_time: handle()

    def _arrive_later(self, api: str, version: int, request: Any) -> None:
        world = self._process.world
        name = self._process.name
        if api == "Produce":  # the sender may use its buffer again
            for topic in request.topic_data:
                for data in topic.partition_data:
                    data.records = bytes(data.records)

        sent = self._sent(api, version, request)

        def arrive() -> None:
            answer = sent(False)
            if world.trace is not None:
                world.note(f"late, from {name}: {shown(api, version, request)} -> {shown_answer(answer)}")

        world.message(self._late, "", arrive)

    def _struck(self, api: str, version: int, request: Any) -> Any:
        world = self._process.world
        kinds = self._network.kinds
        kind = world.chance.kind("kind of fault", kinds)
        what = shown(api, version, request) if world.trace is not None else ""
        if kind == "killed":
            return self._killed(api, version, request, what)
        if kind == "pause":
            seconds = world.chance.choose("pause", (0.05, 2.0, 40.0, 70.0, 150.0))
            world.fault("pause", f"{seconds} s before {what}", at=api)
            self._process.pause(seconds)
            return self._arrive(api, version, request)
        if kind == "outage":
            seconds = world.chance.choose("outage", (1.0, 50.0, 130.0, 300.0))
            world.fault("outage", f"{seconds} s from {what} on", at=api)
            self._network.cut_off(self._process.life, seconds)
            self._cut = True
            return None
        if kind == "move":
            self._network.kafka.move(world.chance)
            world.fault("leaders and coordinators moved")
            if self._network.kafka.conditions.real_time and world.chance.happens("loaded half", 0.3):
                seconds = world.chance.choose("loads for", _LOADS_S)
                world.fault("half-loaded coordinator", f"for {seconds} s")
                self._network.kafka.load_half(world.chance, world.now + seconds)
            return self._arrive(api, version, request)
        if kind == "passing error":
            return self._refused(api, version, request, what)
        world.fault(kind, what, at=api)
        if kind == "request lost":
            self._cut = True
        elif kind == "answer lost":
            self._arrive(api, version, request, in_time=False)
            self._cut = world.chance.happens("cut with the answer", 0.5)
        else:
            self._late = world.chance.choose("late by", _DELAYS_S)
            self._arrive_later(api, version, request)
        return None

    def _killed(self, api: str, version: int, request: Any, what: str) -> Any:
        """Kill the driver, or only the task inside it; the request may still arrive, at once or later."""
        world = self._process.world
        victim = self._process if world.chance.happens("task dies alone", 0.5) else self._process.life
        world.fault(f"{victim.kind} killed", what, at=api)
        if world.recorder is not None and victim is not self._process.life:
            world.recorder.runs_again(victim.driver[0])
        fate = world.chance.choose("last request of the dead", range(3))
        if fate == 1:
            self._arrive(api, version, request)
        elif fate == 2:
            self._late = world.chance.choose("late by", _DELAYS_S)
            self._arrive_later(api, version, request)
        victim.kill()

    def _refused(self, api: str, version: int, request: Any, what: str) -> Any:
        world = self._process.world
        if api not in _PASSING:
            return self._arrive(api, version, request)
        if api == "OffsetFetch" and world.chance.happens("outdated coordinator", 0.5):
            outdated = self._network.kafka.outdated(request, world.chance)
            if outdated is not None:
                world.fault("outdated coordinator", what, at=api)
                self._network.misled.add(self._process.life)
                return outdated
        code = world.chance.choose("passing error", _PASSING[api])
        if api in _DONE_ALL_THE_SAME and world.chance.happens("done all the same", 0.5):
            code = world.chance.choose("error of what is done", _DONE_ALL_THE_SAME[api])
            answer = self._arrive(api, version, request)
            if any(codes_in(answer)):
                return answer
        world.fault("passing error", f"{code} for {what}", at=api)
        return refusal(api, request, code)


def _has_records(topic: Any) -> bool:
    return any(p.records or p.error_code for p in topic.partitions)


def _of_bucket(api: str, request: Any) -> bool:
    """Whether it asks for, or takes, the id of a bucket."""
    if api == "DescribeTransactions":
        return any(map(is_bucket, request.transactional_ids))
    return api == "InitProducerId" and is_bucket(request.transactional_id or "")
