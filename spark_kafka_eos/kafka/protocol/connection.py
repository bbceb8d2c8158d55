"""One blocking connection to one broker: framing, pipelining, versions, TLS and SASL.

Requests and responses are kafka-python's classes, generated from Kafka's schemas. The transport is our own: it receives
a response into a single buffer and passes it on without a copy, several times faster than that library's transport.

A connection that failed is closed and never used again. Requests in flight remain unanswered, and the caller decides
what that means. Not thread-safe.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kafka.protocol.metadata import ApiVersionsRequest

from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.errors import AuthenticationFailed, BrokerUnreachable
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import failure, name_of
from spark_kafka_eos.kafka.protocol.frames import frame
from spark_kafka_eos.kafka.protocol.recorder import Sent, connecting, sending
from spark_kafka_eos.kafka.protocol.responses import class_of_response, decode_response
from spark_kafka_eos.kafka.protocol.versions import choose, lacking, offers
from spark_kafka_eos.kafka.wire.record_batch import Bytes

if TYPE_CHECKING:
    import ssl

LARGEST_RESPONSE = 1 << 30
_LARGE = 1 << 17
_ALIVE_BYTES = 1 << 14
_SESSION_SHARE = 0.85  # of a SASL session's lifetime; then the connection is replaced (as in the Java client)

Decode = Callable[[memoryview], Any]


class _AwaitedResponse(NamedTuple):
    """A request in flight."""

    correlation_id: int
    decode: Decode
    sent: Sent


class _Incoming:
    """The next response while it arrives, or before that its size."""

    __slots__ = ("_counted", "buffer", "filled", "is_size", "since", "until")

    def __init__(self, buffer: memoryview, *, is_size: bool = False) -> None:
        self.buffer, self.is_size = buffer, is_size
        self.filled = self._counted = 0
        self.since = self.until = 0.0  # when the first bytes came, and the last ones

    def came(self, count: int, now: float) -> bool:
        """More bytes are in the buffer; whether they are a sign of life."""
        if not self.filled:
            self.since = now
        self.filled += count
        self.until = now
        if self.filled - self._counted < _ALIVE_BYTES:
            return False
        self._counted = self.filled
        return True

    @property
    def arrival(self) -> tuple[int, float]:
        return self.filled, self.until - self.since


def _size() -> _Incoming:
    return _Incoming(memoryview(bytearray(4)), is_size=True)


class Connection:
    """A connection that is ready to use: connected, API versions known, authenticated.

    Raises BrokerUnreachable (with host, port and cause) for network errors, AuthenticationFailed for rejected
    credentials, ConfigurationError for unusable certificates or keys.
    """

    def __init__(self, host: str, port: int, options: ClientOptions) -> None:
        self.host, self.port, self._options = host, port, options
        self.finalized_features: dict[str, int] = {}
        self.supported_features: dict[str, int] = {}
        self._offered: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0
        self._pending: deque[_AwaitedResponse] = deque()
        self._early: dict[int, Any] = {}
        self._forgotten: set[int] = set()
        self._expires = float("inf")
        self._loss: BrokerUnreachable | None = None
        self._timeout = options.request_timeout_ms / 1000
        self._incoming = _size()
        # Of the last response, or of the part of one that came before the connection was lost: its bytes, and how many
        # seconds passed from the first of them to the last.
        self.arrival = (0, 0.0)
        self._heard = time.monotonic()  # when the request was sent, or at the last sign of life since
        self._socket: socket.socket | None = None
        with connecting(self.address):
            self._socket = self._connect()
        try:
            self._first_contact()
            if options.security.uses_sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Connection({self.address})"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def usable(self) -> bool:
        """False if it failed or was closed, or if its SASL session is about to expire and nothing is in flight."""
        return self._socket is not None and (bool(self._pending) or time.monotonic() < self._expires)

    @property
    def in_flight(self) -> int:
        """The requests without a response, also those that are forgotten."""
        return len(self._pending)

    @property
    def lacking(self) -> Mapping[str, str]:
        """The APIs that this package uses and the broker does not offer, and what it offers instead."""
        return lacking(self._offered)

    def offers(self, api: str, version: int) -> bool:
        """Whether the broker has this version of the API."""
        return offers(self._offered, api, version)

    def call(self, request: Any, *, newest: int | None = None, exactly: int | None = None) -> Any:
        """Send `request` and wait for its response. `newest` limits the version of the API, `exactly` is that."""
        return self.receive(self.send(request, newest=newest, exactly=exactly))

    def send(
        self,
        request: Any,
        *,
        newest: int | None = None,
        exactly: int | None = None,
        decode: Decode | None = None,
    ) -> int:
        """Send `request` without waiting; return the correlation id for `receive`.

        `decode` decodes the response's bytes after the correlation id, instead of the generated class.
        """
        api = request.name.removesuffix("Request")
        version = choose(api, self._offered.get(request.API_KEY), newest=newest, exactly=exactly)
        return self._send(request, version, decode)

    def receive(self, correlation_id: int) -> Any:
        """The response to one request in flight; earlier responses are kept for their own `receive`."""
        if not self._incoming.filled:
            self._heard = time.monotonic()
        while correlation_id not in self._early:
            if not self._pending:
                loss, self._loss = self._loss, None
                raise loss or BrokerUnreachable(
                    f"{self.address}: connection lost with request {correlation_id} unanswered"
                )
            self._take_in()
        return self._early.pop(correlation_id)

    def arrived(self, correlation_id: int) -> bool:
        """Whether `receive` would not wait; takes in what has come. A connection that was silent for request.timeout.ms
        is lost.
        """
        try:
            while correlation_id not in self._early and self._pending and self.readable():
                self._take_in()
            if correlation_id not in self._early and self._pending and self.patience <= 0:
                raise self._lost("no response: timed out")
        except BrokerUnreachable as loss:
            self._loss = loss  # for `receive`
        return correlation_id in self._early or not self._pending

    def forget(self, correlation_id: int) -> None:
        """Nobody will `receive` the response to this request: it is dropped when it comes."""
        self._early.pop(correlation_id, None)
        self._forgotten |= {request.correlation_id for request in self._pending} & {correlation_id}

    @property
    def silence(self) -> float:
        """The seconds since the last sign of life, with requests in flight."""
        return time.monotonic() - self._heard

    @property
    def patience(self) -> float:
        """The seconds until a connection that stays silent is given up."""
        return self._timeout - self.silence

    def readable(self) -> bool:
        """Whether `receive` of the oldest request in flight would not block."""
        if self._socket is None:
            return True  # `receive` raises at once
        if self._options.security.uses_tls and cast("ssl.SSLSocket", self._socket).pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def fileno(self) -> int:
        """The socket's file descriptor, -1 if it is closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def close(self) -> None:
        """Close the socket; requests in flight stay unanswered."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._incoming = _size()
        for request in self._pending:
            request.sent.unanswered()
        self._pending.clear()
        self._early.clear()
        self._forgotten.clear()

    # -- connecting

    def _connect(self) -> socket.socket:
        timeout = setup = self._options.socket_connection_setup_timeout_ms / 1000
        if self._options.tcp_timeout_ms is not None:
            timeout = min(setup, self._options.tcp_timeout_ms / 1000)
        tls = None
        if self._options.security.uses_tls:
            from spark_kafka_eos.kafka.auth.authentication import handshake, tls_context

            tls = tls_context(self._options.security)
        try:
            plain = socket.create_connection((self.host, self.port), timeout)
        except (OSError, ValueError, OverflowError) as error:  # the latter two for an invalid host name or port
            raise BrokerUnreachable(f"no connection to {self.address}: {error or type(error).__name__}") from error
        try:
            plain.settimeout(setup)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return plain if tls is None else handshake(tls, plain, self.host, self.address)
        except OSError as error:
            plain.close()
            raise BrokerUnreachable(f"no connection to {self.address}: {error or type(error).__name__}") from error

    def _first_contact(self) -> None:
        """The first request. In TLS 1.3, the client's handshake ends before the broker has seen its certificate."""
        try:
            self._learn_versions()
        except BrokerUnreachable as error:
            if self._options.security.uses_tls:
                from spark_kafka_eos.kafka.auth.authentication import rejected

                if rejected(error.__cause__):
                    raise AuthenticationFailed(
                        f"{self.address} rejected the TLS connection: {error.what}",
                        action="Set the keystore with a client certificate that the broker trusts.",
                    ) from error
            raise

    def _learn_versions(self) -> None:
        """KIP-35. A broker that is too old for our version responds with version 0 and its own range (KIP-511)."""
        request = ApiVersionsRequest(client_software_name="spark-kafka-eos", client_software_version="1")
        response = self.receive(self._send(request, 3))
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
            response = self.receive(self._send(request, choose("ApiVersions", offered.get(request.API_KEY, (0, 0)))))
        if response.error_code:
            raise failure("ApiVersions", response.error_code, self.address)
        self._offered = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        self.supported_features = {f.name: f.max_version for f in response.supported_features or ()}
        if response.finalized_features_epoch >= 0:
            self.finalized_features = {f.name: f.max_version_level for f in response.finalized_features or ()}

    def _authenticate(self) -> None:
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        from spark_kafka_eos.kafka.auth.authentication import sasl_exchange

        security = self._options.security
        shaken = self.call(SaslHandshakeRequest(mechanism=security.mechanism))
        if shaken.error_code:
            raise AuthenticationFailed(
                f"{self.address} does not support SASL mechanism {security.mechanism}: {name_of(shaken.error_code)}",
                action=f"The broker supports {', '.join(shaken.mechanisms)}.",
            )

        def exchange(data: bytes) -> bytes:
            answer = self.call(SaslAuthenticateRequest(auth_bytes=data))
            if answer.error_code:
                raise AuthenticationFailed(
                    f"{self.address} rejected {security.who} ({security.mechanism}): {name_of(answer.error_code)}",
                    action=security.advice,
                )
            if answer.session_lifetime_ms:
                self._expires = time.monotonic() + answer.session_lifetime_ms / 1000 * _SESSION_SHARE
            return bytes(answer.auth_bytes)

        try:
            sasl_exchange(security, self.address, exchange, token_timeout=self._options.request_timeout_ms / 1000)
        except BrokerUnreachable as error:
            if self._socket is not None:
                raise  # not this broker, but where the token or the ticket comes from
            # No refusal, which would be a response (KIP-152): the broker stops, or Kerberos wants to be asked again.
            raise BrokerUnreachable(
                f"the connection was lost during SASL {security.mechanism}: {error.what}"
            ) from error

    # -- frames

    def _send(self, request: Any, version: int, decode: Decode | None = None) -> int:
        correlation_id = self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        request.with_header(correlation_id=correlation_id, client_id=self._options.client_id)
        parts = frame(request, version)
        decode = decode or partial(decode_response, class_of_response(request), version)
        if self._socket is None:
            raise BrokerUnreachable(f"{self.address}: the connection is closed")
        sent = sending(request, self.address)
        try:
            self._send_all(parts)
        except OSError as error:
            sent.unanswered()
            raise self._lost(f"sending {request.name} failed: {error or type(error).__name__}") from error
        except BaseException:  # half a request may have been sent
            sent.unanswered()
            self.close()
            raise
        if not self._pending:
            self._heard = time.monotonic()
        self._pending.append(_AwaitedResponse(correlation_id, decode, sent))
        return correlation_id

    def _send_all(self, parts: Iterable[Bytes]) -> None:
        """Send a frame within request.timeout.ms. `sendall` of a TLS socket would allow that for each record of it."""
        deadline = self._deadline()
        for part in parts:
            unsent = memoryview(part)
            while unsent:
                unsent = unsent[self._within(deadline).send(unsent) :]

    def _take_in(self) -> None:
        """Wait for bytes of the next response, and decode it once it is whole.

        A broker may be silent for request.timeout.ms, as in the Java client. A slow link is not silence: it has that
        time again for every 16 KiB, but not for each byte.
        """
        if self._socket is None:
            raise BrokerUnreachable(f"{self.address}: the connection is closed")
        incoming = self._incoming
        try:
            count = self._within(self._heard + self._timeout).recv_into(incoming.buffer[incoming.filled :])
        except OSError as error:
            raise self._lost(f"no response: {error or type(error).__name__}") from error
        except BaseException:  # an interrupt: nobody knows what was read
            self.close()
            raise
        if not count:
            raise self._lost("the broker closed the connection")
        if incoming.came(count, time.monotonic()):
            self._heard = incoming.until
        if incoming.filled == len(incoming.buffer):
            self._heard = incoming.until
            if incoming.is_size:
                self._incoming = self._announced(incoming)
            else:
                self._incoming, self.arrival = _size(), incoming.arrival
                self._decode(incoming.buffer)

    def _announced(self, incoming: _Incoming) -> _Incoming:
        (size,) = struct.unpack(">i", incoming.buffer)
        if not 4 <= size <= LARGEST_RESPONSE:
            raise self._lost(
                f"received a response size of {size} bytes, which is not Kafka's protocol "
                "(is it a TLS listener, or another service?)"
            )
        return _Incoming(_buffer(size))

    def _decode(self, frame: memoryview) -> None:
        """Keep the response for its `receive`."""
        expected, decode, sent = self._pending[0]
        answered = int.from_bytes(frame[:4], "big")
        if answered != expected:
            raise self._lost(f"received response {answered}, expected {expected}")
        try:
            response = decode(frame)
        except (struct.error, LookupError, ValueError) as error:
            raise self._lost(f"malformed response: {error}") from error
        self._pending.popleft()
        sent.answered(response)
        if expected in self._forgotten:
            self._forgotten.remove(expected)
        else:
            self._early[expected] = response

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _within(self, deadline: float) -> socket.socket:
        """The socket, whose next call ends by `deadline`."""
        assert self._socket is not None
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(remaining)
        return self._socket

    def _lost(self, why: str) -> BrokerUnreachable:
        unanswered = len(self._pending)
        if not self._incoming.is_size:
            self.arrival = self._incoming.arrival
        self.close()
        return BrokerUnreachable(
            f"{self.address}: {why}" + (f"; requests in flight: {unanswered}" if unanswered else "")
        )


def wait_for_any(requests: Iterable[tuple[Connection, int]], seconds: float) -> None:
    """Wait until something has come for one of these requests, of different connections, at most for `seconds`.
    `arrived` tells whether it was all of a response.
    """
    awaited = list(requests)
    if any(connection.arrived(correlation_id) for connection, correlation_id in awaited):
        return
    poll, most = select.poll(), seconds
    for connection, _ in awaited:
        poll.register(connection.fileno(), select.POLLIN)
        most = min(most, connection.patience)
    poll.poll(max(most, 0.0) * 1000)


def wait_for_first(requests: Collection[tuple[Connection, int]], silence: float) -> bool:
    """Wait until one of these requests, of different connections, has `arrived`, or until all of them have been silent
    for `silence` seconds. Whether one has.
    """
    while not any(connection.arrived(correlation_id) for connection, correlation_id in requests):
        remaining = silence - min(connection.silence for connection, _ in requests)
        if remaining <= 0:
            return False
        wait_for_any(requests, remaining)
    return True


def _buffer(size: int) -> memoryview:
    """A writable buffer of `size` bytes."""
    if size < _LARGE:
        return memoryview(bytearray(size))
    # numpy uses huge pages and does not write zeros first: fetching reached 2.0 GB/s, with a bytearray 0.6. Imported
    # on demand, because commits do not need it, and it takes 100 ms to load.
    import numpy as np

    return np.empty(size, np.uint8).data
