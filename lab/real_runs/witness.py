"""Records what passes the proxy between drivers and broker, in the order in which the broker handles it.

Requests take turns: the next one is forwarded only after the broker has answered the one before. So do the markers,
which the broker sends itself, and their turn lasts until the coordinator has completed the transaction: in the
specification, the last marker does that. Nothing else is held up: in TV2, a leader asks the coordinator while it
handles a Produce.

A timeout is no request. It shows in the epoch, so the coordinator is asked before each request that may come after one.
It may also come between that question and the request; then the answer shows it: an error, or another epoch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.simulation.record import RECORDED, Answer, Recorder, Sent, answer_of
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.protocol.responses import decode
from spark_kafka_eos.testing.proxy import Passed, Watcher
from spark_kafka_eos.testing.proxy_frames import RequestHeader, message_class

_SHOWS_NOTHING = ("OffsetFetch", "ListOffsets", "Fetch")  # their answers are not recorded
_CHANGES_EPOCH = ("InitProducerId", "EndTxn")
# With which a coordinator or leader meets an owner whose transaction it has just aborted: NOT_ENOUGH_REPLICAS (what a
# leader makes of CONCURRENT_TRANSACTIONS), INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
_ABORTED = {19, 47, 51, 90}
_PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.002  # a coordinator tells nobody


@dataclass(slots=True, kw_only=True)
class Witness:
    """Records the requests of `drivers`, by client.id, and the markers of their transactions.

    `facts` asks the coordinator whose the transactional.id is, on a connection that is not recorded. `on_rule` is
    called with the client of a request that meets a rule, before it is forwarded.
    """

    recorder: Recorder
    facts: Callable[[], TransactionFacts | None]
    drivers: set[str] = field(default_factory=set)
    on_rule: Callable[[str], None] = lambda _client: None
    turn: threading.Lock = field(default_factory=threading.Lock)
    recording: threading.Lock = field(default_factory=threading.Lock)
    producer_ids: set[int] = field(default_factory=set)
    shortest_s: float = 60.0  # of the drivers' transaction timeouts
    _asking: threading.Lock = field(default_factory=threading.Lock)
    _epoch: int = -1  # after the last request that may have changed it, or the last timeout
    _since: float = field(default_factory=time.monotonic)  # then; no transaction is open for longer

    def watch(self, passed: Passed) -> Watcher | None:
        """The watcher of a request to the broker; None if it is not recorded.

        One that its sender gave up before it was read here is lost, so that each is recorded when it is sent.
        """
        header = passed.request
        if header.api == "WriteTxnMarkers":
            producer_ids = {marker.producer_id for marker in decoded("Request", header, passed.frame).markers}
            return _Markers(self, header) if producer_ids & self.producer_ids else None
        if header.client not in self.drivers or header.api not in RECORDED:
            return None
        if passed.gone:  # nobody knows what it has done since
            raise ConnectionAbortedError(f"{header.client} has given up its {header.api}")
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
            self.notice_timeout(anyway=True)

    def notice_timeout(self, *, anyway: bool = False) -> None:
        """Record it if the coordinator has aborted a transaction by itself. Whoever calls it has the turn. It asks only
        if a transaction may have been open for so long, or `anyway`.
        """
        if not anyway and time.monotonic() - self._since < self.shortest_s:
            return
        facts = self._facts()
        if facts is not None and facts.epoch != self._epoch:
            self._knows(facts)
            with self.recording:
                self.recorder.times_out()

    def notice_before(self, api: str, answer: Answer) -> None:
        """Record a timeout before this answer, if it can be explained by one that came after the last question."""
        described = api == "DescribeTransactions" and answer.codes == (0,) and answer.epoch != self._epoch
        if described or (api != "InitProducerId" and not _ABORTED.isdisjoint(answer.codes)):
            self.notice_timeout(anyway=True)

    def notice_epoch(self) -> None:
        """Learn the epoch after a request that may have changed it."""
        self._knows(self._facts())

    def _knows(self, facts: TransactionFacts | None) -> None:
        self._epoch, self._since = -1 if facts is None else facts.epoch, time.monotonic()

    def _until(self, holds: Callable[[str], bool]) -> TransactionFacts | None:
        deadline = time.monotonic() + _PATIENCE_S
        while (facts := self._facts()) is not None and not holds(facts.state):
            if time.monotonic() > deadline:
                raise ToolFailed(f"the transaction stays in {facts.state}")
            time.sleep(_LOOK_EVERY_S)
        return facts

    def _facts(self) -> TransactionFacts | None:
        with self._asking:
            return self.facts()


@dataclass(slots=True)
class _Request(Watcher):
    """A driver's request."""

    witness: Witness
    header: RequestHeader
    sent: Sent
    response: Any = None

    @contextmanager
    def passes(self) -> Iterator[None]:
        with self.witness.turn:
            self.witness.notice_timeout()
            yield
            if self.header.api in _CHANGES_EPOCH:
                self.witness.notice_epoch()

    def responds(self, frame: bytes | bytearray) -> None:
        api = self.header.api
        self.response = object() if api in _SHOWS_NOTHING else decoded("Response", self.header, frame)
        if api == "InitProducerId":
            self.witness.producer_ids.add(self.response.producer_id)
        self.witness.notice_before(api, answer_of(api, self.response))
        with self.witness.recording:
            self.sent.arrived(self.response)

    def received(self, *, own: bool) -> None:
        with self.witness.recording:
            self.sent.answered(object() if own else self.response)


@dataclass(slots=True)
class _Markers(Watcher):
    """The coordinator's request to write markers."""

    witness: Witness
    header: RequestHeader

    @contextmanager
    def passes(self) -> Iterator[None]:
        with self.witness.turn:
            self.witness.notice_timeout(anyway=True)
            yield
            self.witness.await_completed()

    def responds(self, frame: bytes | bytearray) -> None:
        with self.witness.recording:
            for tp in marked(decoded("Response", self.header, frame), self.witness.producer_ids):
                self.witness.recorder.marked(tp)


def decoded(kind: str, header: RequestHeader, frame: bytes | bytearray) -> Any:
    """A frame of a request or a response, as kafka-python's object."""
    return decode(message_class(f"{header.api}{kind}"), header.version, bytes(frame))


def marked(response: Any, producer_ids: Collection[int]) -> Iterator[TopicPartition]:
    """The partitions in a response to WriteTxnMarkers that have their marker of one of these producers."""
    for marker in response.markers:
        for topic in marker.topics if marker.producer_id in producer_ids else ():
            for partition in topic.partitions:
                if partition.error_code == 0:
                    yield TopicPartition(topic.name, partition.partition_index)
