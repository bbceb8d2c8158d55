"""The arithmetic of steady state: what counts of a query, ratios of pairs, CPU time by rows, and the tables. Pure.

trigger         `triggerExecution` of a full micro-batch after the first three
pair            the runs of two sides in the same round, which have the same load on the machine
CPU time        of the session's driver, JVM and Python workers, without the broker
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any

from lab.bench.figures import Comparison, Series, Sweep
from spark_kafka_eos.errors import ToolFailed

SKIPPED = 3  # micro-batches at the start of a query, which start processes and connections
_FULL = 0.95  # of the rows asked for: Spark divides them by partitions, and rounds

OURS, OURS_SCHEMA, BUILT_IN = "kafka-eos", "kafka-eos, schema(…)", "built-in"
READY_MADE = "rows ready-made and dropped"
RELAYED = "the same, with the bytes fetched and appended"
NOTHING = "a source and a sink that do nothing"
STEADY, FIRST_BATCH, SETTINGS, FLOOR = "steady", "first-batch", "settings", "floor"
_CPU = "steady-cpu"
TABLES = (STEADY, _CPU, FIRST_BATCH, SETTINGS, FLOOR)  # the names of their markers in a page
PLAIN_SETTINGS, LAUNCHED_PYTHON = "plain settings", "kafka-eos-python"


class Way(StrEnum):
    """What a query does with the rows of a source. The built-in connector's counterpart of ARROW is FOREACH_BATCH."""

    NOOP = "noop"
    FOREACH_BATCH = "foreach-batch"
    SINK = "sink"
    ARROW = "arrow"

    @property
    def words(self) -> str:
        """The way as a table says it."""
        return {
            Way.NOOP: "source → noop",
            Way.FOREACH_BATCH: "copy, foreachBatch",
            Way.SINK: "copy, format's sink",
            Way.ARROW: "copy, arrow_stream",
        }[self]


Progress = Sequence[Mapping[str, Any]]  # Spark's StreamingQueryProgress of each micro-batch, as its JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What was used while micro-batches ran, in seconds: wall time, the session's CPU time, and idle time of cores."""

    wall: float
    cpu: float
    idle: float
    cores: int

    @property
    def idle_share(self) -> float:
        """The share of all cores that was idle."""
        return self.idle / (self.wall * self.cores)


def counted(progress: Progress, rows: int) -> list[Mapping[str, int]]:
    """The phases in ms (`durationMs`) of the full micro-batches of `rows` records, without the first `SKIPPED`.

    Raises ToolFailed if none is left.
    """
    full = [batch["durationMs"] for batch in progress if batch["numInputRows"] >= _FULL * rows]
    if len(full) <= SKIPPED:
        raise ToolFailed(f"only {len(full)} micro-batches of {rows:,} records, but the first {SKIPPED} do not count")
    return full[SKIPPED:]


def trigger_seconds(progress: Progress, rows: int) -> float:
    """The median trigger of the micro-batches that count."""
    return median(phases["triggerExecution"] for phases in counted(progress, rows)) / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast one side is as another: the median of the rounds, the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} × ({self.low:.2f}-{self.high:.2f})"


def paired(ours: Series, theirs: Series) -> Ratio:
    """The ratio of rounds: each run of `ours` against the run of `theirs` in the same round."""
    ratios = [other / own for own, other in zip(ours.seconds, theirs.seconds, strict=True)]
    return Ratio(median=median(ratios), low=min(ratios), high=max(ratios))


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLine:
    """The CPU time of a trigger with n million rows: `fixed` + n * `per_million`, in seconds."""

    fixed: float
    per_million: float


def cpu_line(few: tuple[int, float], many: tuple[int, float]) -> CpuLine:
    """The line through two points: (rows of a micro-batch, CPU seconds of it)."""
    slope = (many[1] - few[1]) / (many[0] - few[0])
    return CpuLine(fixed=few[1] - slope * few[0], per_million=1e6 * slope)


def ratios(results: Mapping[str, Comparison | Sweep]) -> dict[str, dict[str, float]]:
    """For the plot: how many times as fast as the built-in connector, by side and by way and load."""
    out: dict[str, dict[str, float]] = {}
    for measured in _of(results, STEADY):
        for name in _sides(measured)[1:]:
            ratio = paired(measured.named(name), measured.named(BUILT_IN))
            out.setdefault(name, {})[described(measured)] = ratio.median
    return out


# -- tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of text. `rounds`: how many rounds its figures are medians of."""

    name: str  # of its markers in a page
    files: str  # how the names of its files begin
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    rounds: int

    @property
    def markdown(self) -> str:
        ruler = ["---", *("---:" for _ in self.headings[1:])]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.headings, ruler, *self.rows))


def grids(results: Mapping[str, Comparison | Sweep]) -> list[Grid]:
    """The tables for what was measured, by the names of its files."""
    steady, first, settings, floor = (_of(results, kind) for kind in (STEADY, FIRST_BATCH, SETTINGS, FLOOR))
    tables = (_triggers(steady), _cpu(steady), _first_batches(first, steady), _settings(settings), _floor(floor))
    return [grid for grid in tables if grid.rows]


def _of(results: Mapping[str, Comparison | Sweep], kind: str) -> list[Comparison]:
    """The comparisons of this kind, in the order of a table."""
    named = [measured for key, measured in results.items() if key.startswith(f"{kind}-")]
    comparisons = (measured for measured in named if isinstance(measured, Comparison))
    return sorted(
        comparisons, key=lambda measured: (_order(measured), measured.settings.get("python") == LAUNCHED_PYTHON)
    )


def _order(measured: Comparison) -> tuple[int, int, int]:
    settings = measured.settings
    return list(Way).index(Way(settings["way"])), settings["value_bytes"], settings["rows"]


def _rounds(measured: Iterable[Comparison]) -> int:
    return min((len(comparison.series[0].seconds) for comparison in measured), default=0)


def described(measured: Comparison) -> str:
    """The way and the micro-batches of a measurement in words."""
    settings = measured.settings
    return f"{Way(settings['way']).words}: {settings['rows']:,} × {settings['values']}"


def _milliseconds(series: Series) -> str:
    return f"{1e3 * series.median:.0f}"


def _triggers(steady: Sequence[Comparison]) -> Grid:
    rows = []
    for measured in steady:
        theirs, idle = measured.named(BUILT_IN), measured.settings["idle"]
        cells = [described(measured), _milliseconds(theirs)]
        for name in (OURS, OURS_SCHEMA):
            ours = measured.named(name) if name in _sides(measured) else None
            cells += [_milliseconds(ours), str(paired(ours, theirs))] if ours else ["", ""]
        cells += [" / ".join(f"{median(idle[name]):.0%}" for name in _sides(measured))]
        rows.append(tuple(cells))
    headings = ("ms of a trigger", "built-in", "ours", "ratio", "with schema(…)", "ratio", "both cores idle")
    return Grid(name=STEADY, files=STEADY, headings=headings, rows=tuple(rows), rounds=_rounds(steady))


def _sides(measured: Comparison) -> list[str]:
    """The built-in side, then ours, the one with schema(…) only if it took part."""
    took_part = {series.name for series in measured.series}
    return [name for name in (BUILT_IN, OURS, OURS_SCHEMA) if name in took_part]


def _cpu(steady: Sequence[Comparison]) -> Grid:
    """A row for each way and kind of record that was measured on all its sides with two sizes of batches; of more, the
    largest two. ARROW has no side with schema(…).
    """
    rows, names = [], [BUILT_IN, OURS, OURS_SCHEMA]
    alike: dict[tuple[str, str], list[Comparison]] = {}
    for measured in (
        comparison for comparison in steady if _sides(comparison) == names or comparison.settings["way"] == Way.ARROW
    ):
        alike.setdefault((measured.settings["way"], measured.settings["values"]), []).append(measured)
    for (way, values), sizes in alike.items():
        if len(sizes) < 2:
            continue
        sides = _sides(sizes[-1])
        lines = [cpu_line(*(_cpu_of(size, name) for size in sizes[-2:])) for name in sides]
        absent = [""] * (len(names) - len(sides))
        slopes, fixed = [f"{line.per_million:.1f}" for line in lines], [f"{1e3 * line.fixed:.0f}" for line in lines]
        rows.append((f"{Way(way).words}: {values}", *slopes, *absent, *fixed, *absent))
    headings = [f"{what}, {name}" for what in ("s per million rows", "fixed ms") for name in _SHORT]
    return Grid(name=_CPU, files=STEADY, headings=("CPU", *headings), rows=tuple(rows), rounds=_rounds(steady))


_SHORT = ("built-in", "ours", "schema(…)")


def _cpu_of(measured: Comparison, name: str) -> tuple[int, float]:
    return measured.settings["rows"], median(measured.settings["cpu_seconds"][name])


def first_batch_name(way: Way, *, launched: bool = False) -> str:
    """The name of the file with a fresh session's first batches; `launched`: whose Python is `kafka-eos-python`."""
    return f"{FIRST_BATCH}-launched-{way}" if launched else f"{FIRST_BATCH}-{way}"


def warm_first_batch(steady: Comparison, name: str) -> float:
    """The seconds from start() to the end of batch 0 of queries of a session that has run others."""
    return float(median(steady.settings["first_batch_seconds"][name]))


def _first_batches(first: Sequence[Comparison], steady: Sequence[Comparison]) -> Grid:
    """`first`: of fresh sessions. The warm ones are the queries of `steady` with as many rows."""
    rows, fresh = [], {BUILT_IN: _SHORT[0], OURS: _SHORT[1]}
    if any(NOTHING in {series.name for series in comparison.series} for comparison in first):
        fresh[NOTHING] = f"{NOTHING}, in Python"
    for measured in first:
        seconds = {series.name: f"{series.median:.1f}" for series in measured.series}
        cells = [f"{described(measured)}, {measured.settings['python']}", *(seconds.get(name, "") for name in fresh)]
        plain = measured.settings["python"] == PLAIN_SETTINGS  # as all of steady state
        warm = [comparison for comparison in steady if plain and _order(comparison) == _order(measured)]
        cells += [f"{warm_first_batch(warm[0], name):.1f}" if warm else "" for name in (BUILT_IN, OURS)]
        rows.append(tuple(cells))
    headings = [f"a fresh session's first query, {name}" for name in fresh.values()]
    headings += [f"a warm session's query, {name}" for name in _SHORT[:2]]
    return Grid(name=FIRST_BATCH, files=FIRST_BATCH, headings=("s", *headings), rows=tuple(rows), rounds=_rounds(first))


_AND = ", with "


def setting_side(name: str, setting: str) -> str:
    """The name of a side in the comparison of settings."""
    return f"{name}{_AND}{setting}"


def _settings(measured: Sequence[Comparison]) -> Grid:
    rows = []
    for comparison in measured:
        first, sides = comparison.settings["first_batch_seconds"], {series.name: series for series in comparison.series}
        for setting in dict.fromkeys(name.split(_AND)[1] for name in sides):
            cells = [f"{Way(comparison.settings['way']).words}: {setting}"]
            for name in (BUILT_IN, OURS):
                series, plain = sides.get(setting_side(name, setting)), sides[setting_side(name, PLAIN_SETTINGS)]
                if series is None:  # the built-in source has no schema(…)
                    cells += ["", ""]
                else:
                    cells += [_milliseconds(series), "" if series is plain else str(paired(series, plain))]
            rows.append((*cells, f"{median(first[setting_side(OURS, setting)]):.1f}"))
    headings = ("ms of a trigger", "built-in", "against plain", "ours", "against plain", "first batch, ours, s")
    return Grid(name=SETTINGS, files=SETTINGS, headings=headings, rows=tuple(rows), rounds=_rounds(measured))


def _floor(measured: Sequence[Comparison]) -> Grid:
    columns = {OURS: ("ours", "ratio"), READY_MADE: ("Spark alone", "ratio at most")}
    if all(RELAYED in {series.name for series in comparison.series} for comparison in measured):  # not in older files
        columns[RELAYED] = ("Spark and brokers", "ratio at most")
    rows = []
    for comparison in measured:
        theirs, sides = comparison.named(BUILT_IN), [comparison.named(name) for name in columns]
        cells = (cell for side in sides for cell in (_milliseconds(side), str(paired(side, theirs))))
        rows.append((described(comparison), _milliseconds(theirs), *cells))
    headings = ("ms of a trigger", "built-in", *itertools.chain(*columns.values()))
    return Grid(name=FLOOR, files=FLOOR, headings=headings, rows=tuple(rows), rounds=_rounds(measured))
