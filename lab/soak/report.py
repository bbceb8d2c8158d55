"""The result of a soak: a table, a JSON file, and an HTML page with throughput and faults."""

from __future__ import annotations

import base64
import html
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from lab.bench.machine import Machine
from lab.bench.plots import new_figure
from lab.soak.check import QueryOutcome
from lab.soak.faults import Injected
from lab.soak.queries import STATEFUL
from lab.soak.schedule import FaultKind

_BIN_SECONDS = 5.0
_TOP = 2.0  # of the scale, as a multiple of the source's highest rate
_COLOURS = {
    FaultKind.DRIVER_KILLED: "#d62728",
    FaultKind.CHECKPOINT_LOST: "#8c564b",
    FaultKind.EXECUTOR_KILLED: "#ff7f0e",
    FaultKind.DRIVER_PAUSED: "#e377c2",
    FaultKind.BROKER_KILLED: "#000000",
    FaultKind.BROKER_PAUSED: "#7f7f7f",
    FaultKind.CONNECTIONS_CUT: "#17becf",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Records so far, `seconds` after the start: those that the producer committed, and those in each output."""

    seconds: float
    source: int
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySide:
    """One query. `ended`: why drivers ended without being killed. `redone`: batches that a driver wrote again. `lost`:
    lost checkpoints. `violated`: invariants that `kafka-eos verify` found violated, with the place, or could not prove.
    """

    name: str
    drivers: int
    ended: tuple[str, ...]
    redone: int
    lost: int
    outcome: QueryOutcome
    violated: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """The result of a soak. `records`: visible records of the source. `aborted`: records in intentionally aborted
    transactions. `hanging`: partitions that end in an open transaction. `drained`: whether all queries reached the
    source's end.
    """

    seed: int
    minutes: float
    brokers: int
    kafka_version: str
    machine: Machine
    faults: tuple[Injected, ...]
    samples: tuple[Progress, ...]
    records: int
    aborted: int
    sides: tuple[QuerySide, ...]
    hanging: int
    drained: bool

    @property
    def holds(self) -> bool:
        right = all(side.outcome.holds and not side.violated for side in self.sides)
        return right and self.drained and not self.hanging and not self.nothing

    @property
    def nothing(self) -> tuple[str, ...]:
        """What there was none of, so that nothing is proved."""
        counts = {
            "records": self.records,
            "faults": len(self.faults),
            **{f"batches of {side.name}": side.outcome.batches for side in self.sides},
        }
        return tuple(what for what, count in counts.items() if not count)

    @property
    def kinds(self) -> Counter[FaultKind]:
        return Counter(injected.fault.kind for injected in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: a figure for each query, or one for all; `expected` are the required values, if any."""

    name: str
    figures: tuple[int, ...]
    expected: tuple[int, ...] | None = None

    @property
    def holds(self) -> bool:
        return self.expected is None or self.figures == self.expected


def rows(soaked: Soaked) -> Iterator[Row]:
    """The rows of the table."""
    sides = soaked.sides
    outcomes = [side.outcome for side in sides]
    yield Row(name="records in", figures=(soaked.records,) * len(sides))
    yield Row(
        name="records out",
        figures=tuple(outcome.found for outcome in outcomes),
        expected=tuple(outcome.expected for outcome in outcomes),
    )
    yield Row(name="micro-batches", figures=tuple(outcome.batches for outcome in outcomes))
    yield Row(name="… written again", figures=tuple(side.redone for side in sides))
    yield Row(name="drivers started", figures=tuple(side.drivers for side in sides))
    yield Row(name="… ended by themselves", figures=tuple(len(side.ended) for side in sides))
    yield Row(name="checkpoints lost", figures=tuple(side.lost for side in sides))
    for name in ("lost", "duplicated", "torn", "aborted_visible", "wrong"):
        counts = tuple(int(getattr(outcome, name)) for outcome in outcomes)
        yield Row(name=name.replace("_", " "), figures=counts, expected=(0,) * len(sides))
    violated = tuple(len(side.violated) for side in sides)
    yield Row(name="invariants violated", figures=violated, expected=(0,) * len(sides))
    yield Row(name="hanging", figures=(soaked.hanging,), expected=(0,))


def summary(soaked: Soaked) -> str:
    """The result in one line."""
    outcomes = [side.outcome for side in soaked.sides]
    zeros = ", ".join(
        f"{name.replace('_', ' ')} {sum(getattr(outcome, name) for outcome in outcomes)}"
        for name in ("lost", "duplicated", "torn", "aborted_visible")
    )
    return (
        f"faults injected {len(soaked.faults)}, records {soaked.records:,} in and "
        f"{sum(outcome.found for outcome in outcomes):,} out, {zeros}, hanging {soaked.hanging}"
    )


def faults(soaked: Soaked) -> str:
    """The number of faults of each kind."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(soaked.kinds.items()))


def remarks(soaked: Soaked) -> Iterator[str]:
    """Details that do not fit into the table: violations, and why drivers ended by themselves."""
    if soaked.nothing:
        yield f"There were no {', no '.join(soaked.nothing)}: nothing is proved."
    if not soaked.drained:
        yield "The queries did not reach the end of the source."
    for side in soaked.sides:
        yield from (f"{side.name}: {what}" for what in side.violated)
        for why, count in Counter(side.ended).items():
            yield f"{side.name}: drivers that ended by themselves: {count} ({why})"


def table(soaked: Soaked) -> Table:
    """The table for a terminal."""
    out = Table("", title="Exactly once?", title_justify="left")
    for side in soaked.sides:
        out.add_column(side.name, justify="right")
    out.add_column("")
    for row in rows(soaked):
        figures = [f"{figure:,}" for figure in row.figures] + [""] * (len(soaked.sides) - len(row.figures))
        out.add_row(row.name, *figures, _mark(row, "[green]ok[/green]", "[bold red]WRONG[/bold red]"))
    return out


def write(soaked: Soaked, folder: Path) -> Path:
    """Write `soak.json` and `soak.html` to the folder, which is created; return the page's path. Raises ToolFailed
    without matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(to_json(soaked), indent=1) + "\n")
    path = folder / "soak.html"
    path.write_text(page(soaked))
    return path


def to_json(soaked: Soaked) -> dict[str, Any]:
    """The result as plain values."""
    return asdict(soaked) | {"holds": soaked.holds, "summary": summary(soaked), "kinds": dict(soaked.kinds)}


def page(soaked: Soaked) -> str:
    """A self-contained HTML page."""
    plotted = base64.b64encode(plot(soaked)).decode()
    verdict = "exactly once" if soaked.holds else "NOT exactly once"
    head = "".join(f"<th>{side.name}</th>" for side in soaked.sides)
    body = "".join(
        f"<tr><td>{row.name}</td>"
        + "".join(f"<td>{figure:,}</td>" for figure in row.figures)
        + "<td></td>" * (len(soaked.sides) - len(row.figures))
        + f"<td>{_mark(row, 'ok', '<b>WRONG</b>')}</td></tr>"
        for row in rows(soaked)
    )
    items = "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks(soaked))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Soak: {verdict}</title><style>
body {{ font: 15px/1.4 sans-serif; max-width: 62em; margin: 1em auto; padding: 0 1em }}
td, th {{ padding: .1em 1em; text-align: right }} td:first-child {{ text-align: left }} img {{ width: 100% }}
</style></head><body>
<h1>{soaked.minutes:g} minutes of faults: {verdict}</h1>
<p>{html.escape(summary(soaked))}.</p>
<img alt="throughput and faults over time" src="data:image/png;base64,{plotted}">
<table><tr><th></th>{head}<th></th></tr>{body}</table>
<p>Faults: {html.escape(faults(soaked))}.</p>
<ul>{items}</ul>
<p>Seed {soaked.seed}; {soaked.brokers} broker(s) of Kafka {soaked.kafka_version}.
{html.escape(str(soaked.machine))}.</p>
</body></html>
"""


def rates(samples: Sequence[Progress], width: float = _BIN_SECONDS) -> list[tuple[float, float, tuple[float, ...]]]:
    """Records per second in intervals of at least `width` seconds: (end of the interval, source, outputs)."""
    intervals = []
    before = samples[0] if samples else None
    for sample in samples:
        if before is None or (seconds := sample.seconds - before.seconds) < width:
            continue
        outputs = tuple((now - then) / seconds for now, then in zip(sample.outputs, before.outputs, strict=True))
        intervals.append((sample.seconds, (sample.source - before.source) / seconds, outputs))
        before = sample
    return intervals


def plot(soaked: Soaked) -> bytes:
    """A PNG of throughput and faults over time. Raises ToolFailed without matplotlib.

    The stateful query has its own scale, because it writes fewer records than it reads. After a long outage, a copy
    catches up in one batch, which exceeds the scale; otherwise, the rest would be too small to read.
    """
    figure, axes = new_figure(11, 4.5)
    intervals = rates(soaked.samples)
    at = [seconds for seconds, _, _ in intervals]
    axes.step(at, [source for _, source, _ in intervals], where="pre", color="#bbbbbb", label="source")
    for number, side in enumerate(soaked.sides):
        scale = axes.twinx() if side.name == STATEFUL else axes
        name = f"{side.name} output"
        scale.step(at, [outputs[number] for _, _, outputs in intervals], where="pre", color=f"C{number}", label=name)
        if side.name == STATEFUL:
            scale.set_ylim(bottom=0)
            scale.set_ylabel(f"records per second: {name}", color=f"C{number}")
    axes.set_ylim(0, _TOP * max([1.0, *(source for _, source, _ in intervals)]))
    axes.set_ylabel("records per second: source and copies")
    named: set[FaultKind] = set()
    for injected in soaked.faults:
        kind = injected.fault.kind
        colour, label = _COLOURS[kind], None if kind in named else kind.value
        named.add(kind)
        axes.axvline(injected.at, color=colour, linewidth=1, linestyle="--", label=label)
        if injected.until > injected.at:
            axes.axvspan(injected.at, injected.until, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("seconds; records count when a read_committed consumer reads them")
    figure.legend(loc="outside right upper", fontsize="small")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def _mark(row: Row, right: str, wrong: str) -> str:
    if row.expected is None:
        return ""
    return right if row.holds else wrong
