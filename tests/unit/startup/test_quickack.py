"""All of a task's input comes at once: Linux does not delay the acknowledgement for which Spark's JVM waits."""

from __future__ import annotations

import pickle
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.serializers import CloudPickleSerializer

from spark_kafka_eos.registry.formats import QuerySchema
from spark_kafka_eos.spark.encode_stage import ShufflingTask, StagingTask
from spark_kafka_eos.spark.sink import KafkaEosBatchWriter, KafkaEosStreamWriter
from spark_kafka_eos.spark.source import KafkaEosReader, KafkaEosStreamReader
from spark_kafka_eos.startup.quickack import QuickAck, set_quickack

T = TypeVar("T")


@dataclass(frozen=True)
class Function(QuickAck):
    of: str = "a task"


_daemon: dict[str, Any] = {}
exec(
    compile("def worker(sock, task):\n    return task()\n", str(Path("site-packages", "pyspark", "daemon.py")), "exec"),
    _daemon,
)


def in_a_worker(connection: socket.socket, task: Callable[[], T]) -> T:
    """The result of `task`, as if PySpark's daemon ran it."""
    result: T = _daemon["worker"](connection, task)
    return result


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The JVM's end and the worker's."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as jvm:
        worker_end, _ = server.accept()
        with worker_end:
            yield jvm, worker_end


def test_a_task_does_not_wait_until_linux_acknowledges_its_function(connected) -> None:
    jvm, worker_end = connected
    function = pickle.dumps(Function())

    def waited(task: Callable[[], object]) -> float:
        """Seconds from the function's arrival to that of the input."""
        jvm.sendall(function)
        assert worker_end.recv(1_000) == function
        jvm.sendall(b"input")  # held back by Nagle's algorithm, until the function is acknowledged
        started = time.perf_counter()
        in_a_worker(worker_end, task)
        assert worker_end.recv(1_000) == b"input"
        took = time.perf_counter() - started
        worker_end.sendall(b"result")
        assert jvm.recv(1_000) == b"result"
        return took

    for _ in range(20):  # a new connection acknowledges at once, for a while
        waited(lambda: None)
    # After a pause, as on a busy machine, it does so again.
    assert statistics.median(waited(lambda: None) for _ in range(9)) > 0.03
    assert min(waited(lambda: pickle.loads(function)) for _ in range(20)) < 0.02


def test_what_is_unpickled_is_what_was_pickled(connected) -> None:
    copy = in_a_worker(connected[1], lambda: pickle.loads(pickle.dumps(Function("another"))))
    assert copy == Function("another")


def unread(kind: type) -> object:
    """An object as Spark pickles it, with attributes that no one reads."""
    made: object = object.__new__(kind)
    made.__dict__["options"] = None
    return made


@pytest.mark.parametrize(
    "kind",
    [
        KafkaEosReader,
        KafkaEosStreamReader,
        KafkaEosStreamWriter,
        KafkaEosBatchWriter,
        StagingTask,
        ShufflingTask,
        QuerySchema,
    ],
)
def test_what_spark_pickles_for_a_task_acknowledges_when_it_is_unpickled(connected, kind) -> None:
    _, worker_end = connected
    pickled = CloudPickleSerializer().dumps(unread(kind))
    assert not worker_end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    in_a_worker(worker_end, lambda: CloudPickleSerializer().loads(pickled))
    assert worker_end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_outside_of_a_worker_and_over_a_unix_socket_nothing_is_changed(connected) -> None:
    assert not set_quickack()
    _, worker_end = connected
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not in_a_worker(ours, set_quickack)
    assert in_a_worker(worker_end, set_quickack)
    assert worker_end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_another_function_of_that_name_is_not_taken_for_the_daemon() -> None:
    def worker(sock: str) -> tuple[str, bool]:
        return sock, set_quickack()

    assert worker("no socket") == ("no socket", False)


def test_a_local_variable_that_is_no_socket_is_left_alone() -> None:
    assert not _daemon["worker"]("no socket", set_quickack)
