"""Spark Connect with the server in a process of its own: client, server or the server's Python is killed, queries are
stopped, and two clients use one server. Each record is there once, after all of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests import held
from tests.connect_server import ConnectServer
from tests.producing import produce
from tests.reading import await_stable, read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "jobs" / "connect_copy.py"
RECORDS, BATCH = 4_000, 1_000
SECONDS = 180
WAYS = ("sink", "foreach", "arrow")
KILLS = [
    Kill(point="before append", batch=0),
    Kill(point="half appended", batch=1),
    Kill(point="offsets committed", batch=2),
    Kill(point="ended", batch=3),
]
HALF = Kill(point="half appended", batch=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A query of `JOB` by one way, with topics, checkpoint and transactional.id of its own. `held` is its failpoint's
    folder.
    """

    kafka: EmbeddedKafka
    folder: Path
    way: str
    source: str
    target: str

    @property
    def held(self) -> Path:
        return self.folder / "held"

    @property
    def stop(self) -> Path:
        """The query is stopped when this is there."""
        return self.folder / "stop"

    def arguments(self, checkpoint: str = "checkpoint") -> list[str]:
        where = [self.kafka.bootstrap, self.source, self.target, str(self.folder / checkpoint)]
        return [*where, self.way, str(BATCH), self.target, str(self.stop)]

    def server(self, kill: Kill | None = None, *, port: int | None = None, name: str = "server") -> ConnectServer:
        """A new server whose Python is held at the failpoint."""
        env: Mapping[str, str] = {}
        if kill is not None:
            self.held.mkdir(exist_ok=True)
            (self.held / "reached").unlink(missing_ok=True)
            env = kill.environment(self.held)
        return ConnectServer(self.folder / f"{name}.log", env=env, port=port)

    def client(self, server: ConnectServer, name: str = "client", checkpoint: str = "checkpoint") -> Driver:
        return server.client(JOB, self.arguments(checkpoint), log=self.log(name))

    def log(self, name: str = "client") -> Path:
        return self.folder / f"{name}.log"

    def await_held(self, client: Driver) -> None:
        client.wait_until(lambda: held.reached(self.held), timeout=SECONDS)

    def batches(self) -> int:
        return committed_batches(self.folder / "checkpoint")

    def written(self) -> list[int]:
        return sorted(int(message.value() or b"") for message in read_committed(self.kafka.bootstrap, self.target))

    def finish(self, server: ConnectServer, name: str = "last") -> None:
        """Start the query on this server, to its end: then each record is there once."""
        with self.client(server, name) as last:
            last.wait(timeout=SECONDS)
        assert self.written() == list(range(RECORDS))
        assert self.batches() == RECORDS // BATCH


@pytest.fixture
def copy(kafka: EmbeddedKafka, tmp_path: Path) -> Callable[[str], Copy]:
    """Makes a query of a way."""

    def made(way: str) -> Copy:
        folder = tmp_path / way
        folder.mkdir()
        source = kafka.create_topic(f"connect-from-{tmp_path.name}-{way}", 2)
        for partition in (0, 1):
            values = [b"%d" % number for number in range(partition, RECORDS, 2)]
            produce(kafka.bootstrap, source, values, partition=partition)
        target = kafka.create_topic(f"connect-to-{tmp_path.name}-{way}", 3)
        return Copy(kafka=kafka, folder=folder, way=way, source=source, target=target)

    return made


@pytest.mark.parametrize("way", WAYS)
def test_a_query_goes_on_without_its_client_and_a_restart_finds_it_done(copy, way) -> None:
    query = copy(way)
    with query.server(HALF) as server:
        with query.client(server) as client:
            query.await_held(client)
            assert client.kill() == 1, "the client is one process"
        assert query.batches() == 1
        held.release(query.held)
        server.driver.wait_until(lambda: query.batches() == RECORDS // BATCH, timeout=SECONDS)
        query.finish(server)


@pytest.mark.parametrize(
    ("way", "first"), [*((way, "is killed") for way in WAYS), ("sink", "waits"), ("foreach", "waits")]
)
def test_a_second_client_of_a_query_stops_the_run_that_is_there_and_goes_on(copy, way, first) -> None:
    query = copy(way)
    with query.server(HALF) as server, query.client(server) as client:
        query.await_held(client)
        if first == "is killed":
            client.kill()
        with query.client(server, "second") as second:
            second.wait_until(lambda: "Stopping existing streaming query" in server.log.read_text(), timeout=SECONDS)
            if way == "sink":  # Spark waits for its process, and kills that of foreachBatch
                held.release(query.held)
            second.wait(timeout=SECONDS)
        if first == "waits":
            client.wait(timeout=SECONDS)
            assert query.log().read_text().endswith("ended\n"), "without an error"
        assert query.written() == list(range(RECORDS))
        assert query.batches() == RECORDS // BATCH


@pytest.mark.parametrize("way", WAYS)
def test_a_server_killed_in_every_state_of_a_transaction_is_restarted_and_each_record_is_there_once(copy, way) -> None:
    query = copy(way)
    port = None
    for kill in KILLS:
        with query.server(kill, port=port, name=f"server-{kill.batch}") as server:
            port = server.port
            with query.client(server, f"client-{kill.batch}") as client:
                query.await_held(client)
                assert query.batches() == kill.batch, "Spark had not noted the batch"
                assert server.driver.kill() >= 2, "the JVM and at least one Python process were alive"
        if kill.point == "ended":  # from the others a transaction is still open
            await_stable(query.kafka.bootstrap, query.target)
    with query.server(port=port) as server:
        query.finish(server)


def test_a_client_whose_server_was_restarted_ends_with_sparks_error_for_it(copy) -> None:
    query = copy("foreach")
    with query.server(HALF) as server:
        client = query.client(server)
        query.await_held(client)
    ends = pytest.raises(ToolFailed, match="ended with exit code 1\\b")
    with client, query.server(port=server.port, name="second"), ends:
        client.wait(timeout=SECONDS)
    assert "[NO_ACTIVE_SESSION]" in query.log().read_text()


@pytest.mark.parametrize("way", WAYS)
def test_the_servers_python_is_killed_and_the_query_says_so_and_a_restart_is_exact(copy, way) -> None:
    query = copy(way)
    with query.server(HALF) as server:
        with query.client(server) as client:
            query.await_held(client)
            worker = psutil.Process(int((query.held / "reached").read_text()))
            assert any(parent.pid == server.driver.pid for parent in worker.parents())
            worker.kill()
            with pytest.raises(ToolFailed, match="ended with exit code 1\\b"):
                client.wait(timeout=SECONDS)
        assert "Python worker exited unexpectedly (crashed)" in query.log().read_text()
        assert query.batches() == 1
        query.finish(server)


@pytest.mark.parametrize("way", WAYS)
def test_stop_in_the_middle_of_an_append_completes_the_sinks_batch_and_kills_that_of_foreach_batch(copy, way) -> None:
    query = copy(way)
    with query.server(HALF) as server:
        with query.client(server) as client:
            query.await_held(client)
            query.stop.touch()
            client.wait_until(lambda: "stopping" in query.log().read_text(), timeout=SECONDS)
            let_stop_go_on(query, client)
            client.wait(timeout=SECONDS)
        assert query.log().read_text().endswith("ended\n")
        assert is_open(query) == (way != "sink")
        query.stop.unlink()
        query.finish(server)


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_gets_sigterm_lets_the_batch_end_and_then_stops_its_query(copy, way) -> None:
    query = copy(way)
    with query.server(Kill(point="half appended", batch=RECORDS // BATCH - 1)) as server:
        with query.client(server) as client:
            query.await_held(client)
            os.kill(client.pid, signal.SIGTERM)
            client.wait_until(lambda: "the driver received SIGTERM" in query.log().read_text(), timeout=SECONDS)
            held.release(query.held)
            with pytest.raises(ToolFailed, match="ended with exit code -15"):
                client.wait(timeout=SECONDS)
        assert not is_open(query)
        assert query.written() == list(range(RECORDS))
        query.finish(server)


def let_stop_go_on(query: Copy, client: Driver) -> None:
    """Spark waits for the process of the sink, which is released, and kills that of foreachBatch."""
    if query.way == "sink":
        held.release(query.held)
    else:
        pid = int((query.held / "reached").read_text())
        client.wait_until(lambda: not psutil.pid_exists(pid), timeout=SECONDS)


def test_two_clients_run_two_queries_side_by_side(copy) -> None:
    one, other = copy("foreach"), copy("sink")
    with one.server() as server, one.client(server) as first, other.client(server) as second:
        first.wait(timeout=SECONDS)
        second.wait(timeout=SECONDS)
    assert one.written() == other.written() == list(range(RECORDS))


@pytest.mark.parametrize("way", WAYS)
def test_a_second_client_with_another_checkpoint_is_refused_while_the_first_one_works(copy, way) -> None:
    query = copy(way)
    with query.server(HALF) as server, query.client(server) as client:
        query.await_held(client)
        ends = pytest.raises(ToolFailed, match="ended with exit code 90")
        with query.client(server, "second", checkpoint="other") as second, ends:
            second.wait(timeout=SECONDS)
        assert "LedgerRefused" in query.log("second").read_text()
        held.release(query.held)
        client.wait(timeout=SECONDS)
    assert query.written() == list(range(RECORDS))


@pytest.mark.parametrize("way", WAYS)
def test_two_servers_with_one_query_write_each_record_once_and_the_late_client_must_not_restart(copy, way) -> None:
    query = copy(way)
    with query.server(HALF) as server, query.client(server) as late:
        query.await_held(late)
        with query.server(name="other") as other:
            query.finish(other)
        held.release(query.held)
        with pytest.raises(ToolFailed, match="ended with exit code 90"):
            late.wait(timeout=SECONDS)
    assert query.written() == list(range(RECORDS))


def is_open(query: Copy) -> bool:
    """Whether a transaction of the query's transactional.id is open."""
    options = {"kafka.bootstrap.servers": query.kafka.bootstrap, "kafka.transactional.id": query.target}
    with Cluster(sink_options(options | {"topic": query.target}).client) as cluster:
        found = describe.transaction(cluster, query.target, now_ms=0)
    assert isinstance(found, TransactionFacts)
    return found.is_open
