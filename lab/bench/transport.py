"""Measures only fetch: from the broker to record batches in memory, which are not decoded."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from lab.bench import sides
from lab.bench.against import Against
from lab.bench.alternating import Side, alternate
from lab.bench.codec import one_core
from lab.bench.figures import Comparison
from lab.bench.inputs import Shape, fetch_all
from lab.bench.lab import Lab

WALL, CPU = "kafka-eos fetch, one core", "kafka-eos fetch, CPU time of the client"


def transport(lab: Lab, shape: Shape, *, runs: int = 5, against: Collection[Against] = frozenset()) -> Comparison:
    """Fetch the whole input with one thread on one core. librdkafka and Java also decode it.

    `settings["bytes"]` is the number of bytes fetched.
    """
    data = lab.input(shape)
    sizes: list[int] = []

    def fetch() -> None:
        with one_core():
            sizes.append(sum(len(part.buffer) for part in fetch_all(lab.cluster, data.topics)))

    def cpu() -> float:
        started = time.thread_time()
        fetch()
        return time.thread_time() - started

    participants = [Side(name=WALL, run=fetch), Side(name=CPU, run=cpu)]
    if Against.LIBRDKAFKA in against:
        participants.append(sides.librdkafka_consumer(lab, data))
    if Against.JAVA in against:
        participants.append(sides.java_consumer(lab, data))
    series = alternate(participants, records=shape.records, runs=runs, show=lab.show)
    return Comparison(
        title=f"fetch alone: {shape}",
        series=series,
        settings={"bytes": max(sizes), "records": shape.records, "value_bytes": shape.value_bytes, "runs": runs},
    )


def bytes_per_second(comparison: Comparison, name: str) -> float:
    """The bytes per second that a side fetched."""
    return replace(comparison.named(name), records=comparison.settings["bytes"]).rate
