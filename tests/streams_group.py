"""Makes a group a streams group (KIP-1071), by the request that its members send, which kafka-python does not have."""

from __future__ import annotations

import socket
import struct

_STREAMS_GROUP_HEARTBEAT, _TIMEOUT_MS = 88, 60_000


def join_streams_group(bootstrap: str, group: str, topic: str = "streams-in") -> None:
    """Join as the first member, with a topology of one subtopology that reads `topic`. Raises AssertionError if the
    broker refuses it.
    """
    empty, none, off = b"\x01", b"\x00", b"\x00"
    subtopology = _text("0") + b"\x02" + _text(topic) + empty * 5 + none
    topology = b"\x01" + struct.pack(">i", 0) + b"\x02" + subtopology + none
    body = _text(group) + _text("member-0123456789abcdef") + struct.pack(">ii", 0, 0) + none + none
    body += struct.pack(">i", _TIMEOUT_MS) + topology + empty * 3 + _text("process") + b"\xff" + empty
    body += none + none + off + none
    request = struct.pack(">hhih", _STREAMS_GROUP_HEARTBEAT, 0, 1, 1) + b"t" + none + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        response = answer.read(size)
    correlation_id, _tags, _throttled_ms, error = struct.unpack_from(">ibih", response)
    assert (correlation_id, error) == (1, 0), response


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
