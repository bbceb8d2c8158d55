"""Prints how long Python tasks wait for the end of their input over TCP, as JSON: the median milliseconds of tasks that
acknowledge it at once (`prompt`) and of others (`plain`), and whether they did acknowledge it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_kafka_eos.startup.quickack import QuickAck, set_quickack


def wait(batches: Iterator[pa.RecordBatch]) -> float:
    started = time.perf_counter()
    for _ in batches:
        pass
    return (time.perf_counter() - started) * 1e3


def plain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"waited": [wait(batches)], "acknowledged": [False]})


@dataclass(frozen=True)
class Prompt(QuickAck):
    unit: str = "ms"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"waited": [wait(batches)], "acknowledged": [set_quickack()]})


spark = SparkSession.builder.appName("wait").getOrCreate()
functions: dict[str, Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]] = {
    "plain": plain,
    "prompt": Prompt(),
}
rows = {
    name: [
        spark.range(0, 10, 1, 1).mapInArrow(function, "waited double, acknowledged boolean").collect()[0]
        for _ in range(25)
    ]
    for name, function in functions.items()
}
told = {name: statistics.median(row.waited for row in measured) for name, measured in rows.items()}
print(json.dumps(told | {"acknowledged": all(row.acknowledged for row in rows["prompt"])}))
