"""A real schema registry for tests: Apicurio, in memory, on loopback. It has Confluent's API beside its own."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from spark_kafka_eos.testing.jars import Bundle, Module, files
from spark_kafka_eos.testing.java import java, major_version
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.listening import listens

VERSION_2, VERSION_3 = "2.6.13.Final", "3.3.3"
API, OWN_API = "/apis/ccompat/v7", "/apis/registry/v2"
_JAVA_OF_3 = 21
_JAVA_HOMES = Path("/usr/lib/jvm")
_START_S = 180.0


def _server(version: str) -> Bundle:
    app = Module(
        organisation="io.apicurio", name="apicurio-registry-app", revision=version, classifier="all", kind="tar.gz"
    )
    return Bundle(name="apicurio-registry", version=version, modules=(app,))


# Of version 2, whose serializers write other bytes by default than Confluent's. They run against version 3, too.
_SERIALIZERS = Bundle(
    name="apicurio-serializers",
    version=VERSION_2,
    modules=(
        Module(organisation="io.apicurio", name="apicurio-registry-serdes-avro-serde", revision=VERSION_2),
        Module(organisation="org.slf4j", name="slf4j-nop", revision="2.0.6"),
    ),
)


@contextmanager
def apicurio(folder: Path, version: str = VERSION_2, settings: Sequence[str] = ()) -> Iterator[str]:
    """The URL of Confluent's API of a new, empty registry. `settings` are "name=value"."""
    (archive,) = files(_server(version))
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (program,) = [*folder.glob("*-runner.jar"), *folder.glob("quarkus-run.jar")]
    port, management = free_ports(2)
    log = folder / "registry.log"
    properties = [
        f"quarkus.http.port={port}",
        "quarkus.http.host=127.0.0.1",
        f"quarkus.management.port={management}",
        "quarkus.management.host=127.0.0.1",
        *settings,
    ]
    options = ["-Xmx600m", "-XX:TieredStopAtLevel=1", *(f"-D{setting}" for setting in properties)]
    processes = SupervisedProcesses()
    server = processes.spawn([_java_for(version), *options, "-jar", program], log=log)
    try:
        deadline = time.monotonic() + _START_S
        while not (listens(server.pid, port) and _answers(port)):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)  # there is no event for a server that listens
        yield f"http://127.0.0.1:{port}{API}"
    finally:
        processes.close()
        server.wait()


def _java_for(version: str) -> Path:
    """The Java of Spark; for version 3 a newer one, that of `APICURIO_JAVA_HOME` or where Debian puts them."""
    if version.startswith("2."):
        return java()
    homes = (
        [Path(os.environ["APICURIO_JAVA_HOME"])]
        if "APICURIO_JAVA_HOME" in os.environ
        else sorted(_JAVA_HOMES.glob("*"))
    )
    for program in (home / "bin" / "java" for home in homes):
        if not program.exists():
            continue
        told = subprocess.run([program, "-version"], check=True, capture_output=True, text=True).stderr
        if (major_version(told) or 0) >= _JAVA_OF_3:
            return program
    raise AssertionError(
        f"Apicurio 3 needs Java {_JAVA_OF_3} or later: apt-get install openjdk-{_JAVA_OF_3}-jre-headless, or set "
        f"APICURIO_JAVA_HOME to one"
    )


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"{API}/subjects")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def serialized(url: str, topic: str, schema: str, *settings: str) -> list[tuple[bytes, dict[str, bytes]]]:
    """Value and headers of a record as Apicurio's own serializer for Avro writes it, with each of the `settings`, such
    as "a=b c=d". `schema` is that of a record whose fields `by` and `cents` are null and 1234.
    """
    source = Path(__file__).parent / "unit" / "registry" / "ApicurioRecords.java"
    command: list[str | Path] = [java(), "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, files(_SERIALIZERS)))]
    arguments = [url.replace(API, OWN_API), topic, schema, *settings]
    run = subprocess.run([*command, source, *arguments], check=True, capture_output=True, text=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
    return [
        (bytes.fromhex(line["value"]), {name: bytes.fromhex(value) for name, value in line["headers"].items()})
        for line in lines
    ]
