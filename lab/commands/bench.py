"""`python -m lab bench`: measures this connector against others, on this machine. The benchmarks are in lab/bench/."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lab.bench.against import Against
from lab.bench.copies import Copy
from lab.bench.places import Where
from lab.bench.steady_figures import Way
from lab.commands.bench_eos import JavaArguments, eos, numbers, truth
from spark_kafka_eos.errors import ToolFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lab.bench.figures import Comparison
    from lab.bench.inputs import Shape
    from lab.bench.lab import Lab
    from lab.bench.progress import Progress
    from lab.bench.steady_figures import Grid
    from lab.bench.store import Measured

Into = Annotated[
    list[Path] | None,
    typer.Option(help="A page with markers for tables, such as PERFORMANCE.md; may be repeated.", exists=True),
]

T = TypeVar("T")
_ROOT = Path(__file__).parents[2]

bench = typer.Typer(
    help="Measure the connector against others, in turn, on an embedded broker; print medians and ratios.",
    no_args_is_help=True,
)
bench.command(cls=JavaArguments)(eos)

Records = Annotated[int, typer.Option(help="Number of input records.", min=1)]
Runs = Annotated[int, typer.Option(help="Measured runs per side, after one or two warm-up runs.", min=1)]
Batches = Annotated[int, typer.Option(help="Number of micro-batches.", min=1)]
Partitions = Annotated[int, typer.Option(help="Partitions per topic.", min=1)]
Topics = Annotated[int, typer.Option(help="Number of topics over which records are distributed.", min=1)]
ValueSize = Annotated[int, typer.Option(help="Bytes per value; keys have 8 bytes.", min=8)]
MixedSizes = Annotated[
    bool, typer.Option("--mixed", help="Values of 20 bytes to 2 kB, in small record batches; no --value-size.")
]
Compression = Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd; half of each value is text.")]
Output = Annotated[Path | None, typer.Option(help="Write the results to this JSON file.", dir_okay=False)]
Plot = Annotated[Path | None, typer.Option(help="Write a PNG to this file.", dir_okay=False)]
Megabytes = Annotated[int, typer.Option(help="Megabytes of values in a run of overhead and isolation.", min=1)]
Sizes = Annotated[str, typer.Option(help="Comma-separated list of bytes per value.")]
Lengths = Annotated[str, typer.Option(help="Comma-separated list of transaction lengths, in milliseconds.")]
Opponents = Annotated[str, typer.Option(help="Comma-separated list of builtin, recipe, librdkafka, java.")]
Ways = Annotated[str, typer.Option(help="Comma-separated list of noop, foreach-batch, sink, arrow.")]
BatchRows = Annotated[int, typer.Option(help="Records of a micro-batch.", min=20)]
Rounds = Annotated[int, typer.Option("--runs", help="Measured rounds, in each of which every side runs once.", min=1)]


@bench.command()
def steady(
    ways: Ways = "noop,foreach-batch,sink,arrow",
    rows: Annotated[str, typer.Option(help="Comma-separated list of records per micro-batch.")] = "100000,500000",
    batches: Annotated[int, typer.Option(help="Micro-batches of a run that count.", min=1)] = 8,
    runs: Rounds = 5,
    value_size: ValueSize = 100,
    mixed: MixedSizes = False,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure micro-batches in steady state on plain settings: time, CPU and idle cores; against the built-in one.

    Each way and number of rows has a file: the second one's name ends in -2.
    """
    selected, sizes = parse_ways(ways), numbers(rows, "--rows")

    def run(lab: Lab) -> dict[str, Comparison]:
        from lab.bench.inputs import Mixed, Shape
        from lab.bench.steady import Load, steady

        results: dict[str, Comparison] = {}
        records = Shape(records=0, value_bytes=value_size, mixed=Mixed() if mixed else None)
        for size in sizes:
            load = Load(rows=size, batches=batches, records=records, schema=True)
            results.update(steady(lab, str(size), load, ways=selected, rounds=runs))
        return results

    _with_grids(run, output, plot)


@bench.command("first-batch")
def first_batch(
    ways: Ways = "noop,foreach-batch,sink,arrow",
    rows: BatchRows = 100_000,
    runs: Rounds = 3,
    launched: Annotated[bool, typer.Option("--kafka-eos-python", help="Name it in PYSPARK_PYTHON.")] = False,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure the first micro-batch of a fresh session on plain settings, against the built-in one."""
    selected = parse_ways(ways)

    def run(lab: Lab) -> dict[str, Comparison]:
        from lab.bench.inputs import Shape
        from lab.bench.lab import LAUNCHED, PLAIN
        from lab.bench.steady import Load, first_batches

        load, used = Load(rows=rows, batches=0, records=Shape(records=0)), LAUNCHED if launched else PLAIN
        return dict(first_batches(lab, way, load, rounds=runs, settings=used) for way in selected)

    _with_grids(run, output, plot)


@bench.command()
def settings(
    ways: Ways = "sink",
    rows: BatchRows = 100_000,
    batches: Annotated[int, typer.Option(help="Micro-batches of a run that count.", min=1)] = 8,
    runs: Rounds = 3,
    setting: Annotated[
        list[str] | None, typer.Option(help="Only this one, by its name in the table; may be repeated.")
    ] = None,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure what each setting of conf/ brings alone, in steady state; needs about 9 GB of memory."""
    selected = parse_ways(ways)

    def run(lab: Lab) -> dict[str, Comparison]:
        from lab.bench.inputs import Shape
        from lab.bench.steady import EACH_SETTING, Load, each_setting

        if unknown := set(setting or ()) - set(EACH_SETTING):
            raise typer.BadParameter(
                f"{min(unknown)!r} is not one of {', '.join(EACH_SETTING)}", param_hint="--setting"
            )
        load = Load(rows=rows, batches=batches, records=Shape(records=0))
        names = setting or tuple(EACH_SETTING)
        return dict(each_setting(lab, way, load, rounds=runs, names=names) for way in selected)

    _with_grids(run, output, plot)


@bench.command()
def floor(
    ways: Ways = "noop,foreach-batch,sink,arrow",
    rows: BatchRows = 100_000,
    batches: Annotated[int, typer.Option(help="Micro-batches of a run that count.", min=1)] = 8,
    runs: Rounds = 3,
    value_size: ValueSize = 100,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure the least that a query can take: with rows that are ready-made, and that Python drops."""
    selected = parse_ways(ways)

    def run(lab: Lab) -> dict[str, Comparison]:
        from lab.bench.floor import floor
        from lab.bench.inputs import Shape
        from lab.bench.steady import Load

        load = Load(rows=rows, batches=batches, records=Shape(records=0, value_bytes=value_size))
        return dict(floor(lab, str(rows), load, ways=selected, rounds=runs))

    _with_grids(run, output, plot)


@bench.command()
def timeline(
    output: Annotated[Path, typer.Option(help="Write a PNG to this file.", dir_okay=False)],
    way: Annotated[Way, typer.Option(help="What the query does.")] = Way.FOREACH_BATCH,
    rows: BatchRows = 100_000,
    value_size: ValueSize = 100,
    built_in: Annotated[bool, typer.Option("--built-in", help="Of the built-in connector.")] = False,
    batches: Annotated[int, typer.Option(help="Micro-batches that count.", min=1)] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as a JSON object.")] = False,
) -> None:
    """Draw one micro-batch in steady state on plain settings: each process's CPU time, and Spark's phases; on Linux.

    Prints also how long the machine's cores were idle in each step, as the mean of all micro-batches.
    """

    def run(lab: Lab) -> None:
        from lab.bench import show, timeline
        from lab.bench.inputs import Shape
        from lab.bench.steady import Load

        load = Load(rows=rows, batches=batches, records=Shape(records=0, value_bytes=value_size))
        chart = timeline.measure(lab, way, load, ours=not built_in)
        timeline.draw(chart, output)
        if as_json:
            print(json.dumps(chart.to_json()))
            return
        for line in chart.lines():
            print(line)
        show.console().print(chart.table())

    _on_broker(run)


@bench.command("start-timeline")
def start_timeline(
    way: Annotated[Way, typer.Option(help="What the query does.")] = Way.SINK,
    rows: BatchRows = 1_000,
    built_in: Annotated[bool, typer.Option("--built-in", help="Of the built-in connector.")] = False,
    launched: Annotated[bool, typer.Option("--kafka-eos-python", help="Name it in PYSPARK_PYTHON.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as a JSON object.")] = False,
) -> None:
    """Show a fresh session's first batch by process: when each runs, what it imports, what it asks; on Linux."""

    def run(lab: Lab) -> None:
        from lab.bench import fresh_start, show

        start = fresh_start.measure(lab, way, rows=rows, ours=not built_in, launched=launched)
        if as_json:
            print(json.dumps(start.to_json()))
            return
        show.console().print(start.table())
        for line in start.lines():
            print(line)

    _on_broker(run)


@bench.command()
def start(
    ways: Ways = "sink,foreach-batch,arrow",
    where: Annotated[str, typer.Option(help=f"Comma-separated list of {', '.join(Where)}.")] = ",".join(Where),
    rows: BatchRows = 1_000,
    runs: Rounds = 3,
    launched: Annotated[bool, typer.Option("--kafka-eos-python", help="Name it in PYSPARK_PYTHON.")] = False,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure a fresh session to its first commit, and beside a producer to the first record that a consumer sees, on
    local threads, executors of their own and a standalone cluster; against the built-in one.
    """
    selected = parse_ways(ways)
    try:
        places = [Where(name) for name in where.split(",")]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--where") from None

    def run(lab: Lab) -> list[Comparison]:
        from lab.bench.start import starts

        return list(starts(lab, selected, places, rows=rows, rounds=runs, launched=launched))

    def table(results: Sequence[Comparison]) -> Grid:
        from lab.bench.start_figures import starts

        return starts(results)

    _with_table(run, table, output, plot)


@bench.command()
def footprint(
    loads: Annotated[str, typer.Option(help="Comma-separated list of 100-bytes, 10-kb, 1000-partitions.")] = (
        "100-bytes,10-kb,1000-partitions"
    ),
    ways: Ways = "sink,foreach-batch,arrow",
    share: Annotated[int, typer.Option(help="Copy only one record in so many.", min=1)] = 1,
    runs: Rounds = 1,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure the memory of all processes of a copy together, against the built-in one; on Linux."""
    selected, names = parse_ways(ways), loads.split(",")

    def run(lab: Lab) -> list[Comparison]:
        from lab.bench.footprint import LOADS, footprint

        if unknown := set(names) - set(LOADS):
            raise typer.BadParameter(f"{min(unknown)!r} is not one of {', '.join(LOADS)}", param_hint="--loads")
        shapes = [replace(LOADS[name], records=LOADS[name].records // share) for name in names]
        return [footprint(lab, shape, selected, rounds=runs) for shape in shapes]

    def table(results: Sequence[Comparison]) -> Grid:
        from lab.bench.start_figures import footprints

        return footprints(results)

    _with_table(run, table, output, plot)


@bench.command()
def source(
    records: Records = 2_000_000,
    runs: Runs = 5,
    batches: Batches = 1,
    partitions: Partitions = 4,
    topics: Topics = 1,
    value_size: ValueSize = 100,
    compression: Compression = "none",
    against: Opponents = "builtin",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Read a stream into noop."""
    opponents = parse_against(against)
    shape = _shape(records, value_size, partitions, topics, compression)

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench import spark_runs

        return spark_runs.source(lab, spark, shape, batches=batches, runs=runs, against=opponents)

    _with_spark(run, output, plot)


@bench.command()
def read(
    records: Records = 2_000_000,
    runs: Runs = 5,
    partitions: Partitions = 4,
    topics: Topics = 1,
    value_size: ValueSize = 100,
    compression: Compression = "none",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Read a batch into noop, against the built-in source."""
    shape = _shape(records, value_size, partitions, topics, compression)

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench import spark_runs

        return spark_runs.read(lab, spark, shape, runs=runs)

    _with_spark(run, output, plot)


@bench.command()
def sink(
    records: Records = 2_000_000,
    runs: Runs = 5,
    partitions: Partitions = 4,
    value_size: ValueSize = 100,
    against: Opponents = "builtin",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Write rows that Spark has in memory to a topic, in one batch write with one transaction."""
    opponents = parse_against(against)
    shape = _shape(records, value_size, partitions, 1, "none")

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench import spark_runs

        return spark_runs.sink(lab, spark, shape, runs=runs, against=opponents)

    _with_spark(run, output, plot)


@bench.command()
def copy(
    records: Records = 2_000_000,
    runs: Runs = 5,
    batches: Batches = 1,
    partitions: Partitions = 4,
    topics: Topics = 1,
    value_size: ValueSize = 100,
    compression: Compression = "none",
    against: Opponents = "builtin",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Copy a topic: ours exactly-once in three ways and at-least-once, the built-in sink at-least-once."""
    opponents = parse_against(against)
    shape = _shape(records, value_size, partitions, topics, compression)

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench import sides, spark_runs

        ways = (sides.EOS, sides.EOS_EXECUTORS, sides.EOS_SINK, sides.EOS_AT_LEAST_ONCE)
        return spark_runs.copy(lab, spark, shape, batches=batches, runs=runs, against=opponents, ways=ways)

    _with_spark(run, output, plot)


@bench.command()
def latency(
    rate: Annotated[int, typer.Option(help="Records per second.", min=1)] = 100,
    seconds: Annotated[float, typer.Option(help="Duration of each run; its first half is not measured.", min=1)] = 8.0,
    runs: Runs = 5,
    value_size: ValueSize = 100,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Run small micro-batches as fast as possible: median trigger, transaction, end-to-end; against the built-in
    one.
    """

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench.latency import latency

        return latency(lab, spark, rate=rate, seconds=seconds, runs=runs, value_bytes=value_size)

    _with_spark(run, output, plot)


@bench.command("real-time")
def real_time(
    rates: Annotated[str, typer.Option(help="Comma-separated list of records per second.")] = "200,1000,10000",
    copies: Annotated[str, typer.Option(help=f"Comma-separated list of {', '.join(Copy)}.")] = ",".join(Copy),
    seconds: Annotated[int, typer.Option(help="Seconds of each run that count.", min=1)] = 30,
    warm_up: Annotated[int, typer.Option(help="Seconds before them, with the same load.", min=1)] = 45,
    runs: Rounds = 3,
    long_batch: Annotated[str, typer.Option(help="Duration of a micro-batch in real time.")] = "5 minutes",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Copy in real time: latency from the producer to a read_committed consumer, against Kafka Streams, Spark's own
    real-time mode and micro-batches.
    """
    chosen, loads = _copies(copies), numbers(rates, "--rates")

    def run(lab: Lab) -> Measured:
        from lab.bench.real_time import Flow, real_time

        each = [Flow(rate=rate, seconds=seconds, warm_up=warm_up) for rate in loads]
        return real_time(lab, each, chosen, rounds=runs, long_batch=long_batch)

    _present(lambda: _on_broker(run), output, plot)


@bench.command("real-time-backlog")
def real_time_backlog(
    records: Annotated[int, typer.Option(help="Records of the backlog, with values of 100 bytes.", min=1)] = 10_000_000,
    copies: Annotated[
        str, typer.Option(help=f"Comma-separated list of {', '.join(Copy)}.")
    ] = "real-time,micro-batches",
    runs: Rounds = 3,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Copy a backlog in real time: records per second, against micro-batches."""
    chosen = _copies(copies)

    def run(lab: Lab) -> Measured:
        from lab.bench.backlog import backlog

        return backlog(lab, chosen, records=records, rounds=runs)

    _present(lambda: _on_broker(run), output, plot)


def _copies(names: str) -> list[Copy]:
    try:
        return [Copy(name) for name in names.split(",")]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--copies") from None


@bench.command()
def checkpoint(
    batches: Annotated[int, typer.Option(help="Micro-batches of a run; the first three are not measured.", min=4)] = 8,
    runs: Annotated[int, typer.Option(help="Measured runs per side, after a warm-up run.", min=1)] = 3,
    store_ms: Annotated[int, typer.Option(help="Milliseconds of each operation of the artificial store.", min=0)] = 100,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Copy with the checkpoint in an artificial object store, on a local disk, and where Kafka is the checkpoint."""

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench.checkpoint import checkpoint

        return checkpoint(lab, spark, batches=batches, runs=runs, milliseconds=store_ms)

    _with_spark(run, output, plot)


@bench.command()
def watched(
    pairs: Annotated[int, typer.Option(help="Pairs of runs, without and with.", min=1)] = 20,
    batches: Annotated[int, typer.Option(help="Number of measured micro-batches in a run.", min=1)] = 25,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure the cost of looking: small micro-batches with and without ProgressListener, its endpoint, and a scrape
    each second.
    """

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench.watched import cost_of_looking

        return cost_of_looking(lab, spark, pairs=pairs, batches=batches)

    _with_spark(run, output, plot)


@bench.command()
def table(
    pairs: Annotated[int, typer.Option(help="Pairs of runs, without and with.", min=1)] = 10,
    batches: Annotated[int, typer.Option(help="Number of measured micro-batches in a run.", min=1)] = 25,
    records: Annotated[int, typer.Option(help="Number of records of a micro-batch.", min=1)] = 100,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure the cost of a table that takes part: micro-batches to a topic, and to the topic and a table in SQLite."""

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench.with_table import cost_of_a_table

        return cost_of_a_table(lab, spark, pairs=pairs, batches=batches, records=records)

    _with_spark(run, output, plot)


@bench.command()
def memory(
    records: Annotated[int, typer.Option(help="Number of records in the largest batch.", min=32)] = 4_000_000,
    value_size: Annotated[int, typer.Option(help="Bytes of the smallest value; keys have 8 bytes.", min=8)] = 20,
    largest_value_size: Annotated[int, typer.Option(help="Bytes of the largest value.", min=8)] = 2_000,
    partitions: Partitions = 4,
    ways: Annotated[
        str, typer.Option(help="Comma-separated list of read, write, sink, driver, executors, arrow; default: all.")
    ] = "",
    batches: Annotated[
        int, typer.Option(help="Micro-batches of one query that reads the input, after the ways; 0 for none.", min=0)
    ] = 100,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure the memory of Python workers, driver and JVM while the batch grows, on every path, and in a query of many
    batches.

    A copy needs disk for the input, the output, and as much again for what is staged or shuffled.
    """
    from lab.bench import memory as measure

    try:
        selected = measure.of_ways(ways)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ways") from None
    shape = measure.mixed(records, smallest=value_size, largest=largest_value_size, partitions=partitions)

    def run(lab: Lab, spark: SparkSession) -> Sequence[Measured]:
        grown = measure.memory(lab, spark, shape, selected)
        return [*grown, measure.long_stream(lab, spark, shape, batches)] if batches else grown

    _present(lambda: _on_broker_and_spark(run), output, plot)


@bench.command()
def codec(
    records: Records = 2_000_000,
    runs: Runs = 5,
    value_size: ValueSize = 100,
    mixed: MixedSizes = False,
    compression: Compression = "none",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure only encode and decode, on one core, compared with copying and checksumming the same bytes."""
    from lab.bench.codec import codec
    from lab.bench.inputs import Mixed

    sizes = Mixed() if mixed else None

    def run() -> Measured:
        with _bars() as show:
            return codec(
                records=records, value_bytes=value_size, mixed=sizes, compression=compression, runs=runs, show=show
            )

    _present(run, output, plot)


@bench.command()
def registry(
    records: Annotated[
        int, typer.Option(help="Number of records in Spark; alone, a fifth of it is decoded and encoded.", min=10_000)
    ] = 1_000_000,
    runs: Runs = 5,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Decode and encode Avro of a schema registry, against Confluent's classes and Spark's from_avro."""
    from lab.bench import registry as measure
    from lab.bench.lab import session, temporary_directory

    def run() -> list[Measured]:
        with _bars() as show, temporary_directory() as folder, session() as spark:
            in_spark = measure.in_spark(spark, folder, records=records, runs=runs, show=show)
            return [in_spark, *measure.alone(records=records // 5, runs=runs, show=show)]

    _present(run, output, plot)


@bench.command()
def transform(
    records: Annotated[int, typer.Option(help="Number of records.", min=10_000)] = 1_000_000,
    runs: Runs = 5,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Decode Avro of a schema registry, filter, and join fields, topic to topic: arrow_stream against from_avro."""

    def run(lab: Lab, spark: SparkSession) -> Measured:
        from lab.bench.transform import transform

        return transform(lab, spark, records=records, runs=runs)

    _with_spark(run, output, plot)


@bench.command("old-formats")
def decode_old_formats(
    records: Annotated[int, typer.Option(help="Number of records in memory.", min=1)] = 50_000,
    runs: Runs = 5,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure only decode, on one core: message formats v0 and v1 compared with v2, in each codec that they have."""
    from lab.bench import old_formats

    def run() -> Measured:
        with _bars() as show:
            return old_formats.decode_old_formats(records=records, runs=runs, show=show)

    _present(run, output, plot)


@bench.command()
def transport(
    records: Records = 2_000_000,
    runs: Runs = 5,
    partitions: Partitions = 4,
    value_size: ValueSize = 100,
    against: Opponents = "",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure only fetch, with one thread on one core, without decoding; librdkafka and java decode what they fetch."""
    opponents = parse_against(against)
    shape = _shape(records, value_size, partitions, 1, "none")

    def run(lab: Lab) -> Measured:
        from lab.bench.transport import transport

        return transport(lab, shape, runs=runs, against=opponents)

    _present(lambda: _on_broker(run), output, plot)


@bench.command()
def overhead(
    megabytes: Megabytes = 64,
    runs: Runs = 5,
    sizes: Sizes = "100,1000,10000",
    lengths: Lengths = "5,50,500",
    pre_registration: Annotated[
        str, typer.Option(metavar="true|false", help="Whether to register all partitions at once (KIP-609).")
    ] = "true",
    kafka_version: Annotated[str, typer.Option(help="Kafka version; pre-registration matters before 4.0.")] = "",
    against: Opponents = "librdkafka,java",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """KIP-98's benchmark: plain, idempotent and transactional writes, by message size and transaction length.

    Speed, and the broker's CPU time for a record, which has files whose names end in -2.
    """
    opponents, registered = parse_against(against), truth(pre_registration)

    def run(lab: Lab) -> Sequence[Measured]:
        from lab.bench.overhead import overhead

        return overhead(
            lab,
            megabytes=megabytes,
            runs=runs,
            sizes=numbers(sizes, "--sizes"),
            lengths_ms=numbers(lengths, "--lengths"),
            against=opponents,
            pre_registration=registered,
        )

    _present(lambda: _on_broker(run, kafka_version), output, plot)


@bench.command()
def isolation(
    megabytes: Megabytes = 64,
    runs: Runs = 5,
    sizes: Sizes = "100,1000,10000",
    lengths: Lengths = "5,50,500",
    against: Opponents = "librdkafka,java",
    output: Output = None,
    plot: Plot = None,
) -> None:
    """KIP-98's benchmark of consumers: read_committed against read_uncommitted, by message size and transaction length.

    Speed, and the broker's CPU time for a record, which has files whose names end in -2.
    """
    opponents = parse_against(against)

    def run(lab: Lab) -> Sequence[Measured]:
        from lab.bench.isolation import isolation

        return isolation(
            lab,
            megabytes=megabytes,
            runs=runs,
            sizes=numbers(sizes, "--sizes"),
            lengths_ms=numbers(lengths, "--lengths"),
            against=opponents,
        )

    _present(lambda: _on_broker(run), output, plot)


@bench.command()
def scale(
    runs: Runs = 5,
    partitions: Annotated[str, typer.Option(help="Comma-separated list of partitions, on real brokers.")] = (
        "10,100,1000"
    ),
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Measure what a micro-batch costs with more partitions, topics and append tasks, whatever its records cost.

    Planning, topics, memory and append tasks, in memory; then transactions, and append tasks together, on real brokers.
    """
    from lab.bench.eos_runs import both_protocols
    from lab.bench.scale import everything

    counts = numbers(partitions, "--partitions")

    def run() -> list[Measured]:
        with _bars() as show, both_protocols(show) as labs:
            return [sweep for _, sweep in everything(labs, runs=runs, partitions=counts, show=show)]

    logging.getLogger("spark_kafka_eos").setLevel(logging.ERROR)  # the preflight would warn about single brokers
    _present(run, output, plot)


@bench.command("all")
def everything(
    output: Annotated[Path, typer.Option(help="Directory for JSON and PNG files and targets.md.", file_okay=False)],
    only: Annotated[
        str, typer.Option(help="Comma-separated list of measurements to run, for example copy-1,latency.")
    ] = "",
    sweeps: Annotated[
        bool,
        typer.Option("--sweeps", help="Run the measurements that have no row in that table, too: 20 minutes more."),
    ] = False,
    records: Annotated[
        int, typer.Option(help="Number of records of the main input; others have a fraction of it.", min=100)
    ] = 2_000_000,
    runs: Runs = 3,
    seconds: Annotated[float, typer.Option(help="Duration of a run with small batches.", min=1)] = 8.0,
    batches: Annotated[int, typer.Option(help="Number of micro-batches in rows with many.", min=2)] = 20,
    megabytes: Megabytes = 64,
    minutes: Annotated[
        float | None,
        typer.Option(help="After the first one, begin no measurement later than that; the next run goes on.", min=0),
    ] = None,
    into: Into = None,
) -> None:
    """Measure every row of the table of targets, and print the table; takes about an hour.

    A run that was stopped goes on where it was, if machine, releases and code are the same. What --only names is
    measured in any case.
    """
    from lab.bench import campaign, plots, progress, show, store
    from lab.bench.machine import machine

    measurements = campaign.measurements()
    selected = list(filter(None, only.split(","))) or [
        name for name in measurements if sweeps or name not in campaign.SWEEPS
    ]
    if unknown := [name for name in selected if name not in measurements]:
        raise typer.BadParameter(
            f"unknown measurement {unknown[0]!r}. Use some of {', '.join(measurements)}", param_hint="--only"
        )
    size = campaign.Size(records=records, runs=runs, seconds=seconds, batches=batches, megabytes=megabytes)
    output.mkdir(parents=True, exist_ok=True)
    here, console = machine(), show.console()
    console.print(str(here))

    def measure(name: str, lab: Lab, spark: SparkSession) -> None:
        for key, measured in measurements[name](lab, spark, size):
            store.write(output / f"{key}.json", measured, here)
            plots.plot(measured, output / f"{key}.png")
            console.print(show.measured(measured))

    before = progress.Progress.of(output, here, progress.code_digest(_ROOT))
    if only:
        before = before.without(selected)
    elif before.finished:
        console.print(
            f"{len(selected) - len(before.remaining(selected))} of {len(selected)} were measured before, in {output}."
        )
    after, failed = _go_on(
        before, selected, measure, minutes=minutes, put_on_record=lambda record: record.write(output)
    )
    targets(output, into)
    if into:
        tables(output, into)
    if failed:
        action = f"Fix the cause, then run these again with --only {','.join(failed)}."
        raise ToolFailed("; ".join(f"{name}: {error}" for name, error in failed.items()), action=action)
    if remaining := after.remaining(selected):
        console.print(f"[bold]{len(remaining)} of {len(selected)} are left: run the same command again.[/]")
    elif not only:
        progress.forget(output)


def _go_on(
    before: Progress,
    selected: Sequence[str],
    measure: Callable[[str, Lab, SparkSession], None],
    *,
    minutes: float | None,
    put_on_record: Callable[[Progress], None],
) -> tuple[Progress, Mapping[str, Exception]]:
    """Measure what is left, and begin nothing after so many minutes; what is finished then, and what failed."""
    from lab.bench import show

    remaining, failed, console, begun = (
        before.remaining(selected),
        dict[str, Exception](),
        show.console(),
        time.monotonic(),
    )
    finished = before

    def run(lab: Lab, spark: SparkSession) -> None:
        nonlocal finished
        for number, name in enumerate(remaining, 1):
            started = time.monotonic()
            if number > 1 and minutes is not None and started - begun >= 60 * minutes:
                return
            console.print(f"[bold]{number}/{len(remaining)} {name}[/]")
            try:
                measure(name, lab, spark)
            except Exception as error:  # noqa: BLE001 - continue with the other measurements
                console.print_exception()
                failed[name] = error
            else:
                finished = finished.with_finished(name, time.monotonic() - started)
                put_on_record(finished)
            console.print(f"{name}: {time.monotonic() - started:.0f} s")

    if remaining:
        _on_broker_and_spark(run)
    return finished, failed


@bench.command()
def targets(
    directory: Annotated[Path, typer.Argument(help="Output directory of `bench all`.", exists=True)], into: Into = None
) -> None:
    """Print the table of targets from the files of `bench all`; also write targets.md, steady.png and shapes.png."""
    from lab.bench import plots, show, steady_figures, store
    from lab.bench.targets import shape_ratios, table

    stored = {path.stem: store.read(path) for path in sorted(directory.glob("*.json"))}
    if not stored:
        raise ToolFailed(f"no JSON files in {directory}", action="Run 'python -m lab bench all --output' there first.")
    rows = table({key: measured for key, (measured, _) in stored.items()})
    text = show.markdown(rows, next(iter(stored.values()))[1])
    (directory / "targets.md").write_text(text)
    for page in into or ():
        if show.has(before := page.read_text(), "targets"):
            page.write_text(show.insert(before, "targets", text))
    if ratios := shape_ratios({key: measured for key, (measured, _) in stored.items()}):
        plots.ratios("records/s, times the built-in connector's", ratios, directory / "shapes.png")
    if ratios := steady_figures.ratios({key: measured for key, (measured, _) in stored.items()}):
        title = "steady state, plain settings: times as fast as the built-in connector"
        plots.ratios(title, ratios, directory / "steady.png")
    show.console().print(show.targets(rows))


@bench.command()
def tables(
    directory: Annotated[Path, typer.Argument(help="Directory with JSON files.", exists=True)],
    into: Annotated[list[Path], typer.Option(help="A page with markers for tables; may be repeated.", exists=True)],
) -> None:
    """Write the tables of steady state, of sweeps and of job times into pages; draw the plots again."""
    from lab.bench import picture, plots, show, store

    stored = {path.stem: store.read(path) for path in sorted(directory.glob("*.json"))}
    for path in into:
        page = path.read_text()
        path.write_text(show.insert_grids(show.insert_sweeps(page, stored), stored))
        for name in filter(lambda name: show.has(page, name), stored):
            plots.plot(stored[name][0], directory / f"{name}.png")
            print(directory / f"{name}.png")
    if panels := picture.panels({name: measured for name, (measured, _) in stored.items()}):
        print(*picture.draw(panels, directory), sep="\n")


def parse_against(text: str) -> frozenset[Against]:
    """Parse `builtin,java`. Raises typer.BadParameter for unknown names."""
    try:
        return frozenset(Against(name.strip()) for name in text.split(",") if name.strip())
    except ValueError as error:
        raise typer.BadParameter(f"{error}. Use some of {', '.join(Against)}", param_hint="--against") from None


def parse_ways(text: str) -> tuple[Way, ...]:
    """Parse `noop,sink`. Raises typer.BadParameter for unknown names."""
    try:
        return tuple(Way(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{error}. Use some of {', '.join(Way)}", param_hint="--ways") from None


def _shape(records: int, value_size: int, partitions: int, topics: int, compression: str) -> Shape:
    from lab.bench.inputs import Shape

    return Shape(records=records, value_bytes=value_size, partitions=partitions, topics=topics, compression=compression)


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    from lab.bench.show import bars

    with bars() as show:
        yield show


def _on_broker(run: Callable[[Lab], T], version: str = "") -> T:
    from lab.bench.lab import BROKER, JVM, Lab
    from spark_kafka_eos.testing import jars
    from spark_kafka_eos.testing.embedded import EmbeddedKafka

    # For every query, the preflight would warn about a single broker.
    logging.getLogger("spark_kafka_eos").setLevel(logging.ERROR)
    with (
        EmbeddedKafka(version or jars.DEFAULT_VERSION, config=BROKER, jvm_options=JVM) as kafka,
        _bars() as show,
        Lab(kafka, show) as lab,
    ):
        return run(lab)


def _on_broker_and_spark(run: Callable[[Lab, SparkSession], T]) -> T:
    from lab.bench.lab import session

    def with_session(lab: Lab) -> T:
        with session() as spark:
            return run(lab, spark)

    return _on_broker(with_session)


def _with_spark(run: Callable[[Lab, SparkSession], Measured], output: Path | None, plot: Path | None) -> None:
    _present(lambda: _on_broker_and_spark(run), output, plot)


def _with_grids(run: Callable[[Lab], dict[str, Comparison]], output: Path | None, plot: Path | None) -> None:
    """Print the results one by one, then their tables."""
    from lab.bench import show
    from lab.bench.steady_figures import grids

    results: dict[str, Comparison] = {}

    def keep() -> list[Comparison]:
        results.update(_on_broker(run))
        return list(results.values())

    _present(keep, output, plot)
    for table in grids(results):
        show.console().print(show.grid(table))


def _with_table(
    run: Callable[[Lab], list[Comparison]],
    table: Callable[[Sequence[Comparison]], Grid],
    output: Path | None,
    plot: Path | None,
) -> None:
    """Print the results one by one, then a table of them all."""
    from lab.bench import show

    results: list[Comparison] = []

    def keep() -> list[Comparison]:
        results.extend(_on_broker(run))
        return results

    _present(keep, output, plot)
    show.console().print(show.grid(table(results)))


def _present(run: Callable[[], Measured | Sequence[Measured]], output: Path | None, plot: Path | None) -> None:
    """Print the results and the machine; write the requested files. Further results have files with a numbered name."""
    from lab.bench import plots, show, store
    from lab.bench.machine import machine

    here, console = machine(), show.console()  # before the run, so that its load is not included
    results = run()
    for number, measured in enumerate(results if isinstance(results, Sequence) else [results], 1):
        here = here.running(measured.settings.get("kafka"))
        console.print(show.measured(measured))
        for line in show.details(measured):
            console.print(line)
        if output is not None:
            store.write(_numbered(output, number), measured, here)
        if plot is not None:
            plots.plot(measured, _numbered(plot, number))
    console.print(str(here))


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_stem(f"{path.stem}-{number}")
