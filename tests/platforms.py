"""Programs that read topics until they are ended: Kafka Connect, MirrorMaker, Kafka Streams, and Apache Flink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.supervised import SupervisedProcesses

KAFKA = "4.3.1"  # the latest release with connect-file and connect-mirror
FLINK, FLINK_CONNECTOR = "2.2.1", "5.0.0-2.2"
CONNECT, MIRROR_MAKER = "org.apache.kafka.connect.cli.ConnectStandalone", "org.apache.kafka.connect.mirror.MirrorMaker"
# What Flink needs of Java 17, as in its own configuration (env.java.opts.all).
OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.time")]


def of_kafka() -> jars.Bundle:
    """Connect with its file sink, MirrorMaker and Streams."""
    names = ("connect-runtime", "connect-file", "connect-mirror")
    modules = [jars.Module(organisation="org.apache.kafka", name=name, revision=KAFKA) for name in names]
    streams = jars.Module(organisation="org.apache.kafka", name="kafka-streams", revision=KAFKA, alone=True)
    return jars.Bundle(name="kafka-connect", version=KAFKA, modules=(*modules, streams, _LOGGING))


def of_flink() -> jars.Bundle:
    """Flink with its Kafka connector."""
    versions = {
        "flink-streaming-java": FLINK,
        "flink-clients": FLINK,
        "flink-connector-kafka": FLINK_CONNECTOR,
        "flink-connector-base": FLINK,
    }
    modules = [
        jars.Module(organisation="org.apache.flink", name=name, revision=version) for name, version in versions.items()
    ]
    return jars.Bundle(name="flink", version=FLINK, modules=(*modules, _LOGGING))


_LOGGING = jars.Module(organisation="org.slf4j", name="slf4j-simple", revision="1.7.36")


@contextmanager
def running(bundle: jars.Bundle, program: str | Path, *arguments: str | Path, log: Path) -> Iterator[None]:
    """A Java class, or a source file, that runs meanwhile; `log` gets what it prints."""
    class_path = ":".join(map(str, jars.files(bundle)))
    processes = SupervisedProcesses()
    started = processes.spawn([java(), "-Xmx512m", *OPENED, "-cp", class_path, program, *arguments], log=log)
    try:
        yield
        assert started.poll() is None, log.read_text()[-4_000:]
        started.terminate()
        started.wait(60)
    finally:
        processes.close()
        started.wait()


def properties(file: Path, *groups: Mapping[str, object]) -> Path:
    """Write a file of Java properties."""
    file.write_text("".join(f"{name} = {value}\n" for group in groups for name, value in group.items()))
    return file


def lines(log: Path) -> Iterable[str]:
    """What there is of it by now."""
    return log.read_text().splitlines() if log.exists() else []
