"""Sends statistics to the driver's listener: signed datagrams, one per range that a task reads and per batch's outcome,
and one each few seconds of a task in real time.

Python data sources have no accumulators in Spark, and Spark runs the sink's commit in a process of its own. Sending a
datagram never blocks and never fails a task or a commit. If one of a task is lost, the number of offsets shows it
(`observe.progress`). Datagrams are signed with a key that is only known inside Spark, so that no other ones count. They
contain offsets, sizes, durations and names of errors, but nothing of the records.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import secrets
import selectors
import socket
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe.tallies import BatchOutcome, IntervalTally, RangeTally

log = logger(__name__)

_SIGNATURE_BYTES = hashlib.sha256().digest_size
_LARGEST = 65_535
_BATCHES_KEPT = 64  # of all queries; older ones are dropped
_QUERIES_KEPT = 64
_OUTCOMES_KEPT = 256  # to recognise one that arrives twice
# More than the kernel buffers, so that `take` finds all that has arrived, but not what a flood adds meanwhile.
_TAKEN_AT_ONCE = 1_000
_READ_AT_ONCE = 64  # without giving `take` a chance in between


class Collector:
    """Listens on `bind` (on a free port if `port` is 0) for tasks and commits, which need `address_and_key`. Call
    `close` at the end.

    `committed` gets each batch's outcome when it arrives, `interval` each tally of a query in real time, on a thread of
    the collector, in `take` or in `drain`. Raises OSError if it cannot listen.
    """

    def __init__(
        self,
        *,
        bind: str,
        host: str,
        port: int = 0,
        committed: Callable[[BatchOutcome], None] = lambda _: None,
        interval: Callable[[IntervalTally], None] = lambda _: None,
    ) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.bind(address)
        self._key = secrets.token_hex(_SIGNATURE_BYTES)
        self._lock = threading.Lock()
        # As keys, because a datagram may arrive twice.
        self._batches: OrderedDict[tuple[str, int], dict[RangeTally, None]] = OrderedDict()
        self._taken: OrderedDict[str, int] = OrderedDict()  # by query: the last batch that `take` returned
        self._committed, self._interval = committed, interval
        self._outcomes: deque[bytes] = deque(maxlen=_OUTCOMES_KEPT)
        self._closed = False
        self.address_and_key = f"{host}:{self._socket.getsockname()[1]}:{self._key}"
        self._wake, self._awake = socket.socketpair()
        # The kernel only buffers some hundred datagrams.
        self._thread = threading.Thread(target=self._run, name="kafka-eos-collector", daemon=True)
        self._thread.start()

    def take(self, query_id: str, batch_id: int) -> list[RangeTally]:
        """Return and drop what has arrived for a micro-batch."""
        with self._lock:
            self._drain(_TAKEN_AT_ONCE)
            self._taken[query_id] = batch_id
            self._taken.move_to_end(query_id)
            while len(self._taken) > _QUERIES_KEPT:
                self._taken.popitem(last=False)
            return list(self._batches.pop((query_id, batch_id), ()))

    def drain(self) -> None:
        """Pass on what has arrived."""
        with self._lock:
            self._drain(_TAKEN_AT_ONCE)

    def close(self) -> None:
        """Stop listening."""
        if self._closed:
            return
        self._closed = True
        self._wake.close()
        self._thread.join()
        with self._lock:
            self._socket.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:  # `select.select` takes no descriptors above 1023
            for readable in (self._socket, self._awake):
                selector.register(readable, selectors.EVENT_READ)
            while not self._closed:
                selector.select()
                with self._lock:
                    self._drain(_READ_AT_ONCE)
        self._awake.close()

    def _drain(self, most: int) -> None:
        """Read what has arrived, at most so many datagrams: others may send faster than this reads."""
        for _ in range(most):
            if self._closed:
                break
            try:
                datagram = self._socket.recv(_LARGEST)
            except BlockingIOError:
                break
            signature, text = datagram[:_SIGNATURE_BYTES], datagram[_SIGNATURE_BYTES:]
            if hmac.compare_digest(signature, _sign(self._key, text)):
                self._note(text)
        while len(self._batches) > _BATCHES_KEPT:
            self._batches.popitem(last=False)

    def _note(self, text: bytes) -> None:
        try:
            message = _parsed(json.loads(text))
        except (TypeError, ValueError) as error:
            _complain_of_release(str(error))
            return
        if isinstance(message, tuple):
            query, batch, tally = message
            if batch > self._taken.get(query, -1):  # else it is late, or recorded and sent again
                self._batches.setdefault((query, batch), {})[tally] = None
        elif text not in self._outcomes:
            self._outcomes.append(text)
            if isinstance(message, IntervalTally):
                self._interval(message)
            else:
                self._committed(message)


def _parsed(message: Any) -> IntervalTally | BatchOutcome | tuple[str, int, RangeTally]:
    """What a datagram says; with its query and batch for a range. Raises TypeError or ValueError for other fields."""
    if isinstance(message, dict):
        return IntervalTally(**message) if "reporter" in message else BatchOutcome(**message)
    query, batch, topic, partition, start, end, size, aborted = message
    return (
        query,
        batch,
        RangeTally(partition=TopicPartition(topic, partition), start=start, end=end, bytes=size, aborted=aborted),
    )


def send_tallies(address_and_key: str, query_id: str, batch_id: int, tallies: Iterable[RangeTally]) -> None:
    """Send a task's statistics to the collector. A process logs only one failure."""
    fields = ([query_id, batch_id, *t.partition, t.start, t.end, t.bytes, t.aborted] for t in tallies)
    _send(address_and_key, fields)


def send_outcome(address_and_key: str, outcome: BatchOutcome) -> None:
    """Send a batch's outcome to the collector. A process logs only one failure."""
    _send(address_and_key, [asdict(outcome)])


def send_interval(address_and_key: str, tally: IntervalTally) -> None:
    """Send the tally of a query in real time. A process logs only one failure."""
    _send(address_and_key, [asdict(tally)])


def _send(address_and_key: str, messages: Iterable[object]) -> None:
    host, port, key = address_and_key.rsplit(":", 2)
    try:
        family, kind, protocol, _, address = _resolve(host, port)
        with socket.socket(family, kind, protocol) as sender:
            sender.setblocking(False)
            sender.connect(address)
            for message in messages:
                text = json.dumps(message).encode()
                sender.send(_sign(key, text) + text)
    except OSError as error:
        _complain(f"{host}:{port}", str(error))


def _sign(key: str, text: bytes) -> bytes:
    return hmac.digest(key.encode(), text, "sha256")


@functools.cache
def _resolve(host: str, port: str) -> tuple[int, int, int, str, Any]:
    """The collector's address, looked up once per process, because name resolution may be slow."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]


@functools.cache
def _complain_of_release(why: str) -> None:
    log.warning(
        "statistics of another release of spark-kafka-eos are left out; install the same one everywhere: %s", why
    )


@functools.cache
def _complain(where: str, why: str) -> None:
    log.warning("cannot send statistics to the progress listener at %s: %s", where, why)
