"""Side-by-side measurements: this connector and Spark's built-in one in one session, alternating, pair by pair.

Fair means: both sides warm, on the same broker, Spark settings and checkpoint manager; whole seconds from `start()` to
the end of `awaitTermination()`; the output counted after every run; ratios of medians. The built-in source also runs
with `kafka.fetch.max.wait.ms=10`: its default stalls each query for about a second, and beating only that is nothing.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.tools import jars
from spark_kafka_eos.tools.embedded import EmbeddedKafka
from spark_kafka_eos.tools.read_offsets import ends

PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is read, and in how many micro-batches: `records` with 8-byte keys and incompressible values."""

    records: int
    batches: int
    value_bytes: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to do the work. `run` starts the query on a checkpoint and an output topic and waits for its end."""

    name: str
    run: Callable[[Path, str], None]
    writes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Whole seconds of each measured run, in the order they ran."""

    name: str
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Bench:
    """One session, one broker, one input topic; `measure` runs contestants in turn."""

    def __init__(self, spark: SparkSession, kafka: EmbeddedKafka, workload: Workload) -> None:
        self._spark = spark
        self._kafka = kafka
        self._workload = workload
        self._input = kafka.create_topic("bench-in", PARTITIONS)
        self._runs = 0

    def produce(self) -> Iterator[int]:
        """Fill the input topic; yields the records sent so far."""
        producer = Producer(
            {"bootstrap.servers": self._kafka.bootstrap, "batch.size": 1_000_000, "linger.ms": 50, "acks": "1"}
        )
        size = self._workload.value_bytes
        block = os.urandom(size * 1_000)
        for number in range(self._workload.records):
            at = number % 1_000 * size
            value = number.to_bytes(8, "big") + block[at : at + size - 8]
            while True:
                try:
                    producer.produce(self._input, key=b"%08d" % number, value=value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 50_000 == 0:
                producer.poll(0)
                yield number
        if left := producer.flush(60):
            raise ToolFailed(f"{left} records could not be produced", action="See the broker's log.")
        yield self._workload.records

    def source(self, *, built_in: bool, fetch_wait_ms: int | None = None) -> DataFrame:
        """The input as a stream of one connector or the other."""
        reader = (
            self._spark.readStream.format("kafka" if built_in else "kafka-eos")
            .option("kafka.bootstrap.servers", self._kafka.bootstrap)
            .option("subscribe", self._input)
            .option("startingOffsets", "earliest")
        )
        if self._workload.batches > 1:
            reader = reader.option("maxOffsetsPerTrigger", -(-self._workload.records // self._workload.batches))
        if fetch_wait_ms is not None:
            reader = reader.option("kafka.fetch.max.wait.ms", fetch_wait_ms)
        frame: DataFrame = reader.load()
        return frame

    def contestants(self, what: str) -> list[Contestant]:
        """`source`: into noop. `copy`: into another topic, ours exactly once, the built-in one at least once."""
        bootstrap = self._kafka.bootstrap

        def noop(frame: DataFrame) -> Callable[[Path, str], None]:
            return lambda checkpoint, _: _run(frame.writeStream.format("noop"), checkpoint)

        def copy(frame: DataFrame, way: str) -> Callable[[Path, str], None]:
            rows = frame.select("key", "value")

            def run(checkpoint: Path, target: str) -> None:
                options = {"kafka.bootstrap.servers": bootstrap, "topic": target}
                if way == "kafka":
                    _run(rows.writeStream.format("kafka").options(**options), checkpoint)
                    return
                options |= {"kafka.transactional.id": target}
                if way == "sink":
                    _run(rows.writeStream.format("kafka-eos").options(**options), checkpoint)
                else:
                    writer = TransactionalWriter(options | {"appendMode": way})
                    _run(rows.writeStream.foreachBatch(writer), checkpoint)

            return run

        ours, fast, default = (
            self.source(built_in=False),
            self.source(built_in=True, fetch_wait_ms=10),
            self.source(built_in=True),
        )
        if what == "source":
            return [
                Contestant(name="kafka-eos", run=noop(ours), writes=False),
                Contestant(name="built-in, fetch wait 10 ms", run=noop(fast), writes=False),
                Contestant(name="built-in, defaults", run=noop(default), writes=False),
            ]
        return [
            Contestant(name="kafka-eos, foreachBatch, driver appends", run=copy(ours, "driver")),
            Contestant(name="kafka-eos, foreachBatch, executors append", run=copy(ours, "executors")),
            Contestant(name="kafka-eos, sink", run=copy(ours, "sink")),
            Contestant(name="built-in, fetch wait 10 ms", run=copy(fast, "kafka")),
            Contestant(name="built-in, defaults", run=copy(default, "kafka")),
        ]

    def measure(
        self, contestants: Sequence[Contestant], rounds: int, show: Callable[[str, float], None]
    ) -> list[Result]:
        """One unmeasured round, then `rounds`; each contestant once per round, so that noise meets all alike."""
        results = [Result(name=contestant.name) for contestant in contestants]
        for number in range(rounds + 1):
            for contestant, result in zip(contestants, results, strict=True):
                seconds = self._once(contestant)
                show(contestant.name if number else f"{contestant.name} (warm-up)", seconds)
                if number:
                    result.seconds.append(seconds)
        return results

    def _once(self, contestant: Contestant) -> float:
        self._runs += 1
        target = self._kafka.create_topic(f"bench-out-{self._runs}", PARTITIONS) if contestant.writes else ""
        checkpoint = Path(tempfile.mkdtemp(prefix="kafka-eos-bench-"))
        try:
            started = time.perf_counter()
            contestant.run(checkpoint, target)
            seconds = time.perf_counter() - started
        finally:
            shutil.rmtree(checkpoint)
        if contestant.writes:
            self._count(contestant, target)
        return seconds

    def _count(self, contestant: Contestant, target: str) -> None:
        """Offsets, less the markers (one a partition and micro-batch at most), must be the records that went in."""
        try:
            found = sum(ends(self._kafka.bootstrap, target, "read_committed").values())
            markers = 0 if contestant.name.startswith("built-in") else PARTITIONS * (self._workload.batches + 1)
            if not self._workload.records <= found <= self._workload.records + markers:
                raise ToolFailed(f"{contestant.name} wrote {found} offsets for {self._workload.records} records")
        finally:
            self._kafka.delete_topic(target)


@contextmanager
def session() -> Iterator[SparkSession]:
    """local[2] with both connectors and the settings that conf/spark-defaults.conf recommends."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kafka-eos bench")
        .config("spark.jars", ",".join(map(str, jars.files(jars.BUILT_IN_CONNECTOR))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _run(stream: object, checkpoint: Path) -> None:
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()  # type: ignore[attr-defined]
    query.awaitTermination()
