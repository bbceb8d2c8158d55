"""How long a job takes, calculated from what steady state and first batches showed. Pure.

A job copies a topic once, with `availableNow`, and ends. Its tasks' CPU time grows with records and with bytes; the
cores share it, as busy as they were when it was measured. `format("kafka-eos")` appends in one process, whatever cores
there are. The brokers' work is not in it: they have cores of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from lab.bench.figures import Comparison
from lab.bench.steady_figures import BUILT_IN, FIRST_BATCH, OURS, STEADY, Grid, Way, first_batch_name
from lab.bench.store import Measured

NAME, COSTS = "job-time", "job-cost"  # of the markers in a page
WAYS = (Way.SINK, Way.FOREACH_BATCH, Way.ARROW)
_KEY_BYTES = 8
# One process of the driver stamps, computes CRCs and sends: docs/scaling.md, "The driver's network".
_DRIVER_BYTES_PER_SECOND = 0.6e9
_RECORDS = (1_000_000, 100_000_000, 1_000_000_000)
_VALUE_BYTES = (100, 1_000)
_CORES = (2, 8, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a job of one side costs: `start` seconds of the clock before anything else, seconds of a core for each
    record and each byte of keys and values, and the share of the cores that was busy.
    """

    start: float
    per_record: float
    per_byte: float
    busy: float

    def seconds(self, records: int, value_bytes: int, cores: int, *, most_bytes: float | None = None) -> float:
        """The seconds from `start()` to the commit. `most_bytes`: how many one process can append in a second."""
        size = records * (_KEY_BYTES + value_bytes)
        tasks = (records * self.per_record + size * self.per_byte) / (cores * self.busy)
        return self.start + max(tasks, size / most_bytes if most_bytes else 0.0)


def cost(few: Comparison, many: Comparison, larger: Comparison, first: Comparison, name: str) -> Cost:
    """The cost of a side, from micro-batches of `few` and `many` records of one size, and of records of a `larger` one.

    A record and a byte cost what explains both differences.
    """
    rows = [measured.settings["rows"] for measured in (few, many, larger)]
    size = [_KEY_BYTES + measured.settings["value_bytes"] for measured in (few, many, larger)]
    cpu = [median(measured.settings["cpu_seconds"][name]) for measured in (few, many, larger)]
    of_a_record = (cpu[1] - cpu[0]) / (rows[1] - rows[0])
    fixed = cpu[0] - rows[0] * of_a_record
    per_byte = max(0.0, ((cpu[2] - fixed) / rows[2] - of_a_record) / (size[2] - size[0]))
    busy = 1 - median(many.settings["idle"][name])
    start = first.named(name).median
    return Cost(start=start, per_record=of_a_record - per_byte * size[0], per_byte=per_byte, busy=busy)


def costs(results: Mapping[str, Measured]) -> dict[tuple[Way, str], Cost]:
    """By way and side, of those ways that were measured with all that is needed."""
    return dict(_costs(results))


def _costs(results: Mapping[str, Measured]) -> Iterator[tuple[tuple[Way, str], Cost]]:
    for way in WAYS:
        names = [f"{STEADY}-{load}-{way}" for load in ("100k", "500k", "1kb")]
        needed = [results.get(name) for name in (*names, first_batch_name(way, launched=True))]
        measured = [result for result in needed if isinstance(result, Comparison)]
        if len(measured) == len(needed):
            few, many, larger, first = measured
            yield from (((way, name), cost(few, many, larger, first, name)) for name in (OURS, BUILT_IN))


def job_times(results: Mapping[str, Measured]) -> list[Grid]:
    """The tables of job times, and of what they are calculated from: ours, and the built-in connector's. No table if
    something was not measured.
    """
    by_side = costs(results)
    if not all((way, name) in by_side for way in WAYS for name in (OURS, BUILT_IN)):
        return []
    used = (result for name, result in results.items() if name.startswith((f"{STEADY}-", f"{FIRST_BATCH}-")))
    rounds = min(len(result.series[0].seconds) for result in used if isinstance(result, Comparison))
    return [_times(by_side, rounds), _costs_of(by_side, rounds)]


def _times(by_side: Mapping[tuple[Way, str], Cost], rounds: int) -> Grid:
    rows = []
    for records in _RECORDS:
        for value_bytes in _VALUE_BYTES:
            for way in WAYS:
                most = _DRIVER_BYTES_PER_SECOND if way is Way.SINK else None
                cells = []
                for cores in _CORES:
                    ours = by_side[way, OURS].seconds(records, value_bytes, cores, most_bytes=most)
                    theirs = by_side[way, BUILT_IN].seconds(records, value_bytes, cores)
                    cells.append(f"{in_words(ours)} / {in_words(theirs)}")
                rows.append((f"{_millions(records)} × {value_bytes:,} bytes, {way.words}", *cells))
    headings = ("ours / built-in", *(f"{cores} cores" for cores in _CORES))
    return Grid(name=NAME, files=STEADY, headings=headings, rows=tuple(rows), rounds=rounds)


def _costs_of(by_side: Mapping[tuple[Way, str], Cost], rounds: int) -> Grid:
    rows = []
    for way in WAYS:
        ours, theirs = by_side[way, OURS], by_side[way, BUILT_IN]
        cells = (
            f"{1e6 * ours.per_record:.2f} / {1e6 * theirs.per_record:.2f}",
            f"{1e9 * ours.per_byte:.1f} / {1e9 * theirs.per_byte:.1f}",
            f"{ours.busy:.0%} / {theirs.busy:.0%}",
            f"{ours.start:.1f} / {theirs.start:.1f}",
        )
        rows.append((way.words, *cells))
    headings = ("ours / built-in", "µs of a core per record", "ns of a core per byte", "cores busy", "start, s")
    return Grid(name=COSTS, files=STEADY, headings=headings, rows=tuple(rows), rounds=rounds)


def _millions(records: int) -> str:
    return f"{records / 1e6:,.0f} million" if records < 1e9 else f"{records / 1e9:,.0f} billion"


def in_words(seconds: float) -> str:
    """Two digits, in the unit that people would use: `3.5 s`, `12 min`, `1.4 h`."""
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (float("inf"), 3_600, "h")):
        if seconds < limit:
            value = seconds / unit
            return f"{value:.1f} {name}" if value < 10 else f"{value:.0f} {name}"
    raise AssertionError("infinity is the last limit")
