"""The package's real `Connection` without a network: a broker in memory answers each request with bytes.

So requests are encoded, and responses are framed and decoded, as over a socket.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.options import ClientOptions


class Replies(Protocol):
    """A broker."""

    def reply(self, request: bytes) -> bytes:
        """The bytes with which the broker answers a request. After the last byte, it has closed the connection."""


class FalseConnection(Connection):
    """A connection to `broker`."""

    def __init__(self, broker: Replies, host: str, port: int, options: ClientOptions) -> None:
        self._broker = broker
        super().__init__(host, port, options)

    def _connect(self) -> Any:
        return _FalseSocket(self._broker)

    def readable(self) -> bool:
        """A request is answered when it is sent."""
        return True


class _FalseSocket:
    """The part of a socket that a connection uses."""

    def __init__(self, broker: Replies) -> None:
        self._broker = broker
        self._sent: deque[memoryview] = deque()

    def send(self, frame: bytes) -> int:
        self._sent.append(memoryview(self._broker.reply(bytes(frame))))
        return len(frame)

    def recv_into(self, buffer: memoryview) -> int:
        while self._sent and not self._sent[0]:
            self._sent.popleft()
        if not self._sent:
            return 0
        size = min(len(buffer), len(self._sent[0]))
        buffer[:size] = self._sent[0][:size]
        self._sent[0] = self._sent[0][size:]
        return size

    def settimeout(self, seconds: float) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self._sent.clear()

    def fileno(self) -> int:
        raise OSError("no socket")
