"""Latency of records that are copied from a topic to another one, from the producer to a read_committed consumer.

Each copy runs in a fresh process, one after the other, with the same load: first the warm-up, then what is measured.
Producer and consumer are librdkafka's, in a process each. Each value has a number and the time at which it was sent.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer

from lab.bench.copies import TITLES, Copy, running
from lab.bench.figures import Latencies, Point, Sweep, latencies
from lab.bench.lab import Lab, temporary_directory
from spark_kafka_eos.errors import ToolFailed

QUANTILES = (0.5, 0.95, 0.99)
_PARTITIONS = 4
_STAMP_BYTES, _NUMBER_BYTES = 8, 8
_START_SECONDS = 300
_TICK_SECONDS = 0.001
_PATIENCE_SECONDS = 60  # for what is still unread when the producer has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """`rate` records per second with values of `value_bytes`, for `warm_up` seconds and for `seconds` that count."""

    rate: int
    seconds: int
    warm_up: int
    value_bytes: int = 100

    @property
    def records(self) -> int:
        return self.rate * (self.warm_up + self.seconds)

    @property
    def first(self) -> int:
        """The number of the first record that counts."""
        return self.rate * self.warm_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The ages of the records that count, and how many of all records had arrived again when the last one arrived:
    what came after it was not read.
    """

    milliseconds: Sequence[float]
    repeated: int


def real_time(
    lab: Lab, loads: Sequence[Flow], copies: Sequence[Copy], *, rounds: int, long_batch: str = "5 minutes"
) -> Sweep:
    """Run each copy with each load, in turn. A panel is a quantile, a line a copy, a place a rate, in milliseconds.

    `settings` has each run's slowest record, how many records arrived again, and the `ratio` of the first copy's median
    run to that of the others. Raises ToolFailed if a record does not arrive.
    """
    runs: dict[tuple[int, Copy], list[Arrived]] = {}
    steps = [(load, copy) for _ in range(rounds) for load in loads for copy in copies]
    # The broker compiles its code while it runs: the first copy would have had to wait for that.
    lab.show("warming up the broker", 0, len(steps))
    _run(lab, max(loads, key=lambda load: load.rate), copies[0], long_batch)
    for done, (load, copy) in enumerate(steps):
        lab.show(f"{copy}, {load.rate:,} records/s", done, len(steps))
        runs.setdefault((load.rate, copy), []).append(_run(lab, load, copy, long_batch))
    lab.show("done", 1, 1)
    distributions = {
        key: [latencies(((ms, 1) for ms in run.milliseconds), QUANTILES) for run in arrived]
        for key, arrived in runs.items()
    }
    points = tuple(
        Point.of(f"p{100 * q:g}, {TITLES[copy]}", rate, [run.quantiles[q] for run in distributions[rate, copy]])
        for q in QUANTILES
        for rate, copy in distributions
    )
    settings: dict[str, Any] = {
        "rounds": rounds,
        "seconds": loads[0].seconds,
        "warm_up": loads[0].warm_up,
        "value_bytes": loads[0].value_bytes,
        "long_batch": long_batch,
        "slowest_ms": {
            f"{copy}, {rate:,} records/s": {f"run {number}": run.maximum for number, run in enumerate(by_run, 1)}
            for (rate, copy), by_run in distributions.items()
        },
        "repeated": {
            f"{copy}, {rate:,} records/s": sum(run.repeated for run in arrived)
            for (rate, copy), arrived in runs.items()
        },
        "ratio": {
            f"{copies[0]} to {copy}, {rate:,} records/s": {
                f"p{100 * q:g}": _median(distributions[rate, copies[0]], q) / _median(by_run, q) for q in QUANTILES
            }
            for (rate, copy), by_run in distributions.items()
            if copy is not copies[0]
        },
    }
    return Sweep(
        title="From the producer to a read_committed consumer",
        x="records/s",
        y="ms",
        points=points,
        settings=settings,
        panels=tuple(f"p{100 * q:g}" for q in QUANTILES),
    )


def _median(runs: Sequence[Latencies], quantile: float) -> float:
    return median(run.quantiles[quantile] for run in runs)


def _run(lab: Lab, load: Flow, copy: Copy, long_batch: str) -> Arrived:
    (source,), (target,) = lab.topics("in", 1, _PARTITIONS), lab.topics("out", 1, _PARTITIONS)
    with (
        temporary_directory() as folder,
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes,
        running(copy, lab.bootstrap, source, target, folder, long_batch),
    ):
        if not _copies(lab.bootstrap, source, target):
            raise _stuck(f"{copy} did not start", folder)
        sent = processes.submit(produce, lab.bootstrap, source, load)
        arrived = processes.submit(consume, lab.bootstrap, target, load).result()
        sent.result()
        if arrived is None:
            raise _stuck(f"{copy} at {load.rate} records/s: not every record arrived", folder)
    lab.kafka.delete_topics([source, target])
    return arrived


def _stuck(what: str, folder: Path) -> ToolFailed:
    return ToolFailed(what, action=(folder / "log").read_text(errors="replace")[-2_000:])


def _copies(bootstrap: str, source: str, target: str) -> bool:
    """Whether a first record, without a value, arrives."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(source, value=b"")
    producer.flush(_PATIENCE_SECONDS)
    with closing(_consumer(bootstrap, target, "first")) as consumer:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                return True
    return False


def _consumer(bootstrap: str, topic: str, group: str) -> Consumer:
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": f"{group}-{topic}", **settings})
    consumer.subscribe([topic])
    return consumer


def produce(bootstrap: str, topic: str, load: Flow) -> None:
    """Send the load's records evenly, as far as the clock allows; returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0, "acks": "all"})
    filler = bytes(load.value_bytes - _STAMP_BYTES - _NUMBER_BYTES)
    started, number = time.perf_counter(), 0
    while number < load.records:
        due = min(load.records, int((time.perf_counter() - started) * load.rate) + 1)
        for next_number in range(number, due):
            stamp = time.time_ns().to_bytes(_STAMP_BYTES, "big")
            producer.produce(topic, value=stamp + next_number.to_bytes(_NUMBER_BYTES, "big") + filler)
        number = max(number, due)
        producer.poll(0)
        # Not in `poll`, which takes whole milliseconds: a shorter wait would be none, and the loop would use a core.
        time.sleep(max(_TICK_SECONDS, started + number / load.rate - time.perf_counter()))
    if producer.flush(_PATIENCE_SECONDS):
        raise ToolFailed(f"the records for {topic} were not acknowledged")


def consume(bootstrap: str, topic: str, load: Flow) -> Arrived | None:
    """The ages of the load's records as they arrive; None if some do not arrive."""
    consumer = _consumer(bootstrap, topic, "all")
    times, milliseconds, missing = bytearray(load.records), [], load.records
    deadline = time.monotonic() + load.warm_up + load.seconds + _PATIENCE_SECONDS
    while missing and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        now, value = time.time_ns(), message.value()
        if not value:
            continue  # the first one
        number = int.from_bytes(value[_STAMP_BYTES:][:_NUMBER_BYTES], "big")
        if not times[number]:
            missing -= 1
            if number >= load.first:
                milliseconds.append((now - int.from_bytes(value[:_STAMP_BYTES], "big")) / 1e6)
        times[number] = min(255, times[number] + 1)
    consumer.close()
    repeated = sum(count - 1 for count in times if count)
    return None if missing else Arrived(milliseconds=milliseconds, repeated=repeated)
