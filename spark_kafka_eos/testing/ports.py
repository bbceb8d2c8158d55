"""Free loopback ports for servers that are given theirs before they start."""

from __future__ import annotations

import random
import socket

# Below the ranges from which outgoing connections take theirs (Linux 32768.., IANA 49152..): a client that keeps
# dialling a stopped broker could otherwise be given that very port, connect to itself and keep the broker away.
_RANGE = range(20_000, 32_768)


def free_ports(count: int, *, exclude: frozenset[int] = frozenset()) -> list[int]:
    """`count` distinct ports nobody listens on at this moment. Raises OSError when the range is taken."""
    found: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        if len(found) == count:
            break
        if port not in exclude and is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop - 1}")
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now, as Java's would (SO_REUSEADDR)."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
