"""The environment of benchmarks: a broker, a Spark session, inputs that several sides share, outputs to count."""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest import mock

import psutil
import pyspark
from pyspark.sql import SparkSession

from kafka_eos_python import beside
from lab.bench import inputs
from lab.bench.alternating import Show, silent
from lab.bench.inputs import Shape
from lab.jars import avro, built_in_connector
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.table import SINK, parse_options
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.driver import spark_home
from spark_kafka_eos.testing.embedded import EmbeddedKafka

# Delete the files of deleted topics at once, so that they are not written to disk during other measurements.
BROKER = {"log.retention.ms": -1, "log.segment.delete.delay.ms": 1_000}
# With both compilers, as a production broker. The embedded broker's default, only C1, suffices for tests, but slows
# down clients that send many small record batches, as Java's producer does.
JVM = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOCAL_FILES = "spark.hadoop.fs.AbstractFileSystem.file.impl"
WITHOUT_CHECKSUMS = "org.apache.hadoop.fs.local.RawLocalFs"
NUMPY_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a session has beyond Spark's defaults: Spark's settings, variables of the environment in which its JVM
    starts, whether PySpark is unpacked, so that Python finds bytecode for it, whether Spark starts Python by
    `kafka-eos-python`, and where its tasks run.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    unpacked: bool = False
    launched: bool = False
    master: str = "local[2]"


PLAIN = Settings()
LAUNCHED = Settings(launched=True)  # docs/deploying.md, "A faster start"
# What conf/spark-defaults.conf recommends. It states when the checkpoint manager is suitable. With Spark's default,
# both sides spend much of a batch of 100,000 records starting processes that set permissions.
RECOMMENDED = Settings(
    conf={
        UNIX_SOCKETS: "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        CHECKPOINT_MANAGER: LOCAL_CHECKPOINTS,
    },
    environment={NUMPY_THREADS: "1"},
    unpacked=True,
)

# What the environment must not add to a session's settings: a session of another process may have set it.
_ELSEWHERE = frozenset({"SPARK_HOME", "SPARK_CONF_DIR", "PYTHONPYCACHEPREFIX", NUMPY_THREADS})

_numbers = itertools.count(1)  # shared by the process, because several labs may use one broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Topics filled according to `shape`."""

    shape: Shape
    topics: tuple[str, ...]


class Lab:
    """A broker with inputs and outputs. Not thread-safe."""

    def __init__(self, kafka: EmbeddedKafka, show: Show = silent) -> None:
        self.kafka = kafka
        self.show = show
        self.cluster = cluster(kafka.bootstrap)
        self._inputs: dict[Shape, Input] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.close()

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    def broker_cpu(self) -> float:
        """The seconds of CPU time that the broker has used since it started."""
        pid = self.kafka.pid()
        if platform.system() == "Linux":  # clock_getcpuclockid(3): in nanoseconds; psutil's figure is in steps of 10 ms
            return time.clock_gettime(~pid << 3 | 2)
        used = psutil.Process(pid).cpu_times()
        return float(used.user + used.system)

    def name(self, prefix: str) -> str:
        """An unused name for a topic, a group or a transactional.id."""
        return f"bench-{prefix}-{os.getpid()}-{next(_numbers)}"

    def input(self, shape: Shape) -> Input:
        """Topics with this shape, which are created and filled on first use."""
        if shape not in self._inputs:
            topics = self.topics("in", shape.topics, shape.partitions)
            inputs.fill(self.cluster, topics, shape, self.show)
            self._inputs[shape] = Input(shape=shape, topics=topics)
        return self._inputs[shape]

    def drop(self, source: Input) -> None:
        """Delete an input, and thereby its files on the broker."""
        del self._inputs[source.shape]
        self.kafka.delete_topics(source.topics)

    def topics(self, prefix: str, count: int, partitions: int) -> tuple[str, ...]:
        """New, empty topics, whose names end in `-0`, `-1`, …"""
        stem = self.name(prefix)
        names = tuple(f"{stem}-{number}" for number in range(count))
        self.kafka.create_topics(names, partitions)
        return names

    def check(self, topics: Sequence[str], records: int, who: str) -> None:
        """Delete `topics`. Raises ToolFailed if they did not contain exactly `records` records."""
        count = inputs.count(self.cluster, topics)
        self.kafka.delete_topics(topics)
        if count != records:
            raise ToolFailed(f"{who}: the output has {count:,} records, but the input has {records:,}")


def releases(labs: Mapping[str, Lab]) -> str:
    """The labs' Kafka releases and protocols, in words."""
    return ", ".join(f"{lab.kafka.version} ({protocol})" for protocol, lab in labs.items())


def cluster(bootstrap: str) -> Cluster:
    """This package's client of a broker without security."""
    return Cluster(client_options(parse_options({"kafka.bootstrap.servers": bootstrap}, SINK)))


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """A directory that is deleted afterwards; by default among the temporary ones."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def session(settings: Settings = RECOMMENDED) -> Iterator[SparkSession]:
    """A session with both connectors and Spark's Avro. Settings that a JVM reads when it starts have an effect only on
    the first session of a process.
    """
    python = beside(sys.executable) if settings.launched else sys.executable
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    with temporary_directory() as folder:
        environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        # The warm-up rounds write bytecode, as an installation with pip would, if it is missing here.
        environment |= {"PYTHONDONTWRITEBYTECODE": "", **settings.environment}
        if settings.unpacked:
            home, bytecode = spark_home(folder / "spark"), folder / "bytecode"
            environment |= {"SPARK_HOME": str(home), "PYTHONPYCACHEPREFIX": str(bytecode)}
        with mock.patch.dict(os.environ, environment, clear=True):
            spark = _session(settings.master, settings.conf)
            try:
                yield spark
            finally:
                spark.stop()


def _session(master: str, conf: Mapping[str, str]) -> SparkSession:
    connector = built_in_connector(pyspark.__version__)
    session: SparkSession = (
        SparkSession.builder.master(master)
        .appName("kafka-eos bench")
        .config("spark.jars", ",".join(map(str, [*jars.files(connector), *jars.files(avro())])))
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.maxResultSize", "3g")  # for the collect recipe
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config(map=dict(conf))
        .getOrCreate()
    )
    return session
