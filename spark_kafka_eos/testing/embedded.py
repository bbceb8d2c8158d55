"""A real Kafka (KRaft, combined mode) on this machine for tests, demos and benchmarks: one broker or three.

Not obvious:
- Nodes are identified by `node.id`, 1 to `brokers`: the ids of leaders and coordinators in metadata.
- Nodes are ready when a client sees them: the Metadata response of each started node contains all of them. Nodes learn
  of each other up to 0.3 s apart (4.3.1 and 3.9.1), and a client drops its requests to a node that another one lacks.
- Nothing survives this process (see supervised.py); a temporary directory is removed by `close()` or at a normal exit.
- `start()` after `kill()` or `stop()` finds the same data and ports. A new object given the same `directory` finds the
  data, on new ports unless `port` is given.
- A node's log is `<directory>/node-<i>/broker.log`, all its starts together; a failed start's error ends with its
  warnings and errors, which lie a hundred lines before its end.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.errors import BrokerUnreachable, ToolFailed
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.kraft import CONTROLLER, INTERNAL, Listeners, render, server_properties
from spark_kafka_eos.testing.ports import free_ports, is_free
from spark_kafka_eos.testing.supervised import SupervisedProcesses

JVM_OPTIONS = (
    "-Xmx512m",
    # Measured: 2.4 s of CPU to start instead of 4.2, and no more of it per record over the first millions.
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",  # a thousand lines of settings at each start
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)
_IN_PASSING = re.compile(r"\S+ \S+ INFO |\tat |\t\.\.\. ")
_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05
_WAIT_SECONDS = 0.5
_ANSWER_SECONDS = 20.0
_STOP_SECONDS = 20.0


class EmbeddedKafka:
    """A broker, or a cluster of three, that answers once `start()` or the `with` statement returns.

    `version`: of `org.apache.kafka:kafka_2.13`, fetched once (see jars.py). `directory`: where data and logs lie and
    stay; a temporary one by default. `config`: broker properties that override the ones chosen here (kraft.py).
    `transaction_version`: the feature to format with (KIP-890), by default the release's own. `port`: of the first
    node; the others take free ones. `listeners`: more of them, next to the plain one, named by their security protocol,
    each with its properties (`{"SSL": {"ssl.keystore.type": "PEM", …}}`). `scram_users`: names and passwords that the
    first start puts into the cluster (not for secrets: the process list shows them). Raises ToolFailed when Java, the
    download or the start fails.
    """

    def __init__(
        self,
        version: str = jars.DEFAULT_VERSION,
        *,
        brokers: int = 1,
        directory: str | os.PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        transaction_version: int | None = None,
        listeners: Listeners | None = None,
        scram_users: Mapping[str, str] | None = None,
        port: int | None = None,
        jvm_options: Sequence[str] = JVM_OPTIONS,
        start_timeout: float = 60.0,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        if port is not None and not is_free(port):
            raise ToolFailed(f"port {port} is in use", action="Choose another port, or omit it to use a free one.")
        self.version = version
        self.nodes: Sequence[int] = range(1, brokers + 1)
        self._config = dict(config or {})
        self._transaction_version = transaction_version
        self._listeners = dict(listeners or {})
        self._scram_users = dict(scram_users or {})
        self._jvm_options = tuple(jvm_options)
        self._start_timeout = start_timeout
        self._class_path = jars.class_path(version)
        self._java = java()

        names = (INTERNAL, *self._listeners, CONTROLLER)
        free = free_ports(len(names) * brokers, exclude=frozenset() if port is None else frozenset({port}))
        if port is not None:
            free[0] = port
        self._ports = {name: dict(zip(self.nodes, free[at * brokers :], strict=False)) for at, name in enumerate(names)}
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="kafka-eos-") if directory is None else directory).absolute()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()
        self._log_begins: dict[int, int] = {}  # where in a node's log its last start begins
        self._supervised = SupervisedProcesses()
        self._release = weakref.finalize(
            self, _release, os.getpid(), self._supervised, self._processes, self.directory if self._temporary else None
        )

    def __repr__(self) -> str:
        return f"EmbeddedKafka({self.version!r}, brokers={len(self.nodes)}, bootstrap={self.bootstrap!r})"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node's plain listener, as `bootstrap.servers` takes it."""
        return self.bootstrap_of(INTERNAL)

    def bootstrap_of(self, listener: str, nodes: Iterable[int] | None = None) -> str:
        """The same for another listener (a security protocol), or for some nodes only."""
        return ",".join(f"{_HOST}:{self._ports[listener][node]}" for node in nodes or self.nodes)

    # Nodes. Each method takes node ids; none named means all of them.

    def start(self, *nodes: int) -> None:
        """Start what does not run of `nodes` and wait until they answer. A majority must be up for that."""
        started = [node for node in nodes or self.nodes if not self.is_running(node)]
        self._log_begins |= {node: len(self.log(node)) for node in started}
        self._format(started)
        for node in started:
            self._processes[node] = self._supervised.spawn(
                self._command("kafka.Kafka", self._properties_file(node)), log=self._log(node)
            )
        self._await_ready(started)

    def stop(self, *nodes: int) -> None:
        """Shut down cleanly: SIGTERM, and SIGKILL for what is still there after 20 s. Data stays."""
        self.resume(*nodes)
        self._signal(signal.SIGTERM, nodes)
        deadline = time.monotonic() + _STOP_SECONDS
        for node in nodes or self.nodes:
            if node in self._processes:
                try:
                    self._processes[node].wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self.kill(node)

    def kill(self, *nodes: int) -> None:
        """SIGKILL: no shutdown, no flush; what the operating system holds in its page cache stays."""
        self._signal(signal.SIGKILL, nodes)
        for node in nodes or self.nodes:
            if node in self._processes:
                self._processes[node].wait()
            self._paused.discard(node)

    def restart(self, *nodes: int) -> None:
        """A clean bounce: stop, start, and wait until they answer."""
        self.stop(*nodes)
        self.start(*nodes)

    def pause(self, *nodes: int) -> None:
        """SIGSTOP: sockets stay open and nothing answers, as in a long garbage collection. Returns once it holds."""
        self._signal(signal.SIGSTOP, nodes)
        for node in nodes or self.nodes:
            if self.is_running(node):
                os.waitid(os.P_PID, self.pid(node), os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # takes nothing from Popen
                self._paused.add(node)

    def resume(self, *nodes: int) -> None:
        """SIGCONT: the end of a pause. Does not wait for the node to be in the cluster again: `await_ready` does."""
        self._signal(signal.SIGCONT, nodes)
        self._paused.difference_update(nodes or self.nodes)

    def await_ready(self) -> None:
        """Wait until metadata names every node that runs and is not paused. Raises ToolFailed after `start_timeout`."""
        self._await_ready([node for node in self.nodes if self.is_running(node) and node not in self._paused])

    def wait(self) -> None:
        """Wait until the process of a started node ends, by itself or killed by someone. Raises ToolFailed then."""
        while True:
            for node, process in self._processes.items():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_WAIT_SECONDS)
                    raise ToolFailed(
                        f"Kafka {self.version}, node {node}, exited with code {process.returncode}",
                        action=f"From its log:\n{self._tail(node)}",
                    )

    def is_running(self, node: int = 1) -> bool:
        """Whether the node's process is alive (a paused one is)."""
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def pid(self, node: int = 1) -> int:
        """The process id of a node that was started."""
        return self._processes[node].pid

    def log(self, node: int = 1) -> str:
        """What the node logged so far, all its starts together."""
        return self._log(node).read_text(errors="replace") if self._log(node).exists() else ""

    def close(self) -> None:
        """Stop every node and remove a temporary directory. The object is of no more use."""
        if self._release.alive:
            if self._temporary:
                self.kill()
            else:
                self.stop()
            self._release()

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        """Create a topic replicated to every node, wait until each partition has a leader, return its name."""
        self.create_topics([name], partitions, config)
        return name

    def create_topics(
        self, names: Sequence[str], partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create several topics that are alike at once, and wait until each partition has a leader."""
        topics = [
            NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=min(len(self.nodes), 3),
                config={key: str(value) for key, value in (config or {}).items()},
            )
            for name in names
        ]
        with self._admin(f"topic {_some(names)} could not be created") as admin:
            for created in admin.create_topics(topics, operation_timeout=self._start_timeout).values():
                created.result()
            led = partitions * len(names)
            self._await(admin, lambda: _leaders(admin, names) == led, f"topic {_some(names)} lacks leaders")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until metadata no longer shows it."""
        self.delete_topics([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete several topics at once and wait until metadata no longer shows any."""
        with self._admin(f"topic {_some(names)} could not be deleted") as admin:
            for deleted in admin.delete_topics(list(names), operation_timeout=self._start_timeout).values():
                deleted.result()
            gone = f"topic {_some(names)} is still there"
            self._await(admin, lambda: not admin.list_topics(timeout=_ANSWER_SECONDS).topics.keys() & set(names), gone)

    def topics(self) -> list[str]:
        """The names of all topics, without the internal ones (`__…`)."""
        with self._admin("the topics could not be listed") as admin:
            return sorted(
                name for name in admin.list_topics(timeout=_ANSWER_SECONDS).topics if not name.startswith("__")
            )

    # How it is done.

    def _folder(self, node: int) -> Path:
        return self.directory / f"node-{node}"

    def _properties_file(self, node: int) -> Path:
        return self._folder(node) / "server.properties"

    def _log(self, node: int) -> Path:
        return self._folder(node) / "broker.log"

    def _command(self, main: str, *arguments: str | Path) -> list[str | Path]:
        return [self._java, *self._jvm_options, "-cp", self._class_path, main, *arguments]

    def _format(self, nodes: Sequence[int]) -> None:
        """Write each node's properties; give those without data a formatted, empty log directory. All at once: JVMs."""
        formatting: dict[int, subprocess.Popen[bytes]] = {}
        for node in nodes:
            data = self._folder(node) / "data"
            self._folder(node).mkdir(parents=True, exist_ok=True)
            properties = server_properties(
                node, ports=self._ports, data=data, config=self._config, listeners=self._listeners
            )
            self._properties_file(node).write_text(render(properties))
            if not (data / "meta.properties").exists():
                formatting[node] = self._supervised.spawn(
                    self._command("kafka.tools.StorageTool", "format", *self._format_arguments(node)),
                    log=self._log(node),
                )
        for node, process in formatting.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._start_timeout)
            if process.returncode != 0:
                raise self._failure(node, "its log directory could not be formatted")

    def _format_arguments(self, node: int) -> list[str | Path]:
        # In one argument: an id may begin with a dash, which would be taken for an option.
        arguments: list[str | Path] = [f"--cluster-id={self._cluster_id()}", "-c", self._properties_file(node)]
        if self._transaction_version is not None:
            arguments += ["--feature", f"transaction.version={self._transaction_version}"]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for name, password in self._scram_users.items():
                arguments += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        return arguments

    def _cluster_id(self) -> str:
        """The directory's cluster id, made up at its first use."""
        file = self.directory / "cluster.id"
        if not file.exists():
            file.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return file.read_text()

    def _await_ready(self, nodes: Sequence[int]) -> None:
        if not nodes:
            return
        deadline = time.monotonic() + self._start_timeout
        for asked in nodes:  # each of them: one that has not heard of another would deny it to the next client
            address = _HOST, self._ports[INTERNAL][asked]
            with Cluster(ClientOptions(bootstrap_servers=(address,), request_timeout_ms=1_000)) as cluster:
                while missing := set(nodes) - _known_to(cluster):
                    for node in nodes:
                        if not self.is_running(node):
                            raise self._failure(node, f"it exited with code {self._processes[node].returncode}")
                    if time.monotonic() > deadline:
                        raise self._failure(min(missing), f"it does not answer after {self._start_timeout:g} s")
                    time.sleep(_POLL_SECONDS)  # nothing tells when a broker listens, or has heard of another

    @contextlib.contextmanager
    def _admin(self, otherwise: str) -> Iterator[AdminClient]:
        try:
            with _quiet_admin(self.bootstrap) as admin:
                yield admin
        except KafkaException as error:
            raise ToolFailed(f"{otherwise}: {error.args[0].str()}") from error

    def _await(self, admin: AdminClient, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not condition():
            if time.monotonic() > deadline:
                raise ToolFailed(
                    f"{otherwise} after {self._start_timeout:g} s", action=f"See the logs in {self.directory}."
                )
            admin.poll(_POLL_SECONDS)

    def _failure(self, node: int, why: str) -> ToolFailed:
        return ToolFailed(
            f"Kafka {self.version}, node {node}, did not start: {why}",
            action=f"From its log:\n{self._tail(node)}",
        )

    def _tail(self, node: int) -> str:
        lines = self.log(node)[self._log_begins.get(node, 0) :].splitlines()
        telling = [line for line in lines if not _IN_PASSING.match(line)]
        return "\n".join(f"  {line}" for line in (telling or lines)[-30:]) or "  (empty)"

    def _signal(self, number: signal.Signals, nodes: Sequence[int]) -> None:
        for node in nodes or self.nodes:
            if self.is_running(node):
                self._processes[node].send_signal(number)


def _release(
    owner: int,
    supervised: SupervisedProcesses,
    processes: Mapping[int, subprocess.Popen[bytes]],
    directory: Path | None,
) -> None:
    """Kill and reap what is left, remove the temporary directory."""
    if os.getpid() != owner:  # a fork that ends must not take the broker along
        return
    supervised.close()
    for process in processes.values():
        process.wait()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _quiet_admin(bootstrap: str) -> AdminClient:
    """A client that keeps trying, often, and does not print that a broker is not there yet."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def _known_to(cluster: Cluster) -> set[int]:
    """The node ids in metadata: registered, not fenced. None while the broker is silent."""
    try:
        return set(cluster.nodes())
    except BrokerUnreachable:
        return set()


def _leaders(admin: AdminClient, topics: Sequence[str]) -> int:
    """How many partitions of the topics have a leader."""
    found = admin.list_topics(timeout=_ANSWER_SECONDS).topics
    led = (found[topic].partitions.values() for topic in topics if topic in found)
    return sum(partition.leader >= 0 for partitions in led for partition in partitions)


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
