"""The picture at the top of README.md: a job's start, and its steady state, ours beside the built-in connector's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.bench.figures import Comparison
from lab.bench.plots import new_figure
from lab.bench.steady_figures import BUILT_IN, OURS, STEADY, Way, first_batch_name
from lab.bench.store import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours for pages of this brightness."""

    name: str
    text: str
    ours: str
    built_in: str


THEMES = (
    Theme(name="light", text="#1f2328", ours="#1f77b4", built_in="#b0b0b0"),
    Theme(name="dark", text="#e6edf3", ours="#58a6ff", built_in="#6e7681"),
)
_LOADS = ("1k", "100k", "500k")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A panel: its title, and for each label our value and the built-in connector's."""

    title: str
    values: Mapping[str, tuple[float, float]]


def panels(results: Mapping[str, Measured]) -> tuple[Bars, Bars] | None:
    """Seconds of a start, and milliseconds of a trigger, of the sink. None if not all of it was measured."""
    starts = [results.get(first_batch_name(Way.SINK, launched=launched)) for launched in (False, True)]
    loads = [results.get(f"{STEADY}-{load}-{Way.SINK}") for load in _LOADS]
    arrow = [results.get(f"{STEADY}-{load}-{Way.ARROW}") for load in _LOADS[1:]]
    if not all(isinstance(measured, Comparison) for measured in (*starts, *loads, *arrow)):
        return None
    return (
        Bars(
            title="first commit of a fresh session, s",
            values={
                label: _pair(measured, 1)
                for label, measured in zip(("nothing set", "recommended"), starts, strict=True)
            },
        ),
        Bars(
            title="a micro-batch in steady state, ms",
            values={_words(measured): _pair(measured, 1e3) for measured in (*loads, *arrow)},
        ),
    )


def _pair(measured: Any, scale: float) -> tuple[float, float]:
    return measured.named(OURS).median * scale, measured.named(BUILT_IN).median * scale


def _words(measured: Any) -> str:
    way = {Way.SINK: "sink", Way.ARROW: "arrow_stream"}[Way(measured.settings["way"])]
    return f"{way}, {measured.settings['rows']:,} records"


def draw(panels: Sequence[Bars], directory: Path) -> list[Path]:
    """Write an SVG for each theme, and return their paths. Raises ToolFailed without matplotlib."""
    return [_draw(panels, theme, directory / f"start-and-steady-{theme.name}.svg") for theme in THEMES]


def _draw(panels: Sequence[Bars], theme: Theme, path: Path) -> Path:
    figure, axes = new_figure(9, 2.6, panels=len(panels), sharey=False)
    for panel, bars in zip(axes, panels, strict=True):
        height = 0.38
        for number, (colour, name) in enumerate(((theme.ours, "kafka-eos"), (theme.built_in, "built-in"))):
            places = [row + (number - 0.5) * height for row in range(len(bars.values))]
            lengths = [pair[number] for pair in bars.values.values()]
            drawn = panel.barh(places, lengths, height, color=colour, label=name)
            panel.bar_label(drawn, fmt="%.1f" if max(lengths) < 100 else "%.0f", padding=3, color=theme.text, size=8)
        panel.set_yticks(range(len(bars.values)), list(bars.values), color=theme.text, size=9)
        panel.invert_yaxis()
        panel.set_xticks([])
        panel.margins(x=0.15)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        panel.set_title(bars.title, color=theme.text, size=10, loc="left")
    axes[-1].legend(fontsize=8, frameon=False, labelcolor=theme.text)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    return path
