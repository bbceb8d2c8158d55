"""Records what passes the proxy between drivers and broker, in the order in which the broker handles it.

Requests take turns: the next one is forwarded only after the broker has answered the one before. So do the markers,
which the broker sends itself, and their turn lasts until the coordinator has completed the transaction: in the
specification, the last marker does that. Nothing else is held up: in TV2, a leader asks the coordinator while it
handles a Produce.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.simulation.record import RECORDED, Recorder, Sent
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.protocol import describe
from spark_kafka_eos.protocol.cluster import Cluster
from spark_kafka_eos.protocol.facts import TransactionFacts
from spark_kafka_eos.testing.proxy import Passed, Watch
from spark_kafka_eos.testing.proxy_frames import RequestHeader, message_class

_SHOWS_NOTHING = ("OffsetFetch", "ListOffsets", "Fetch")  # their answers are not recorded
_PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.002  # a coordinator tells nobody


@dataclass(slots=True, kw_only=True)
class Witness:
    """Records the requests of `drivers`, by client.id, and the markers of their `transactional_id`.

    `cluster` is its own, to ask the coordinator. `on_rule` is called with the client of a request that meets a rule,
    before it is forwarded.
    """

    recorder: Recorder
    cluster: Cluster
    transactional_id: str
    drivers: set[str] = field(default_factory=set)
    on_rule: Callable[[str], None] = lambda _client: None
    turn: threading.Lock = field(default_factory=threading.Lock)
    recording: threading.Lock = field(default_factory=threading.Lock)
    _asking: threading.Lock = field(default_factory=threading.Lock)
    producer_ids: set[int] = field(default_factory=set)

    def watch(self, passed: Passed) -> Watch | None:
        """What to tell of a request to the broker; None if it is not recorded."""
        header = passed.request
        if header.api == "WriteTxnMarkers":
            told = {marker.producer_id for marker in decoded("Request", header, passed.frame).markers}
            return _Markers(self, header) if told & self.producer_ids else None
        if header.client not in self.drivers or header.api not in RECORDED:
            return None
        with self.recording:
            sent = self.recorder.sends(header.client, header.api, decoded("Request", header, passed.frame))
        if passed.rule is not None:
            self.on_rule(header.client)
        return None if sent is None else _Request(self, header, sent)

    def await_completed(self) -> TransactionFacts | None:
        """Return once the end of no transaction is decided and not yet complete: what the coordinator says then."""
        return self._until(lambda state: not state.startswith("Prepare"))

    def await_timeout(self) -> None:
        """Return once the coordinator has aborted the open transaction, if there is one, and record that."""
        with self.turn:
            before = self._facts()
            if before is None or before.state != "Ongoing":
                return
            self._until(lambda state: state != "Ongoing")
            with self.recording:
                self.recorder.times_out()

    def _until(self, holds: Callable[[str], bool]) -> TransactionFacts | None:
        deadline = time.monotonic() + _PATIENCE_S
        while (facts := self._facts()) is not None and not holds(facts.state):
            if time.monotonic() > deadline:
                raise ToolFailed(f"the transaction of {self.transactional_id!r} stays in {facts.state}")
            time.sleep(_LOOK_EVERY_S)
        return facts

    def _facts(self) -> TransactionFacts | None:
        with self._asking:
            found = describe.transaction(self.cluster, self.transactional_id, now_ms=0)
        assert found is None or isinstance(found, TransactionFacts), found
        return found


@dataclass(slots=True)
class _Request:
    """A driver's request."""

    witness: Witness
    header: RequestHeader
    sent: Sent
    response: Any = None

    @contextmanager
    def passes(self) -> Iterator[None]:
        with self.witness.turn:
            yield

    def responds(self, frame: bytes | bytearray) -> None:
        api = self.header.api
        self.response = object() if api in _SHOWS_NOTHING else decoded("Response", self.header, frame)
        if api == "InitProducerId":
            self.witness.producer_ids.add(self.response.producer_id)
        with self.witness.recording:
            self.sent.arrived(self.response)

    def received(self, *, own: bool) -> None:
        with self.witness.recording:
            self.sent.answered(object() if own else self.response)


@dataclass(slots=True)
class _Markers:
    """The coordinator's request to write markers."""

    witness: Witness
    header: RequestHeader

    @contextmanager
    def passes(self) -> Iterator[None]:
        with self.witness.turn:
            yield
            self.witness.await_completed()

    def responds(self, frame: bytes | bytearray) -> None:
        with self.witness.recording:
            for tp in marked(decoded("Response", self.header, frame), self.witness.producer_ids):
                self.witness.recorder.marked(tp)

    def received(self, *, own: bool) -> None:
        """Nothing follows from it."""


def decoded(kind: str, header: RequestHeader, frame: bytes | bytearray) -> Any:
    """A frame of a request or a response, as kafka-python's object."""
    return message_class(f"{header.api}{kind}").decode(bytes(frame), version=header.version, header=True)


def marked(response: Any, producer_ids: Collection[int]) -> Iterator[TopicPartition]:
    """The partitions in a response to WriteTxnMarkers that have their marker of one of these producers."""
    for marker in response.markers:
        for topic in marker.topics if marker.producer_id in producer_ids else ():
            for partition in topic.partitions:
                if partition.error_code == 0:
                    yield TopicPartition(topic.name, partition.partition_index)
