"""Runs each measurement for the table of targets, and the sweeps, with one broker and one session."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from lab.bench import codec, old_formats, registry, scale, sides, spark_runs
from lab.bench.against import CLIENTS, Against
from lab.bench.checkpoint import checkpoint
from lab.bench.eos_runs import both_protocols, compare_registration
from lab.bench.floor import floor
from lab.bench.inputs import Shape
from lab.bench.isolation import isolation
from lab.bench.lab import LAUNCHED, PLAIN, Lab, temporary_directory
from lab.bench.latency import latency
from lab.bench.memory import long_stream, memory, mixed
from lab.bench.overhead import overhead
from lab.bench.steady import LOADS, Load, each_setting, first_batches, steady
from lab.bench.steady_figures import FIRST_BATCH, FLOOR, SETTINGS, STEADY, Way
from lab.bench.store import Measured
from lab.bench.targets import MEMORY, SHAPES
from lab.bench.transform import transform
from lab.bench.transport import transport
from lab.bench.watched import cost_of_looking


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of the measurements; the defaults are those of the table. `seconds`: of one run with small batches."""

    records: int = 2_000_000
    runs: int = 3
    seconds: float = 8.0
    batches: int = 20
    megabytes: int = 64

    @property
    def main(self) -> Shape:
        return Shape(records=self.records)

    def shape(self, key: str) -> Shape:
        """An input of `SHAPES`, large enough that the start of a query is a small part of the time."""
        return {
            "lz4": replace(self.main, compression="lz4"),
            "zstd": replace(self.main, compression="zstd"),
            "64-partitions": replace(self.main, partitions=64),
            "512-partitions": replace(self.main, partitions=512),
            "200-topics": replace(self.main, topics=200, partitions=1),
            "1-record-batches": replace(self.main, records=max(1, self.records // 20), batch_records=1),
        }[key]

    def load(self, name: str) -> Load:
        """A load of `LOADS`, with fewer records where the main input has fewer."""
        load = LOADS[name]
        return replace(load, rows=max(1, min(load.rows, load.rows * self.records // Size().records)))


Run = Callable[[Lab, SparkSession, Size], Iterator[tuple[str, Measured]]]


# What is not in the table of targets.
SWEEPS = (FLOOR, "codec-old", "transform", "watched", "checkpoint", "overhead", "isolation", "eos", "scale")


def measurements() -> Mapping[str, Run]:
    """All measurements, by their name for `--only`. Each yields its results, with the name of their files."""
    runs: dict[str, Run] = {
        # First: a worker that has processed a large batch keeps its memory, whatever the next batch needs.
        "memory": _memory,
        **{f"{STEADY}-{name}": _steady(name) for name in LOADS},
        FIRST_BATCH: _first_batches,
        SETTINGS: _settings,
        FLOOR: _floor,
        "codec": _one("codec", lambda lab, _, size: codec.codec(records=size.records, runs=size.runs, show=lab.show)),
        "codec-small": _one("codec-small", lambda lab, _, size: codec.small_batches(runs=size.runs, show=lab.show)),
        "codec-old": _one(
            "codec-old", lambda lab, _, size: old_formats.decode_old_formats(runs=size.runs, show=lab.show)
        ),
        "source-1": _one("source-1", lambda lab, spark, size: spark_runs.source(lab, spark, size.main, runs=size.runs)),
        "read": _one("read", lambda lab, spark, size: spark_runs.read(lab, spark, size.main, runs=size.runs)),
        "transport": _one("transport", lambda lab, _, size: transport(lab, size.main, runs=size.runs)),
        "copy-1": _one(
            "copy-1",
            lambda lab, spark, size: spark_runs.copy(
                lab,
                spark,
                size.main,
                runs=size.runs,
                against={Against.BUILTIN, Against.RECIPE},
                ways=(sides.EOS, sides.EOS_EXECUTORS, sides.EOS_SINK, sides.EOS_AT_LEAST_ONCE),
            ),
        ),
        "copy-20": _one(
            "copy-20",
            lambda lab, spark, size: spark_runs.copy(lab, spark, size.main, batches=size.batches, runs=size.runs),
        ),
        "watched": _one("watched", lambda lab, spark, size: cost_of_looking(lab, spark, pairs=4 * size.runs)),
        "checkpoint": _one("checkpoint", lambda lab, spark, _: checkpoint(lab, spark)),
        "latency": _one("latency", lambda lab, spark, size: latency(lab, spark, seconds=size.seconds, runs=size.runs)),
    }
    runs |= {f"shape-{key}": _shape(key) for key in SHAPES}
    return runs | {
        "registry": _registry,
        "transform": _one(
            "transform",
            lambda lab, spark, size: transform(lab, spark, records=size.records // 2, runs=size.runs),
        ),
        "overhead": _overhead,
        "isolation": _isolation,
        "eos": _eos,
        "scale": _scale,
    }


def _one(key: str, run: Callable[[Lab, SparkSession, Size], Measured]) -> Run:
    def measure(lab: Lab, spark: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
        yield key, run(lab, spark, size)

    return measure


def _steady(name: str) -> Run:
    return lambda lab, _, size: steady(lab, name, size.load(name), rounds=size.runs)


def _first_batches(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    # Each run starts a session. First batches in a warm one are measured with steady state.
    for way, settings in itertools.product((Way.SINK, Way.FOREACH_BATCH, Way.ARROW), (PLAIN, LAUNCHED)):
        yield first_batches(lab, way, size.load("1k"), rounds=size.runs, settings=settings)


def _settings(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    load = replace(size.load("100k"), batches=3)  # there are 19 sides
    yield each_setting(lab, Way.SINK, load, rounds=size.runs)


def _floor(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    for name in LOADS:
        yield from floor(lab, name, size.load(name), rounds=size.runs)


def _shape(key: str) -> Run:
    def measure(lab: Lab, spark: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
        shape = size.shape(key)
        yield f"shape-{key}-source", spark_runs.source(lab, spark, shape, runs=size.runs, defaults=False)
        ways = (sides.EOS,)
        yield f"shape-{key}-copy", spark_runs.copy(lab, spark, shape, runs=size.runs, defaults=False, ways=ways)
        lab.drop(lab.input(shape))

    return measure


def _memory(lab: Lab, spark: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    shape = mixed(size.records)
    yield from zip(MEMORY, memory(lab, spark, shape), strict=True)
    yield "memory-stream", long_stream(lab, spark, shape, 5 * size.batches)
    lab.drop(lab.input(shape))


def _registry(lab: Lab, spark: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    with temporary_directory() as folder:
        records = max(1, size.records // 2)
        yield "registry", registry.in_spark(spark, folder, records=records, runs=size.runs, show=lab.show)
    decoded, encoded = registry.alone(records=max(1, size.records // 10), runs=size.runs, show=lab.show)
    yield "registry-decode", decoded
    yield "registry-encode", encoded


# In these two sweeps the order of the ways counts, and quartiles of three runs would say little about it.
def _overhead(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    speed, cost = overhead(lab, megabytes=size.megabytes, runs=size.runs + 4, against=CLIENTS)
    yield "overhead-produce", speed
    yield "overhead-produce-cpu", cost


def _isolation(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    speed, cost = isolation(lab, megabytes=size.megabytes, runs=size.runs + 4, against=CLIENTS)
    yield "overhead-read", speed
    yield "overhead-read-cpu", cost


def _eos(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    with both_protocols(lab.show) as labs:
        yield "eos", compare_registration(labs, runs=size.runs + 2)


def _scale(lab: Lab, _: SparkSession, size: Size) -> Iterator[tuple[str, Measured]]:
    with both_protocols(lab.show) as labs:
        yield from scale.everything(labs, runs=size.runs, show=lab.show)
