"""A real schema registry for tests: Apicurio, in memory, on loopback. It has Confluent's API beside its own."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from spark_kafka_eos.testing.jars import Bundle, Module, files
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.supervised import SupervisedProcesses

VERSION = "2.6.13.Final"  # the newest of version 2; version 3 needs Java 21
_APP = Module(
    organisation="io.apicurio", name="apicurio-registry-app", revision=VERSION, classifier="all", kind="tar.gz"
)
APICURIO = Bundle(name="apicurio-registry", version=VERSION, modules=(_APP,))
API = "/apis/ccompat/v7"
_START_S = 180.0


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """The URL of Confluent's API of a new, empty registry."""
    (archive,) = files(APICURIO)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (program,) = folder.glob("*-runner.jar")
    (port,) = free_ports(1)
    log = folder / "registry.log"
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-Xmx600m", "-XX:TieredStopAtLevel=1"]
    processes = SupervisedProcesses()
    server = processes.spawn([java(), *settings, "-jar", program], log=log)
    try:
        deadline = time.monotonic() + _START_S
        while not _answers(port):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)  # there is no event for a server that listens
        yield f"http://127.0.0.1:{port}{API}"
    finally:
        processes.close()
        server.wait()


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"{API}/subjects")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
