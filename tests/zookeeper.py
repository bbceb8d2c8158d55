"""A broker with ZooKeeper, on loopback. With inter.broker.protocol.version 2.8 or older it writes the message formats
before Kafka 0.11 (`message.format.version`), which no broker with KRaft does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.listening import listens

SECONDS = 60
JVM = ("-XX:TieredStopAtLevel=1", "-Xmx256m")


@contextmanager
def serve(folder: Path, version: str, jvm: Sequence[str] = JVM, /, **config: object) -> Iterator[str]:
    """Start them in `folder`; yields the broker's `host:port`. `config`: its properties, with _ for each dot."""
    client_port, port = free_ports(2)
    settings = {
        "zoo": {
            "tickTime": 500,
            "dataDir": folder / "zookeeper",
            "clientPort": client_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        },
        "broker": {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"127.0.0.1:{client_port}",
            "zookeeper.connection.timeout.ms": SECONDS * 1000,  # it may start before ZooKeeper answers
            "log.dirs": folder / "log",
            "log.dir": folder / "log",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
        }
        | {name.replace("_", "."): value for name, value in config.items()},
    }
    for name, properties in settings.items():
        (folder / name).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    processes = SupervisedProcesses()
    try:
        command: list[str | Path] = [java(), *jvm, "-cp", jars.class_path(version)]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        started = [
            processes.spawn([*command, main, folder / "zoo"], log=folder / "zoo.log"),
            processes.spawn([*command, "kafka.Kafka", folder / "broker"], log=folder / "broker.log"),
        ]
        _await(started[1], port, folder / "broker.log")
        yield f"127.0.0.1:{port}"
        started[1].terminate()  # a killed one is not soon forgotten by ZooKeeper, and the next one has its id
        started[1].wait(SECONDS)
    finally:
        processes.close()
        for process in started:
            process.wait()


def _await(broker: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not listens(broker.pid, port):
        assert broker.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.05)  # there is no event for a server that listens
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.max.ms": 100, "log_level": 0})
    while True:
        try:
            if admin.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            assert time.monotonic() < deadline, log.read_text()[-4000:]
