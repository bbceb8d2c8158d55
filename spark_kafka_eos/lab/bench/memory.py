"""Measures the memory of the executors' Python workers for growing batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from pyspark.sql import SparkSession

from spark_kafka_eos.lab.bench.figures import Point, Sweep
from spark_kafka_eos.lab.bench.inputs import Shape, ranges
from spark_kafka_eos.lab.bench.lab import Input, Lab
from spark_kafka_eos.lab.bench.sides import OUR_FORMAT

LARGEST, TOGETHER = "the largest worker", "all workers together"
_EVERY_SECONDS = 0.05
_STEPS = 4  # sizes of the batch, each twice the previous one


@dataclass(slots=True)
class Peaks:
    """The highest resident set sizes, in bytes."""

    largest: int = 0
    together: int = 0


def memory(lab: Lab, spark: SparkSession, shape: Shape) -> Sweep:
    """Copy an eighth of the input, a quarter, a half, and all of it, each exactly once in one batch.

    The result has resident set sizes of the Python workers (psutil) in MB; shared pages count in each worker.
    """
    data = lab.input(shape)
    # Partitions are filled with whole record batches, so their sizes differ slightly.
    fewest = min(wanted.end for wanted in ranges(lab.cluster, data.topics))
    points: list[Point] = []
    for step in range(_STEPS):
        lab.show(f"a batch of 1/{2 ** (_STEPS - 1 - step)} of the input", step, _STEPS)
        share = fewest >> (_STEPS - 1 - step)
        peaks = _copied(lab, spark, data, share)
        at = share * shape.all_partitions
        points += [
            Point(line=LARGEST, at=at, value=peaks.largest / 1e6),
            Point(line=TOGETHER, at=at, value=peaks.together / 1e6),
        ]
    lab.show("done", _STEPS, _STEPS)
    return Sweep(
        title=f"memory of the Python workers, one batch out of {shape}",
        x="records in the batch",
        y="peak resident set, MB",
        points=tuple(points),
        settings={"records": shape.records, "value_bytes": shape.value_bytes, "partitions": shape.partitions},
    )


def _copied(lab: Lab, spark: SparkSession, data: Input, share: int) -> Peaks:
    """Copy the first `share` records of every partition in one transaction, and watch the memory."""
    shape = data.shape
    ends = {topic: {str(number): share for number in range(shape.partitions)} for topic in data.topics}
    output = lab.topics("out", 1, shape.partitions)
    kafka = {"kafka.bootstrap.servers": lab.bootstrap}
    source = {"subscribe": ",".join(data.topics), "endingOffsets": json.dumps(ends)}
    rows = spark.read.format(OUR_FORMAT).options(**kafka, **source).load().select("key", "value")
    with watched() as peaks:
        rows.write.format(OUR_FORMAT).options(**kafka, topic=output[0]).mode("append").save()
    lab.check(output, share * shape.all_partitions, "memory")
    return peaks


@contextmanager
def watched() -> Iterator[Peaks]:
    """The peaks of all Python workers of this process while the block runs."""
    peaks, ended = Peaks(), threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY_SECONDS):
            sizes = worker_sizes()
            peaks.largest = max(peaks.largest, *sizes, 0)
            peaks.together = max(peaks.together, sum(sizes))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


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
