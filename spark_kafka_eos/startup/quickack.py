"""Has Spark's JVM send all of a task's input to its Python worker at once, instead of the last part 40 ms later.

The JVM sends a task's function and input in several writes, over TCP with Nagle's algorithm: a small write waits until
the previous one is acknowledged. Linux delays an acknowledgement in the hope of an answer to send along, but a worker
that still waits for input has none. Python unpickles the function before it reads the input, so that is the moment to
acknowledge, and to tell Linux to do so from then on: it does until the worker sends something. Over Unix sockets
(`spark.python.unix.domain.socket.enabled`, since Spark 4.1) there is no such delay.

Source: tcp(7), TCP_QUICKACK; SPARK-51667, which is the same between the JVM and the Python worker of a stateful
operator, and which Spark has solved there with TCP_NODELAY.
"""

from __future__ import annotations

import inspect
import socket

_DAEMON = "pyspark/daemon.py"  # Linux only, so a slash


class QuickAck:
    """Base of what Spark pickles for a task. To unpickle it in a Python worker calls `set_quickack`, if it has
    any attributes.
    """

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        set_quickack()


def set_quickack() -> bool:
    """Acknowledge what Spark has sent to this Python worker, and send its results, without delay.

    Returns whether it did: not outside of a worker of Spark's daemon, not over a Unix socket, and only on Linux.
    """
    connection = _connection_to_spark()
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    if not hasattr(socket, "TCP_QUICKACK"):
        return False
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    return True


def _connection_to_spark() -> socket.socket | None:
    """The socket that PySpark's daemon gave to this process: the argument `sock` of `pyspark.daemon.worker`, which is
    at the bottom of each task's stack. None if it is not there.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "worker" and frame.f_code.co_filename.endswith(_DAEMON):
            connection = frame.f_locals.get("sock")
            return connection if isinstance(connection, socket.socket) else None
        frame = frame.f_back
    return None
