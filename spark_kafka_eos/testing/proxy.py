"""A proxy in front of a cluster that injects faults into selected requests (proxy_rules.py), for tests and manual use.

    with Proxy(kafka.bootstrap) as proxy:
        lost = proxy.add("EndTxn:drop-response")
        …                                          # a client connects to proxy.bootstrap
        lost.wait()                                # until an EndTxn was applied and its response dropped

The proxy has a listener for every broker, and rewrites broker addresses in responses, so that clients cannot bypass it.
Not obvious:
- Requests survive the client's connection: what a client has sent is forwarded even after it closes its connection,
  and the connection to the broker stays open until all of it is answered. So a delayed request can arrive after its
  sender's successor has finished.
- Responses keep the requests' order, including the proxy's own, as Kafka's protocol requires.
- If the broker closes its connection or accepts none, the proxy closes the client's.
- If a broker advertises the address of a `relay`, all brokers connect to it through the relay too. So rules can apply
  to WriteTxnMarkers, which ends a transaction.
- `limit` makes the links slow: what brokers answer is passed on at this speed, and a cut loses what has not yet come.
- Plaintext only: the proxy cannot read encrypted requests, and asks the brokers for their addresses without a login.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kafka.protocol.metadata import MetadataRequest

from spark_kafka_eos.errors import BrokerUnreachable, KafkaEosError, ToolFailed
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.table import SOURCE, parse_options
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.proxy_frames import (
    RequestHeader,
    check_answerable,
    error_response,
    expects_response,
    request_header,
    with_addresses,
    without_apis,
)
from spark_kafka_eos.testing.proxy_rules import WITH_CODE, Action, Rule, parse_rule

_log = logger(__name__)

_LOOPBACK = "127.0.0.1"
_CONNECT_MS = 5_000
_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)  # Linux; elsewhere POLLHUP says that
_PIECES_PER_SECOND = 50
_CATCHES_UP_S = 0.05  # after a sleep that took too long
_APPLIED_FIRST = (Action.DROP_RESPONSE, Action.CUT_RESPONSE, Action.DUPLICATE, Action.ERROR_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A request to the broker `node`, and the rule that is applied to it, if any. `frame` is all of it. `gone`: its
    client has closed the connection before it was read here, because it was sent behind a delayed one.
    """

    node: int
    request: RequestHeader
    rule: Rule | None
    frame: bytes | bytearray
    gone: bool = False


class Watcher:
    """Follows one request. It is called in the threads of the connection. Who inherits it overrides what it needs."""

    def passes(self) -> AbstractContextManager[None]:
        """Surrounds its way to the broker and the response's way back: left once the client has the response, or will
        never have it. Until then, nothing else of the connection is forwarded.
        """
        return contextlib.nullcontext()

    def responds(self, frame: bytes | bytearray) -> None:
        """The broker has answered with this, whatever the client receives."""

    def received(self, *, own: bool) -> None:
        """The client has received the broker's response, or (`own`) one of the proxy's."""


class Fault:
    """A rule that is active in a proxy.

    `seen` counts the requests that the rule covers; `fired` those to which its action was applied (for an action on the
    response: after the response arrived); `answered` those of them that the broker has answered.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.seen = self.fired = self.answered = 0
        self._changed = threading.Condition()
        self._released = threading.Event()

    def __repr__(self) -> str:
        return f"Fault({self.rule}, seen={self.seen}, fired={self.fired}, answered={self.answered})"

    def wait(self, times: int = 1, *, timeout: float = 30.0) -> None:
        """Return when the rule has fired `times` times. Raises ToolFailed after `timeout` seconds."""
        self._wait(lambda: self.fired >= times, f"fired {times} times", timeout)

    def wait_seen(self, times: int = 1, *, timeout: float = 30.0) -> None:
        """Return when `times` requests that the rule covers have arrived. Raises ToolFailed as `wait` does."""
        self._wait(lambda: self.seen >= times, f"seen {times} requests", timeout)

    def wait_answered(self, times: int = 1, *, timeout: float = 30.0) -> None:
        """Return when the broker has answered `times` requests to which the rule was applied. Raises ToolFailed as
        `wait` does.
        """
        self._wait(lambda: self.answered >= times, f"been answered {times} times", timeout)

    def release(self) -> None:
        """Forward what is held or delayed, and stop holding requests."""
        self._released.set()

    def counts(self) -> bool:
        """Count a request that the rule covers; return whether the action applies to it."""
        with self._changed:
            self.seen += 1
            self._changed.notify_all()
            return self.rule.due(self.seen)

    def note(self, *, fired: bool = False, answered: bool = False) -> None:
        """Count an application of the action, or a response."""
        with self._changed:
            self.fired += fired
            self.answered += answered
            self._changed.notify_all()

    def pause(self) -> None:
        """Wait until the delay is over, or until the rule is released."""
        self._released.wait(self.rule.seconds if self.rule.action is Action.DELAY else None)

    def _wait(self, condition: Callable[[], bool], otherwise: str, timeout: float) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise ToolFailed(f"the rule {self.rule} has not {otherwise} within {timeout:g} s: {self!r}")


class _SlowLink:
    """Lets this many bytes pass per second, of all who use it, in turns."""

    def __init__(self, bytes_per_second: float) -> None:
        self._speed = bytes_per_second
        self._piece = max(1, int(bytes_per_second / _PIECES_PER_SECOND))
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def send(self, to: socket.socket, data: memoryview) -> None:
        while data:
            piece, data = data[: self._piece], data[self._piece :]
            with self._lock:
                self._free_at = max(self._free_at, time.monotonic() - _CATCHES_UP_S) + len(piece) / self._speed
                passed = self._free_at
            time.sleep(max(0.0, passed - time.monotonic()))
            to.sendall(piece)


class Proxy:
    """Listeners for every broker of the cluster at `bootstrap` (plaintext), and rules for the requests of its clients.

    A context manager. Without `bootstrap`, it has only the listeners that `relay` adds. `on_request` is called for each
    request before it is forwarded, in the thread of the connection; so is `watch`, which may return a watcher of the
    request, or lose request and connection with a ConnectionAbortedError. To clients, the brokers seem to lack the APIs
    in `lacking`. Raises BrokerUnreachable if no broker answers at the start, ConfigurationError for a bootstrap that is
    not host:port, ToolFailed for text that is not a rule.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        rules: Iterable[Rule | str] = (),
        *,
        on_request: Callable[[Passed], None] = lambda _: None,
        watch: Callable[[Passed], Watcher | None] = lambda _: None,
        lacking: Iterable[str] = (),
    ) -> None:
        self._upstream = bootstrap
        self._lacking = frozenset(lacking)
        self._on_request, self._watch = on_request, watch
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._listeners: dict[int, _Listener] = {}
        self._links: set[_Link] = set()
        self._slow: dict[int | None, _SlowLink] = {}
        self._closed = False
        for rule in rules:
            self.add(rule)

    def __enter__(self) -> Self:
        if self._upstream is not None:
            for broker in sorted(self._metadata(self._upstream).brokers, key=lambda broker: broker.node_id):
                self._address(broker.node_id, broker.host, broker.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """`host:port` of the listeners, for `bootstrap.servers`: the brokers' in the order of their ids."""
        with self._lock:
            return ",".join(f"{_LOOPBACK}:{listener.port}" for listener in self._listeners.values())

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The active rules, in order."""
        return tuple(self._faults)

    def add(self, rule: Rule | str) -> Fault:
        """Add a rule after the others. If several rules apply to a request, the first one is used."""
        fault = Fault(parse_rule(rule) if isinstance(rule, str) else rule)
        if fault.rule.action in WITH_CODE and fault.rule.api != "*":
            check_answerable(fault.rule.api)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all rules, and forward what is held."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.release()

    def relay(self, node: int, port: int, *, to: int) -> None:
        """Listen on `port`, which the broker `node` advertises, and forward to `to`, where it listens (on loopback)."""
        with self._lock:
            listener = self._listeners[node] = _Listener(self._accepted, node, port)
            listener.upstream = _LOOPBACK, to

    def limit(self, bytes_per_second: float, *, node: int | None = None) -> None:
        """From now on, pass on what the broker `node` answers at this speed, in all connections together; without
        `node`, what all other brokers answer together. Connections that are open keep their speed.
        """
        with self._lock:
            self._slow[node] = _SlowLink(bytes_per_second)

    def cut(self) -> None:
        """Close every connection, including requests in flight; accept new connections."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def close(self) -> None:
        """Close the listeners and every connection."""
        with self._lock:
            self._closed = True
            listeners = list(self._listeners.values())
            links = list(self._links)
        for listener in listeners:
            listener.close()
        self.clear()
        self.cut()
        for link in links:
            link.join()

    def _metadata(self, bootstrap: str) -> Any:
        """Metadata from the first bootstrap server that answers."""
        connecting = {"kafka.client.id": "kafka-eos-proxy", "kafka.request.timeout.ms": _CONNECT_MS}
        options = client_options(parse_options({"kafka.bootstrap.servers": bootstrap, **connecting}, SOURCE))
        unreachable: list[BrokerUnreachable] = []
        for host, port in options.bootstrap_servers:
            try:
                with closing(Connection(host, port, options)) as connection:
                    return connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
            except BrokerUnreachable as error:
                unreachable.append(error)
        raise unreachable[-1]

    # -- for connections

    def meet(
        self, node: int, request: RequestHeader, frame: bytearray, *, gone: bool
    ) -> tuple[Fault | None, Watcher | None]:
        """Count a request that has arrived; return the fault to apply to it, and who watches it, if any."""
        with self._lock:
            faults = [fault for fault in self._faults if fault.rule.covers(request.api, request.client)]
        due = [fault for fault in faults if fault.counts()]
        met = due[0] if due else None
        passed = Passed(node=node, request=request, rule=met.rule if met else None, frame=frame, gone=gone)
        self._on_request(passed)
        return met, self._watch(passed)

    def translate(self, request: RequestHeader, frame: bytes | bytearray) -> bytes | bytearray:
        """The response with the listeners' addresses instead of the brokers', and without the lacking APIs."""
        if self._lacking and request.api == "ApiVersions":
            return without_apis(request, frame, self._lacking)
        return with_addresses(request, frame, self._address)

    def _address(self, node: int, host: str, port: int) -> tuple[str, int]:
        """The address of a broker's listener, which is created on first use."""
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError("the proxy is closed")
            listener = self._listeners.get(node)
            if listener is None:
                listener = self._listeners[node] = _Listener(self._accepted, node, *free_ports(1))
            if port != listener.port:  # equal if the broker advertises a relay
                listener.upstream = host, port
        return _LOOPBACK, listener.port

    def _accepted(self, client: socket.socket, node: int, upstream: tuple[str, int]) -> None:
        with self._lock:
            if self._closed:
                client.close()
            else:
                slow = self._slow.get(node, self._slow.get(None))
                self._links.add(_Link(self, client, node, upstream, slow))

    def ended(self, link: _Link) -> None:
        """Forget a closed connection."""
        with self._lock:
            self._links.discard(link)


class _Listener:
    """Accepts a broker's clients, each in its own thread; `upstream` is the broker's current address."""

    def __init__(self, accepted: Callable[[socket.socket, int, tuple[str, int]], None], node: int, port: int) -> None:
        self.port = port
        self.upstream = (_LOOPBACK, 0)
        self._socket = socket.create_server((_LOOPBACK, port))
        self._accepted, self._node = accepted, node
        self._thread = _started(self._accept, f"proxy-{node}-accepts")

    def close(self) -> None:
        _shut(self._socket)
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._socket.accept()
                self._accepted(client, self._node, self.upstream)


@dataclass(slots=True, eq=False)
class _PassedRequest:
    """A request that was forwarded or answered here, until its response is sent."""

    request: RequestHeader
    frame: bytearray
    fault: Fault | None
    watch: Watcher | None
    answer: bytes | bytearray | None = None


class _Link:
    """A client's connection and the matching connection to the broker: one thread for requests, one for responses."""

    def __init__(
        self, proxy: Proxy, client: socket.socket, node: int, upstream: tuple[str, int], slow: _SlowLink | None
    ) -> None:
        self._proxy, self._client, self._node, self._where = proxy, client, node, upstream
        self._upstream: socket.socket | None = None
        self._pending: deque[_PassedRequest] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._requests_lost = self._responses_lost = False  # the connection is dead in that direction
        self._slow = slow
        self._delivering = False
        self._thread = _started(self._serve, f"proxy-{node}-requests")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for end in (self._client, self._upstream):
            if end is not None:
                _shut(end)

    def join(self) -> None:
        """Wait until the threads of a closed connection have ended."""
        self._thread.join()

    def _serve(self) -> None:
        responses: threading.Thread | None = None
        try:
            upstream = _dial(self._where)
            with self._changed:
                self._upstream = upstream
                if self._closed:
                    return
            responses = _started(self._receive_responses, f"proxy-{self._node}-responses")
            while (frame := _receive(self._client)) is not None:
                self._take_request(frame)
            with self._changed:  # the client has closed its connection; its requests are still processed
                self._changed.wait_for(lambda: self._closed or not self._pending)
        except OSError:
            pass  # the broker does not accept connections, or one end or a rule closed the connection
        except KafkaEosError as error:
            _log.error("%s", error)
        finally:
            self.close()
            if responses is not None:
                responses.join()
            self._proxy.ended(self)

    # -- requests

    def _take_request(self, frame: bytearray) -> None:
        if self._requests_lost:
            return
        request = request_header(frame)
        fault, watch = self._proxy.meet(self._node, request, frame, gone=_is_closed(self._client))
        if fault is not None and fault.rule.action not in _APPLIED_FIRST:
            fault.note(fired=True)
        pending = _PassedRequest(request, frame, fault, watch)
        match fault.rule.action if fault else None:
            case Action.DROP_REQUEST:
                self._requests_lost = True
                return
            case Action.CUT_REQUEST:
                raise ConnectionAbortedError("a rule")
            case Action.ERROR if fault:
                pending.answer = error_response(request, frame, fault.rule.code)
                with self._changed:
                    self._pending.append(pending)
                self._deliver()
                return
            case Action.DELAY | Action.HOLD if fault:
                fault.pause()
        if expects_response(request, frame):
            with self._changed:
                self._pending.append(pending)
        assert self._upstream is not None, "requests are read only after the broker has accepted the connection"
        if watch is None:
            _send(self._upstream, frame)
            return
        with watch.passes():
            _send(self._upstream, frame)
            with self._changed:
                self._changed.wait_for(lambda: self._closed or pending not in self._pending)

    # -- responses

    def _receive_responses(self) -> None:
        assert self._upstream is not None, "started only after the broker has accepted the connection"
        try:
            while (frame := _receive(self._upstream)) is not None:
                self._take_response(frame)
        except OSError:
            pass  # one end or a rule closed the connection
        except KafkaEosError as error:
            _log.error("%s", error)
        finally:
            self.close()

    def _take_response(self, frame: bytearray) -> None:
        """Match a response with the oldest request without one: a broker answers in order."""
        with self._changed:
            pending = next((p for p in self._pending if p.answer is None), None)
        if pending is None or int.from_bytes(frame[:4], "big", signed=True) != pending.request.correlation_id:
            raise ConnectionAbortedError("a response without a request")
        if pending.watch is not None:
            pending.watch.responds(frame)
        answer, fault = self._proxy.translate(pending.request, frame), pending.fault
        match fault.rule.action if fault else None:
            case Action.DROP_RESPONSE:
                self._responses_lost = True
            case Action.DUPLICATE:
                self._repeat(pending.frame)
            case Action.ERROR_AFTER if fault:
                answer = error_response(pending.request, pending.frame, fault.rule.code)
        if fault is not None:
            fault.note(fired=fault.rule.action in _APPLIED_FIRST, answered=True)
            if fault.rule.action is Action.CUT_RESPONSE:
                raise ConnectionAbortedError("a rule")
        with self._changed:
            pending.answer = answer
        self._deliver()

    def _repeat(self, frame: bytearray) -> None:
        """Send a request again, on a new connection, and wait for the response."""
        with _dial(self._where) as again:
            _send(again, frame)
            _receive(again)

    def _deliver(self) -> None:
        """Send the responses that are next in order, unless the other thread does: then it sends these, too."""
        while (pending := self._next_answered()) is not None:
            try:
                self._answer(pending)
            finally:
                with self._changed:
                    self._delivering = False
                    self._pending.popleft()
                    self._changed.notify_all()

    def _next_answered(self) -> _PassedRequest | None:
        with self._changed:
            if self._delivering or not self._pending or self._pending[0].answer is None:
                return None
            self._delivering = True
            return self._pending[0]

    def _answer(self, pending: _PassedRequest) -> None:
        assert pending.answer is not None
        if not (self._responses_lost or _is_closed(self._client)):
            with contextlib.suppress(OSError):
                _send(self._client, pending.answer, self._slow)
                if pending.watch is not None:
                    pending.watch.received(own=pending.fault is not None and pending.fault.rule.action in WITH_CODE)
                return
        self._responses_lost = True


def _dial(where: tuple[str, int]) -> socket.socket:
    upstream = socket.create_connection(where, _CONNECT_MS / 1000)
    upstream.settimeout(None)
    upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return upstream


def _send(to: socket.socket, frame: bytes | bytearray, through: _SlowLink | None = None) -> None:
    data = struct.pack(">i", len(frame)) + frame
    if through is None:
        to.sendall(data)
    else:
        through.send(to, memoryview(data))


def _receive(source: socket.socket) -> bytearray | None:
    """One frame without its length; None if the connection ends, even within the frame."""
    size = _receive_exactly(source, 4)
    return None if size is None else _receive_exactly(source, int.from_bytes(size, "big"))


def _receive_exactly(source: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = source.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return buffer


def _is_closed(end: socket.socket) -> bool:
    """Whether the other side has closed the connection, as far as this one has heard of it: also behind requests that
    were not read yet.
    """
    if end.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(end, _HUNG_UP)
    return bool(poll.poll(0))


def _shut(end: socket.socket) -> None:
    """Close a socket that another thread may be waiting on, which close() alone would not wake."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _started(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
