"""Measures the memory of all processes of a copy together, beside the built-in connector.

Not obvious:
- Memory that several processes share counts once: the proportional set size (`Pss` in /proc/PID/smaps_rollup). Forked
  workers share most of theirs with their daemon.
- Each run has a session of its own on plain settings, with Spark's default of 1 GiB for the driver's heap.
- New pages are the JVM's minor page faults: memory that the kernel gives it for the first time. Memory that was given
  back and is asked for again counts again.
"""

from __future__ import annotations

import functools
import platform
import resource
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from lab.bench.alternating import Side, alternate
from lab.bench.apart import SparkApart
from lab.bench.figures import Comparison
from lab.bench.inputs import Shape
from lab.bench.lab import Lab, Settings
from lab.bench.start_figures import NEW_PAGES, TOGETHER
from lab.bench.steady import Load, Query, run_batch, side_of
from lab.bench.steady_figures import BUILT_IN, OURS, Way
from lab.bench.timeline import JVM, role_of
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.process_tree import process_tree

WAYS = (Way.SINK, Way.FOREACH_BATCH, Way.ARROW)
LOADS: Mapping[str, Shape] = {
    "100-bytes": Shape(records=2_000_000),
    "10-kb": Shape(records=100_000, value_bytes=10_000),
    "1000-partitions": Shape(records=1_000_000, partitions=1_000),
}
_MEGABYTE = 1e6
_EVERY_SECONDS = 0.1
_SETTINGS = Settings(conf={"spark.driver.memory": "1g"})  # Spark's default, which a lab's session has raised


@dataclass(slots=True)
class Footprint:
    """The highest bytes of all processes at one moment, of these each role's, and the JVM's new pages until then."""

    together: int = 0
    by_role: Mapping[str, int] = field(default_factory=dict)
    new_pages: int = 0

    def add(self, sample: Mapping[str, int]) -> None:
        """Count a sample of each role's bytes."""
        if (together := sum(sample.values())) > self.together:
            self.together, self.by_role = together, dict(sample)

    @property
    def megabytes(self) -> dict[str, float]:
        figures = {TOGETHER: self.together, **self.by_role, NEW_PAGES: self.new_pages}
        return {name: size / _MEGABYTE for name, size in figures.items()}


def footprint(lab: Lab, shape: Shape, ways: Collection[Way] = WAYS, *, rounds: int = 1) -> Comparison:
    """Copy the input in one batch, in each way, each in a session of its own. The sides are the ways of ours, and the
    built-in sink. A series' seconds are those from start() to the first commit; `settings` has each side's highest
    memory in MB.

    Raises ToolFailed except on Linux.
    """
    if platform.system() != "Linux":
        raise ToolFailed("the memory that processes share is only known on Linux")
    load = Load(rows=shape.records, batches=0, records=shape)
    peaks: dict[str, Footprint] = {}

    def side(name: str, way: Way, *, ours: bool) -> Side:
        def run(query: Query) -> float:
            with SparkApart(_SETTINGS) as spark, watched(spark.pid) as peak:
                seconds = spark.run(functools.partial(run_batch, query=query))
            if name not in peaks or peak.together > peaks[name].together:
                peaks[name] = peak
            return seconds

        return side_of(lab, name, way, load, run, ours=ours, whole=True)

    sides = [side(f"{OURS}, {way.words}", way, ours=True) for way in ways]
    sides.append(side(BUILT_IN, Way.SINK, ours=False))
    series = alternate(sides, records=shape.records, runs=rounds, warm_up=0, show=lab.show)
    lab.drop(lab.input(shape))
    figures = {name: peaks[name].megabytes for name in (side.name for side in sides)}
    settings: dict[str, Any] = {"records": shape.records, "value_bytes": shape.value_bytes, "runs": rounds}
    return Comparison(
        title=f"memory of all processes, one batch: {shape}",
        series=series,
        settings=settings | {"partitions": shape.partitions, "peak_mb": figures},
    )


@contextmanager
def watched(pid: int) -> Iterator[Footprint]:
    """The peak of a driver's process and all that it started, while the block runs."""
    footprint, ended = Footprint(), threading.Event()
    before = _new_pages(pid)

    def watch() -> None:
        while not ended.wait(_EVERY_SECONDS):
            sample: dict[str, int] = {}
            for process in process_tree(pid):
                with suppress(psutil.Error, OSError):
                    role = role_of(process.cmdline())
                    sample[role] = sample.get(role, 0) + proportional(process.pid)
            footprint.add(sample)
            footprint.new_pages = max(footprint.new_pages, _new_pages(pid) - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield footprint
    finally:
        ended.set()
        watcher.join()


def proportional(pid: int) -> int:
    """The bytes of a process's memory, of shared memory its share. Raises OSError."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0  # it has ended, and has no memory any more


def _new_pages(driver: int) -> int:
    """The bytes that the JVMs of a driver were given for the first time."""
    faults = 0
    for process in process_tree(driver):
        with suppress(psutil.Error, OSError):
            if role_of(process.cmdline()) == JVM:
                # proc_pid_stat(5): minflt is the tenth field, the eighth after the name, which may have spaces
                faults += int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[7])
    return faults * resource.getpagesize()
