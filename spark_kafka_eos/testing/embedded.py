"""Runs a real Kafka (KRaft, combined mode) on this machine for tests, demos and benchmarks: one broker or three.

Not obvious:
- Nodes are identified by `node.id`, 1 to `brokers`: the ids of leaders and coordinators in metadata.
- A port that is free now may be another process's when a node binds it. So it is looked at again before the node is
  started, and who answers on it must be of this cluster.
- Nodes are ready when clients see them: the Metadata response of each started node contains all of them. Nodes learn
  of each other up to 0.3 s apart (4.3.1 and 3.9.1), and a client gives up requests to a node if another node does not
  know it yet.
- No process survives this one (see supervised.py). `close()` or a normal exit removes a temporary directory.
- `start()` after `kill()` or `stop()` uses the same data and ports. A new object with the same `directory` uses the
  same data, on new ports unless `port` is given.
- A node's log is `<directory>/node-<i>/broker.log`, with all of its starts. The error of a failed start quotes the
  log's warnings and errors, which may be a hundred lines before its end.
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

from spark_kafka_eos.errors import BrokerUnreachable, ToolFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.kraft import CONTROLLER, INTERNAL, Listeners, render, server_properties
from spark_kafka_eos.testing.ports import free_ports, is_free, listens
from spark_kafka_eos.testing.supervised import SupervisedProcesses

JVM_OPTIONS = (
    "-Xmx512m",
    # Measured: a start takes 2.4 s of CPU instead of 4.2 s; CPU per record is the same for the first millions.
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",  # else a thousand lines of settings per start
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)
# Java says nothing about an archive that does not fit its own release or the jars, and does without.
QUIET_ABOUT_ARCHIVES = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_ROUTINE = re.compile(r"\S+ \S+ INFO |\tat |\t\.\.\. ")
_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05
_WAIT_SECONDS = 0.5
_ANSWER_SECONDS = 20.0
_STOP_SECONDS = 20.0


class EmbeddedKafka:
    """One broker or a cluster of three. It is ready when `start()` returns, or when the `with` block begins.

    `version`: of `org.apache.kafka:kafka_2.13`, downloaded once (see jars.py). `directory`: for data and logs, which
    are kept; by default a temporary one. `config`: broker properties that override the defaults (kraft.py).
    `transaction_version`: the feature level to format with (KIP-890), by default the release's own. `port`: of the
    first node; the other nodes use free ports. `listeners`: additional listeners, named by their security protocol,
    with their properties (`{"SSL": {"ssl.keystore.type": "PEM", …}}`). `scram_users`: names and passwords that the
    first start adds to the cluster; the process list shows them, so do not use real secrets. Raises ToolFailed if
    Java, the download or the start fails.
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
        if (archive := jars.class_archive(version)).exists():
            self._jvm_options = (f"-XX:SharedArchiveFile={archive}", *QUIET_ABOUT_ARCHIVES, *jvm_options)
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
        """`host:port` of every node's plaintext listener, for `bootstrap.servers`."""
        return self.bootstrap_of(INTERNAL)

    def bootstrap_of(self, listener: str, nodes: Iterable[int] | None = None) -> str:
        """The same for another listener (a security protocol), or only for some nodes."""
        return ",".join(f"{_HOST}:{self._ports[listener][node]}" for node in nodes or self.nodes)

    # Nodes. Each method takes node ids; without any, it applies to all nodes.

    def start(self, *nodes: int) -> None:
        """Start those of `nodes` that do not run, and wait until they answer, which needs a majority of all nodes."""
        started = [node for node in nodes or self.nodes if not self.is_running(node)]
        self._log_begins |= {node: len(self.log(node)) for node in started}
        self._format(started)
        self._require_free_ports(started)
        for node in started:
            self._processes[node] = self._supervised.spawn(
                self._command("kafka.Kafka", self._properties_file(node)), log=self._log(node)
            )
        self._await_ready(started)

    def stop(self, *nodes: int) -> None:
        """Shut down cleanly with SIGTERM, and after 20 s with SIGKILL. Data is kept."""
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
        """Send SIGKILL: no shutdown and no flush, but the operating system's page cache is kept."""
        self._signal(signal.SIGKILL, nodes)
        for node in nodes or self.nodes:
            if node in self._processes:
                self._processes[node].wait()
            self._paused.discard(node)

    def restart(self, *nodes: int) -> None:
        """Stop cleanly, start, and wait until the nodes answer."""
        self.stop(*nodes)
        self.start(*nodes)

    def pause(self, *nodes: int) -> None:
        """Send SIGSTOP and wait until the nodes have stopped: sockets stay open, and nothing answers, as in a long
        garbage collection.
        """
        self._signal(signal.SIGSTOP, nodes)
        for node in nodes or self.nodes:
            if self.is_running(node):
                os.waitid(os.P_PID, self.pid(node), os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # leaves the state to Popen
                self._paused.add(node)

    def resume(self, *nodes: int) -> None:
        """Send SIGCONT: the end of a pause. Use `await_ready` to wait until the nodes are in the cluster again."""
        self._signal(signal.SIGCONT, nodes)
        self._paused.difference_update(nodes or self.nodes)

    def await_ready(self) -> None:
        """Wait until metadata contains every node that runs unpaused. Raises ToolFailed after `start_timeout`."""
        self._await_ready([node for node in self.nodes if self.is_running(node) and node not in self._paused])

    def wait(self) -> None:
        """Wait until the process of a started node ends, then raise ToolFailed."""
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
        """The node's log so far, of all its starts."""
        return self._log(node).read_text(errors="replace") if self._log(node).exists() else ""

    def close(self) -> None:
        """Stop every node and remove a temporary directory. The object cannot be used afterwards."""
        if self._release.alive:
            if self._temporary:
                self.kill()
            else:
                self.stop()
            self._release()

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        """Create a topic with a replica on every node (three at most), wait until each partition has a leader, and
        return its name.
        """
        self.create_topics([name], partitions, config)
        return name

    def create_topics(
        self, names: Sequence[str], partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create several equal topics at once, and wait until each partition has a leader."""
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
        """Delete a topic and wait until metadata no longer contains it."""
        self.delete_topics([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete several topics at once and wait until metadata no longer contains them."""
        with self._admin(f"topic {_some(names)} could not be deleted") as admin:
            for deleted in admin.delete_topics(list(names), operation_timeout=self._start_timeout).values():
                deleted.result()
            gone = f"topic {_some(names)} still exists"
            self._await(admin, lambda: not admin.list_topics(timeout=_ANSWER_SECONDS).topics.keys() & set(names), gone)

    def topics(self) -> list[str]:
        """The names of all topics, without the internal ones (`__…`)."""
        with self._admin("the topics could not be listed") as admin:
            return sorted(
                name for name in admin.list_topics(timeout=_ANSWER_SECONDS).topics if not name.startswith("__")
            )

    # Implementation.

    def _folder(self, node: int) -> Path:
        return self.directory / f"node-{node}"

    def _properties_file(self, node: int) -> Path:
        return self._folder(node) / "server.properties"

    def _log(self, node: int) -> Path:
        return self._folder(node) / "broker.log"

    def _command(self, main: str, *arguments: str | Path) -> list[str | Path]:
        return [self._java, *self._jvm_options, "-cp", self._class_path, main, *arguments]

    def _format(self, nodes: Sequence[int]) -> None:
        """Write each node's properties, and format the log directories of nodes without data, in parallel, because each
        takes the start of a JVM.
        """
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
        # One argument, because an id may begin with a dash and would then look like an option.
        arguments: list[str | Path] = [f"--cluster-id={self._cluster_id()}", "-c", self._properties_file(node)]
        if self._transaction_version is not None:
            arguments += ["--feature", f"transaction.version={self._transaction_version}"]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for name, password in self._scram_users.items():
                arguments += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        return arguments

    def _cluster_id(self) -> str:
        """The directory's cluster id, created on first use."""
        file = self.directory / "cluster.id"
        if not file.exists():
            file.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return file.read_text()

    def _require_free_ports(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            for port in (by_node[node] for by_node in self._ports.values()):
                if not is_free(port):
                    raise ToolFailed(
                        f"Kafka {self.version}, node {node}, was not started: another process uses its port {port}",
                        action="End that process, or use another EmbeddedKafka, on other ports (with the same "
                        "`directory`, if the data is needed).",
                    )

    def _await_ready(self, nodes: Sequence[int]) -> None:
        if not nodes:
            return
        deadline = time.monotonic() + self._start_timeout
        for node in nodes:  # ask each node: one that does not know another yet would hide it from the next client
            port = self._ports[INTERNAL][node]
            with Cluster(ClientOptions(bootstrap_servers=((_HOST, port),), request_timeout_ms=1_000)) as cluster:
                # The client says that it cannot connect, which here is no news.
                while missing := set(nodes) - (self._known_to(cluster, port) if listens(port) else set()):
                    for started in nodes:
                        if not self.is_running(started):
                            raise self._failure(started, f"it exited with code {self._processes[started].returncode}")
                    if time.monotonic() > deadline:
                        raise self._failure(min(missing), f"it does not answer after {self._start_timeout:g} s")
                    time.sleep(_POLL_SECONDS)  # there is no event for a broker that listens, or that knows another

    def _known_to(self, cluster: Cluster, port: int) -> set[int]:
        """The node ids in metadata: registered and not fenced. Empty if the broker does not answer. Raises ToolFailed
        if it is another cluster's.
        """
        try:
            answered, nodes = cluster.cluster_id(), set(cluster.nodes())
        except BrokerUnreachable:
            return set()
        if answered != self._cluster_id():
            raise ToolFailed(
                f"port {port} belongs to another cluster ({answered})",
                action="Choose another port, or omit it to use a free one.",
            )
        return nodes

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
        relevant = [line for line in lines if not _ROUTINE.match(line)]
        return "\n".join(f"  {line}" for line in (relevant or lines)[-30:]) or "  (empty)"

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
    """Kill and reap the remaining processes, and remove the temporary directory."""
    if os.getpid() != owner:  # the end of a forked process must not end the broker
        return
    supervised.close()
    for process in processes.values():
        process.wait()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _quiet_admin(bootstrap: str) -> AdminClient:
    """A client that reconnects often and does not log unreachable brokers."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def _leaders(admin: AdminClient, topics: Sequence[str]) -> int:
    """The number of partitions of the topics that have a leader."""
    described = admin.list_topics(timeout=_ANSWER_SECONDS).topics
    led = (described[topic].partitions.values() for topic in topics if topic in described)
    return sum(partition.leader >= 0 for partitions in led for partition in partitions)


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
