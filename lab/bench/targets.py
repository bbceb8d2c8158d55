"""The table of targets: what each row must reach, and whether the measurements reach it. Pure; campaign.py measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from lab.bench import codec, registry, sides
from lab.bench.figures import Comparison, Sweep, growth
from lab.bench.steady_figures import (
    BUILT_IN,
    FLOOR,
    NOTHING,
    OURS,
    OURS_SCHEMA,
    READY_MADE,
    RELAYED,
    STEADY,
    Ratio,
    Way,
    described,
    first_batch_name,
    paired,
    warm_first_batch,
)
from lab.bench.store import Measured
from lab.bench.transport import WALL, bytes_per_second

# The inputs with other shapes than the main one: their names in the table, by key.
SHAPES = {
    "lz4": "lz4",
    "zstd": "zstd",
    "64-partitions": "64 partitions",
    "512-partitions": "512 partitions",
    "200-topics": "200 topics",
    "1-record-batches": "1 record per record batch",
}
# Of steady state, by load: the least ratio of source to noop and of copies, each without schema(…) and perhaps with it,
# and of arrow_stream, which reads only two columns in any case.
_STEADY_LEAST: Mapping[str, tuple[tuple[float, ...], tuple[float, ...], float]] = {
    "1k": ((1,), (1,), 1),
    "100k": ((1.5, 1.7), (1.4, 1.5), 2),
    "500k": ((2.2, 2.6), (1.7, 2.0), 3),
    "mixed": ((1.5,), (1.5,), 3),
    "1kb": ((1.5,), (1.5,), 1.5),
    "10kb": ((1.2,), (1.5,), 1.5),
}
_FIRST_BATCH_SECONDS = 0.6  # that ours may take longer, with what we recommend
_PLAIN_FIRST_BATCH_SECONDS = 3.0  # with nothing set
# The results of bench memory, by their key in the table: whose memory it is.
MEMORY = {
    "memory": "the largest Python worker",
    "memory-driver": "the driver's Python",
    "memory-heap": "the JVM, heap after a collection",
}
_SOURCE_LEAST, _COPY_LEAST = 1.5, 1.5
_RECORDS_PER_SECOND = 8e6
_SMALL_BATCHES_PER_SECOND = {1: 1e6, 5: 3e6, 100: 5e6}  # records, by how many a record batch has
_BYTES_PER_SECOND = 1e9
_TRANSACTION_MS = 15
_LOOKING_PERCENT = 2
_FLAT = 1.1  # the most memory that a batch of twice the size may need, or a query of twice as many, as a factor


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A row of the table: `holds` states whether the target is met, `aim` whether the more ambitious one is, if any.
    `in_reach`: whether it could be met if our own work took no time.
    """

    what: str
    target: str
    measured: str
    holds: bool
    aim: bool | None = None
    in_reach: bool = True

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if not self.holds:
            return "missed" if self.in_reach else "missed, out of reach"
        return {None: "met", True: "met, aim reached", False: "met"}[self.aim]


def table(results: Mapping[str, Measured]) -> tuple[TargetRow, ...]:
    """The rows for everything that was measured, in the table's order."""
    return tuple(row for rows in _ROWS for row in rows(results))


Results = Mapping[str, Measured]


def shape_ratios(results: Results) -> dict[str, dict[str, float]]:
    """The rate relative to the built-in connector's, by kind of run and by shape, the main shape first."""
    out: dict[str, dict[str, float]] = {}
    for kind, name, main in (("source", sides.EOS_SOURCE, "source-1"), ("copy", sides.EOS, "copy-1")):
        keys = {main: "100-byte values"} | {f"shape-{key}-{kind}": what for key, what in SHAPES.items()}
        for key, shape in keys.items():
            measured = results.get(key)
            if isinstance(measured, Comparison):
                out.setdefault(kind, {})[shape] = measured.ratio(name, sides.BUILT_IN)
    return out


def _faster(
    results: Results, key: str, what: str, name: str, against: str, *, least: float, aim: float | None = None
) -> Iterator[TargetRow]:
    measured = results.get(key)
    if not isinstance(measured, Comparison) or against not in {series.name for series in measured.series}:
        return
    ratio, rate = measured.ratio(name, against), measured.named(name).rate
    yield TargetRow(
        what=what,
        target=f"≥ {least:g} ×" + (f" (aim {aim:g} ×)" if aim else ""),
        measured=f"{ratio:.2f} × ({rate / 1e6:.2f} M records/s against {measured.named(against).rate / 1e6:.2f} M)",
        holds=ratio >= least,
        aim=None if aim is None else ratio >= aim,
    )


def _steady(results: Results) -> Iterator[TargetRow]:
    for key, (source, copy, arrow) in _STEADY_LEAST.items():
        for way in Way:
            measured = results.get(f"{STEADY}-{key}-{way}")
            if not isinstance(measured, Comparison):
                continue
            least = {Way.NOOP: source, Way.ARROW: (arrow,)}.get(way, copy)
            theirs, sides = (
                measured.named(BUILT_IN),
                [measured.named(name) for name in (OURS, OURS_SCHEMA)[: len(least)]],
            )
            ratios = [paired(ours, theirs) for ours in sides]
            milliseconds = ", ".join(f"{1e3 * ours.median:.0f}" for ours in sides)
            limit = _limit(results.get(f"{FLOOR}-{key}-{way}"))
            most = "" if limit is None else f"; at most {limit.median:.2f} ×"
            yield TargetRow(
                what=f"steady, plain settings: {described(measured)}",
                target=", with schema(…) ".join(f"≥ {minimum:g} ×" for minimum in least),
                measured=f"{', '.join(map(str, ratios))}; {milliseconds} against {1e3 * theirs.median:.0f} ms{most}",
                holds=all(ratio.median >= minimum for ratio, minimum in zip(ratios, least, strict=True)),
                in_reach=limit is None or limit.median >= least[0],
            )


def _limit(floor: Measured | None) -> Ratio | None:
    """The ratio to the built-in connector if our own work took no time, where that was measured: with what the brokers
    need, if that was, too.
    """
    if not isinstance(floor, Comparison):
        return None
    measured = {series.name: series for series in floor.series}
    return paired(measured.get(RELAYED, measured[READY_MADE]), measured[BUILT_IN])


def _first_batches(results: Results) -> Iterator[TargetRow]:
    for way in Way:
        for launched, longer in ((False, _PLAIN_FIRST_BATCH_SECONDS), (True, _FIRST_BATCH_SECONDS)):
            fresh = results.get(first_batch_name(way, launched=launched))
            if isinstance(fresh, Comparison):
                seconds = [fresh.named(name).median for name in (OURS, BUILT_IN)]
                what = f"first batch of a fresh session, {fresh.settings['python']}: {described(fresh)}"
                yield _first_batch(what, *seconds, longer=longer, least=_least(fresh))
        steady = results.get(f"{STEADY}-100k-{way}")
        if isinstance(steady, Comparison):
            seconds = [warm_first_batch(steady, name) for name in (OURS, BUILT_IN)]
            what = f"first batch of a query in a warm session: {way.words}"
            yield _first_batch(what, *seconds, longer=_FIRST_BATCH_SECONDS)


def _least(fresh: Comparison) -> float | None:
    """The seconds that a source and a sink in Python take that do nothing, where that was measured."""
    return {series.name: series.median for series in fresh.series}.get(NOTHING)


def _first_batch(what: str, ours: float, theirs: float, *, longer: float, least: float | None = None) -> TargetRow:
    at_least = "" if least is None else f"; in Python at least {least:.2f} s"
    return TargetRow(
        what=what,
        target=f"≤ built-in + {longer:g} s",
        measured=f"{ours:.2f} s against {theirs:.2f} s{at_least}",
        in_reach=least is None or least <= theirs + longer,
        holds=ours <= theirs + longer,
    )


def _main_rows(results: Results) -> Iterator[TargetRow]:
    built_in = sides.BUILT_IN
    what = "source → noop, streaming, one batch, against the built-in source"
    yield from _faster(results, "source-1", what, sides.EOS_SOURCE, built_in, least=1.5, aim=3)
    what = "batch read → noop, against the built-in source"
    yield from _faster(results, "read", what, sides.EOS_SOURCE, built_in, least=1.2, aim=2)
    copied = "source → sink exactly once"
    what = f"{copied}, one batch, against built-in at-least-once"
    yield from _faster(results, "copy-1", what, sides.EOS, built_in, least=1.5, aim=3)
    yield from _faster(results, "copy-1", "… against the collect recipe", sides.EOS, sides.RECIPE, least=8)
    what = f"{copied}, 20 batches, against built-in at-least-once"
    yield from _faster(results, "copy-20", what, sides.EOS, built_in, least=1.2, aim=3)
    for key, batches in (("copy-1", "one batch"), ("copy-20", "20 batches")):
        what = f'the same through format("kafka-eos"), {batches}'
        yield from _faster(results, key, what, sides.EOS_SINK, built_in, least=1.2, aim=3)


def _small_batches(results: Results) -> Iterator[TargetRow]:
    measured = results.get("latency")
    if not isinstance(measured, Comparison):
        return
    theirs = measured.named(sides.BUILT_IN).median * 1e3
    for name in (sides.EOS, sides.EOS_SINK):
        ours = measured.named(name).median * 1e3
        yield TargetRow(
            what=f"small batches, median trigger ({name})",
            target="≤ 2 × built-in (aim: equal)",
            measured=f"{ours / theirs:.2f} × ({ours:.0f} ms against {theirs:.0f} ms)",
            holds=ours <= 2 * theirs,
            aim=ours <= theirs,
        )
    for by_quantile in measured.settings["transaction_ms"].values():
        yield TargetRow(
            what="… of which the transaction's end (median)",
            target=f"≤ {_TRANSACTION_MS} ms",
            measured=f"{by_quantile['p50']:.1f} ms",
            holds=by_quantile["p50"] <= _TRANSACTION_MS,
        )


def _watched(results: Results) -> Iterator[TargetRow]:
    measured = results.get("watched")
    if not isinstance(measured, Comparison):
        return
    for name, cost in measured.settings["cost_percent"].items():
        low, high = cost["lower quartile"], cost["upper quartile"]
        yield TargetRow(
            what=f"cost of ProgressListener and its endpoint, small batches ({name})",
            target=f"≤ {_LOOKING_PERCENT} %",
            measured=f"{cost['median']:+.1f} % (quartiles {low:+.1f} to {high:+.1f})",
            holds=cost["median"] <= _LOOKING_PERCENT,
        )


def _guarantee(results: Results) -> Iterator[TargetRow]:
    for key, batches in (("copy-1", "one batch"), ("copy-20", "20 batches")):
        what = f"exactly-once against our own at-least-once, {batches}"
        yield from _faster(results, key, what, sides.EOS, sides.EOS_AT_LEAST_ONCE, least=0.95)


def _codec(results: Results) -> Iterator[TargetRow]:
    measured = results.get("codec")
    if not isinstance(measured, Comparison):
        return
    for name in (codec.ENCODE, codec.DECODE):
        rate = measured.named(name).rate
        yield TargetRow(
            what=f"codec alone, one core, 100-byte values: {name}",
            target=f"≥ {_RECORDS_PER_SECOND / 1e6:g} M records/s",
            measured=f"{rate / 1e6:.1f} M records/s, {measured.ratio(name, codec.FLOOR):.0%} of memory copy + CRC",
            holds=rate >= _RECORDS_PER_SECOND,
        )


def _codec_small(results: Results) -> Iterator[TargetRow]:
    measured = results.get("codec-small")
    if not isinstance(measured, Comparison):
        return
    for count, least in _SMALL_BATCHES_PER_SECOND.items():
        rate, zstd = (measured.named(codec.decode_small(count, compression)).rate for compression in ("none", "zstd"))
        yield TargetRow(
            what=f"codec alone, one core, {count} record{'s' if count > 1 else ''} per batch: decode",
            target=f"≥ {least / 1e6:g} M records/s",
            measured=f"{rate / 1e6:.1f} M records/s ({zstd / 1e6:.2f} M with zstd)",
            holds=rate >= least,
        )


def _registry(results: Results) -> Iterator[TargetRow]:
    ours, confluent, from_avro = registry.OURS, registry.CONFLUENT, registry.FROM_AVRO
    for key, what, against, least in (
        ("registry", "Avro of a schema registry, in Spark: decode, against Confluent's class", confluent, 5),
        ("registry", "… against Spark's from_avro with the header cut off", from_avro, 1),
        ("registry-decode", "Avro of a schema registry, one core: decode, against Confluent's class", confluent, 5),
        ("registry-encode", "… encode", confluent, 5),
    ):
        yield from _faster(results, key, what, ours, against, least=least)


def _transport(results: Results) -> Iterator[TargetRow]:
    measured = results.get("transport")
    if isinstance(measured, Comparison):
        speed = bytes_per_second(measured, WALL)
        yield TargetRow(
            what="fetch transport, one core",
            target=f"≥ {_BYTES_PER_SECOND / 1e9:g} GB/s",
            measured=f"{speed / 1e9:.2f} GB/s",
            holds=speed >= _BYTES_PER_SECOND,
        )


def _shapes(results: Results) -> Iterator[TargetRow]:
    for key, name in SHAPES.items():
        what = f"{name}: source → noop, one batch"
        yield from _faster(results, f"shape-{key}-source", what, sides.EOS_SOURCE, sides.BUILT_IN, least=_SOURCE_LEAST)
        what = f"{name}: source → sink exactly once, one batch"
        yield from _faster(results, f"shape-{key}-copy", what, sides.EOS, sides.BUILT_IN, least=_COPY_LEAST)
    for kind, name in (("source", sides.EOS_SOURCE), ("copy", sides.EOS)):
        few, many = results.get(f"shape-64-partitions-{kind}"), results.get(f"shape-512-partitions-{kind}")
        if isinstance(few, Comparison) and isinstance(many, Comparison):
            seconds = few.named(name).median, many.named(name).median
            power = growth([(64, seconds[0]), (512, seconds[1])])
            yield TargetRow(
                what=f"cost from 64 to 512 partitions, {kind}, the same records",
                target="grows at most linearly",
                measured=f"{seconds[1] / seconds[0]:.2f} × the time for 8 × the partitions",
                holds=power <= 1,
            )


def _memory(results: Results) -> Iterator[TargetRow]:
    for key, what in MEMORY.items():
        yield from _flat(results, key, f"memory of {what}, every path", "batch grows", "records")
    yield from _flat(results, "memory-stream", "memory of one query's processes", "query runs", "micro-batches")


def _flat(results: Results, key: str, what: str, while_: str, unit: str) -> Iterator[TargetRow]:
    """The line that has grown the most in the second half of the sweep."""
    measured = results.get(key)
    if not isinstance(measured, Sweep):
        return
    halves = []
    for line in measured.lines:
        points = measured.line(line)
        half = next(point for point in points if 3 * point.at >= points[-1].at)  # halves are rounded
        halves.append((points[-1].value / half.value, line, half, points[-1]))
    growth, line, half, last = max(halves, key=lambda entry: entry[0])
    yield TargetRow(
        what=what,
        target=f"flat while the {while_}",
        measured=f"{line}: {last.value:.0f} MB at {last.at:,.0f} {unit}, {half.value:.0f} MB at {half.at:,.0f}",
        holds=growth <= _FLAT,
    )


_ROWS: tuple[Callable[[Results], Iterator[TargetRow]], ...] = (
    _steady,
    _first_batches,
    _main_rows,
    _small_batches,
    _watched,
    _guarantee,
    _codec,
    _codec_small,
    _registry,
    _transport,
    _shapes,
    _memory,
)
