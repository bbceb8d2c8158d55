"""Measures what the processes hold: while the batch grows, on every path, and while one query runs many batches.

Not obvious:
- Spark reuses its Python workers, and a worker keeps the memory that its largest batch needed. So each path starts with
  new workers, and its batches grow.
- The driver's Python process is that of the benchmark, which also fills and counts topics.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from lab.bench import sides
from lab.bench.alternating import Side
from lab.bench.figures import Point, Sweep
from lab.bench.inputs import Mixed, Shape, ranges
from lab.bench.lab import Input, Lab
from lab.bench.sides import OUR_FORMAT
from spark_kafka_eos.spark.writer import TransactionalWriter

WORKER, DRIVER, HEAP = "the largest Python worker", "the driver's Python", "Spark's JVM, heap after a collection"
WAYS = ("read", "write", "sink", "driver", "executors", "arrow")  # how a batch goes through; see `_sides`

_EVERY_SECONDS = 0.05
_STEPS = 4  # sizes of the batch, each twice the previous one
_SAMPLES = 10  # of the long stream
_FULL_BATCH = 900_000  # bytes of a record batch, as librdkafka with its largest settings
_DAEMON = "pyspark.daemon"


@dataclass(slots=True)
class Peaks:
    """The highest resident set sizes, in bytes: of a Python worker, and of this process."""

    worker: int = 0
    driver: int = 0


def mixed(records: int, *, smallest: int = 20, largest: int = 2_000, partitions: int = 4) -> Shape:
    """An input of full record batches, whose values have mixed sizes."""
    sizes = Mixed(smallest=smallest, largest=largest, batch_bytes=_FULL_BATCH)
    return Shape(records=records, partitions=partitions, mixed=sizes)


def memory(lab: Lab, spark: SparkSession, shape: Shape, ways: Collection[str] = WAYS) -> tuple[Sweep, Sweep, Sweep]:
    """Pass an eighth of the input, a quarter, a half, and all of it, each in one batch, in each of these ways.

    The results are peaks of resident set sizes (psutil) and the JVM's heap after the batch, all in MB: of the largest
    Python worker, of the driver's Python process, of the heap. A line is a way.
    """
    data = lab.input(shape)
    # Partitions are filled with whole record batches, so their sizes differ slightly.
    fewest = min(offset_range.end for offset_range in ranges(lab.cluster, data.topics))
    points: dict[str, list[Point]] = {WORKER: [], DRIVER: [], HEAP: []}
    selected = [way for way in WAYS if way in ways]
    total = _STEPS * len(selected)
    for number, way in enumerate(selected):
        end_idle_workers()
        for step in range(_STEPS):
            share = fewest >> (_STEPS - 1 - step)
            lab.show(f"{way}: 1/{2 ** (_STEPS - 1 - step)} of the input", number * _STEPS + step, total)
            side = _sides(lab, spark, data, share)[way]
            with watched() as peaks:
                side.before()
                side.run()
            figures = {WORKER: peaks.worker, DRIVER: peaks.driver, HEAP: heap(spark)}
            side.after()
            for what, size in figures.items():
                points[what].append(Point(line=side.name, at=share * shape.all_partitions, value=size / 1e6))
    lab.show("done", total, total)
    workers, driver, after = (
        Sweep(
            title=f"{what}, one batch out of {shape}",
            x="records in the batch",
            y="MB" if what == HEAP else "peak resident set, MB",
            points=tuple(points[what]),
            settings=_settings(shape),
        )
        for what in points
    )
    return workers, driver, after


def long_stream(lab: Lab, spark: SparkSession, shape: Shape, batches: int) -> Sweep:
    """Copy the input in `batches` micro-batches of one query (foreachBatch), and look now and then.

    The result has current resident set sizes and the heap, in MB, after a full garbage collection of both languages.
    """
    end_idle_workers()
    points: list[Point] = []
    every = max(1, batches // _SAMPLES)

    def start(rows: DataFrame, options: Mapping[str, str]) -> Any:
        writer = TransactionalWriter({**options, "kafka.transactional.id": lab.name("id"), "appendMode": "driver"})

        def write(frame: DataFrame, batch_id: int) -> None:
            writer(frame, batch_id)
            if (batch_id + 1) % every == 0:
                lab.show("one query of many batches", batch_id + 1, batches)
                points.extend(_sample(spark, batch_id + 1))

        return rows.writeStream.foreachBatch(write)

    data = lab.input(shape)
    stream = sides.stream(spark, lab, data, OUR_FORMAT, {}, batches, sides.columns_of(shape))
    side = sides.stream_to_kafka(sides.EOS, lab, stream, shape, start)
    side.before()
    side.run()
    side.after()
    return Sweep(
        title=f"one query, {batches} micro-batches out of {shape}",
        x="micro-batches",
        y="MB",
        points=tuple(points),
        settings=_settings(shape) | {"batches": batches},
    )


def _settings(shape: Shape) -> dict[str, Any]:
    sizes = shape.mixed
    return {
        "records": shape.records,
        "value_bytes": [sizes.smallest, sizes.largest] if sizes else shape.value_bytes,
        "partitions": shape.partitions,
    }


def _sample(spark: SparkSession, batches: int) -> Iterator[Point]:
    heap_bytes = heap(spark)  # first, because it also collects Python's garbage
    sizes = {WORKER: max(worker_sizes(), default=0), DRIVER: psutil.Process().memory_info().rss, HEAP: heap_bytes}
    for line, size in sizes.items():
        yield Point(line=line, at=batches, value=size / 1e6)


def _sides(lab: Lab, spark: SparkSession, data: Input, share: int) -> dict[str, Side]:
    """The ways for the first `share` records of every partition, in one batch."""
    shape = replace(data.shape, records=share * data.shape.all_partitions)
    part = replace(data, shape=shape)
    ends = {topic: {str(number): share for number in range(shape.partitions)} for topic in data.topics}
    options = {"endingOffsets": json.dumps(ends)}
    source = {"kafka.bootstrap.servers": lab.bootstrap, "subscribe": ",".join(data.topics)}
    rows = spark.read.format(OUR_FORMAT).options(**source, **options).load().select("key", "value")
    stream = sides.stream(spark, lab, part, OUR_FORMAT, options, 1, sides.columns_of(shape))

    def copy(name: str, start: sides.Start) -> Side:
        return sides.stream_to_kafka(name, lab, stream, shape, start)

    return {
        "read": sides.batch_to_noop(sides.EOS_SOURCE, spark, lab, part, options),
        "write": sides.frame_to_kafka("kafka-eos, batch write", lab, rows, shape, OUR_FORMAT),
        "sink": copy(sides.EOS_SINK, sides.ours_by_sink(lab)),
        "driver": copy(sides.EOS, sides.ours_by_foreach_batch(lab, {"appendMode": "driver"})),
        "executors": copy(sides.EOS_EXECUTORS, sides.ours_by_foreach_batch(lab, {"appendMode": "executors"})),
        "arrow": sides.arrow_to_kafka(spark, lab, part, options),
    }


@contextmanager
def watched() -> Iterator[Peaks]:
    """The peaks of this process and its Python workers while the block runs."""
    peaks, ended, own = Peaks(), threading.Event(), psutil.Process()

    def watch() -> None:
        while not ended.wait(_EVERY_SECONDS):
            peaks.worker = max(peaks.worker, *worker_sizes(), 0)
            peaks.driver = max(peaks.driver, own.memory_info().rss)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


def heap(spark: SparkSession) -> int:
    """The bytes of the JVM's heap that are in use after a full garbage collection, also of this process, whose objects
    may hold some of the JVM's.
    """
    gc.collect()
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark has no other way to its JVM
    runtime = jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


def worker_sizes() -> list[int]:
    """The current resident bytes of each Python worker of this process's JVM."""
    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(part.startswith("pyspark.") for part in process.cmdline()):
                sizes.append(process.memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return sizes


def end_idle_workers() -> None:
    """End Spark's Python workers, which must all be idle; Spark starts others when it needs them (SPARK-47565)."""
    daemons = [process for process in psutil.Process().children(recursive=True) if _is_daemon(process)]
    workers = [process for process in daemons if process.ppid() in {daemon.pid for daemon in daemons}]
    for worker in workers:
        worker.kill()
    psutil.wait_procs(workers, timeout=10)


def _is_daemon(process: psutil.Process) -> bool:
    """Whether this is Spark's daemon, or one of the workers that it has forked."""
    try:
        return _DAEMON in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def of_ways(text: str) -> Sequence[str]:
    """Parse `read,sink`; all ways if it is empty. Raises ValueError for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()] or list(WAYS)
    if unknown := [name for name in names if name not in WAYS]:
        raise ValueError(f"unknown way {unknown[0]!r}. Use some of {', '.join(WAYS)}")
    return names
