"""Finds free loopback ports for servers that need to know their ports before they start."""

from __future__ import annotations

import random
import socket

# Below the ranges of ephemeral ports (Linux 32768.., IANA 49152..). Otherwise, a client that keeps connecting to a
# stopped broker could be assigned that broker's port, connect to itself, and occupy the port.
_RANGE = range(20_000, 32_768)


def free_ports(count: int, *, exclude: frozenset[int] = frozenset()) -> list[int]:
    """`count` distinct ports on which nothing listens now. Raises OSError if there are not enough."""
    ports: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        if len(ports) == count:
            break
        if port not in exclude and is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise OSError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop - 1}")
    return ports


def is_free(port: int) -> bool:
    """Whether a Java server, which sets SO_REUSEADDR, could listen on the port now."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Whether a server accepts connections on the port now."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
