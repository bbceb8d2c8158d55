"""Measures small micro-batches: some records per second, and each batch starts as soon as the previous one is done."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lab.bench import sides
from lab.bench.figures import Comparison, Latencies, Series, latencies
from lab.bench.inputs import KEY_BYTES
from lab.bench.lab import Lab, temporary_directory
from lab.bench.sides import BUILT_IN_FORMAT, FETCH_WAIT, OUR_FORMAT
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.spark.writer import TransactionalWriter

_STAMP_BYTES = 8
_PARTITIONS = 4
_FEWEST, _TIMEOUT_SECONDS = 4, 60  # micro-batches per run; on a busy machine, a run continues until it has these


@dataclass(slots=True)
class _Seen:
    """The figures of one run, in milliseconds."""

    triggers: list[float] = field(default_factory=list)
    transactions: list[float] = field(default_factory=list)
    records: list[float] = field(default_factory=list)


def latency(
    lab: Lab, spark: SparkSession, *, rate: int = 100, seconds: float = 8.0, runs: int = 5, value_bytes: int = 100
) -> Comparison:
    """Copy `rate` records per second for `seconds`, each side in turn; the first half of each run is not measured.

    A series' seconds are the median trigger durations of its runs. `settings` has, per side, the end-to-end latencies
    of records in ms (from the producer to a read_committed consumer of the output), and the durations of the
    transaction's end (TxnOffsetCommit and EndTxn) if they are known.
    """
    ways: dict[str, _Start] = {
        sides.EOS: _by_foreach_batch,
        sides.EOS_SINK: lambda lab, _: sides.ours_by_sink(lab),
        sides.BUILT_IN: lambda *_: sides.built_in_sink,
    }
    seen: dict[str, list[_Seen]] = {name: [] for name in ways}
    for number in range(runs + 1):
        for at, (name, start) in enumerate(ways.items()):
            lab.show(name if number else f"{name} (warm-up)", number * len(ways) + at, (runs + 1) * len(ways))
            run = _run(lab, spark, name, start, rate, seconds, value_bytes)
            if number:
                seen[name].append(run)
    lab.show("done", 1, 1)
    settings: dict[str, object] = {"rate": rate, "seconds": seconds, "runs": runs, "value_bytes": value_bytes}
    settings["end_to_end_ms"] = {name: _summary(run.records for run in measured) for name, measured in seen.items()}
    settings["transaction_ms"] = {
        name: _summary(run.transactions for run in measured)
        for name, measured in seen.items()
        if measured[0].transactions
    }
    settings["triggers"] = {name: sum(len(run.triggers) for run in measured) for name, measured in seen.items()}
    return Comparison(
        title=f"median trigger, {rate} records/s, the next as soon as the last is done",
        series=tuple(
            Series(name=name, records=1, seconds=tuple(median(run.triggers) / 1e3 for run in measured))
            for name, measured in seen.items()
        ),
        settings=settings,
    )


def _summary(values: Iterator[list[float]]) -> dict[str, float]:
    summary: Latencies = latencies((value, 1) for run in values for value in run)
    return {"mean": summary.mean, "max": summary.maximum} | {f"p{100 * q:g}": ms for q, ms in summary.quantiles.items()}


_Start = Callable[[Lab, _Seen], sides.Start]


def _by_foreach_batch(lab: Lab, seen: _Seen) -> sides.Start:
    """Our writer; stores the timing of each commit."""

    def start(rows: DataFrame, options: Mapping[str, str]) -> Any:
        writer = TransactionalWriter({**options, "kafka.transactional.id": lab.name("id"), "appendMode": "driver"})

        def process(batch: DataFrame, batch_id: int) -> None:
            writer(batch, batch_id)
            if writer.last_commit is not None:
                spent = writer.last_commit.milliseconds
                seen.transactions.append(spent["offsets"] + spent["end"])

        return rows.writeStream.foreachBatch(process)

    return start


def _run(lab: Lab, spark: SparkSession, name: str, start: _Start, rate: int, seconds: float, value_bytes: int) -> _Seen:
    (source,), (target,) = lab.topics("slow", 1, _PARTITIONS), lab.topics("out", 1, _PARTITIONS)
    seen = _Seen()
    ours = name != sides.BUILT_IN
    reader = spark.readStream.format(OUR_FORMAT if ours else BUILT_IN_FORMAT)
    reader = reader.options(**{"kafka.bootstrap.servers": lab.bootstrap, "subscribe": source})
    frame = reader.options(**({} if ours else FETCH_WAIT)).option("startingOffsets", "earliest").load()
    options = {"kafka.bootstrap.servers": lab.bootstrap, "topic": target}
    with temporary_directory() as checkpoint, _watch(lab, target, seen.records):
        writer = start(lab, seen)(frame.select("key", "value"), options)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            with trickle(lab.bootstrap, source, rate, value_bytes):
                _await_batches(query, seen, seconds, name)
            query.processAllAvailable()  # Spark logs a thousand lines if it is stopped during a batch
        finally:
            query.stop()
    lab.kafka.delete_topics([source, target])
    for values in (seen.triggers, seen.transactions, seen.records):
        del values[: len(values) // 2]
    return seen


def _await_batches(query: StreamingQuery, seen: _Seen, seconds: float, who: str) -> None:
    """Wait for `seconds`, and on until there are enough triggers with records; store their durations."""
    started = time.perf_counter()
    while len(seen.triggers) < _FEWEST or len(seen.records) < _FEWEST:
        if time.perf_counter() - started > _TIMEOUT_SECONDS:
            raise ToolFailed(f"{who}: only {len(seen.triggers)} micro-batches in {_TIMEOUT_SECONDS} s")
        query.awaitTermination(math.ceil(seconds))
        seen.triggers[:] = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]


@contextmanager
def trickle(bootstrap: str, topic: str, rate: int, value_bytes: int) -> Iterator[None]:
    """Send `rate` records per second while the block runs; a value begins with the time at which it is sent."""
    ended = threading.Event()
    filler = bytes(max(0, value_bytes - _STAMP_BYTES))

    def send() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
        number, started = 0, time.perf_counter()
        while not ended.wait(max(0.0, started + number / rate - time.perf_counter())):
            key = b"%0*d" % (KEY_BYTES, number)
            producer.produce(topic, key=key, value=time.time_ns().to_bytes(_STAMP_BYTES, "big") + filler)
            producer.poll(0)
            number += 1
        producer.flush(10)

    with _thread(send, ended):
        yield


@contextmanager
def _watch(lab: Lab, topic: str, milliseconds: list[float]) -> Iterator[None]:
    """Append the age of each record of `topic` at which a read_committed consumer gets it."""
    ended = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "log_level": 0,
            "group.id": lab.name("group"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )

    def watch() -> None:
        consumer.subscribe([topic])
        while not ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                sent = int.from_bytes((message.value() or b"")[:_STAMP_BYTES], "big")
                milliseconds.append((time.time_ns() - sent) / 1e6)
        consumer.close()

    with _thread(watch, ended):
        yield


@contextmanager
def _thread(work: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
