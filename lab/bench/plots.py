"""Plots measurements as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.bench.figures import Comparison, Sweep
from spark_kafka_eos.errors import ToolFailed

_OURS, _OTHERS = "#1f77b4", "#999999"
_MARKERS = "osD^vPX*<>"
_LINEAR = 30


def plot(measured: Comparison | Sweep, path: Path) -> None:
    """Write a PNG. Raises ToolFailed without matplotlib."""
    panels = measured.panels if isinstance(measured, Sweep) else ()
    figure, axes = new_figure(panels=max(1, len(panels)))
    if isinstance(measured, Comparison):
        _bars(axes, measured)
    elif not panels:
        _lines(axes, measured, {name: name for name in measured.lines})
        axes.legend(fontsize="small")
    else:
        for subplot, panel in zip(axes, panels, strict=True):
            _lines(subplot, measured, {name: name.removeprefix(f"{panel}, ") for name in measured.lines_of(panel)})
            subplot.set_title(panel, fontsize="medium")
            subplot.label_outer()
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    if isinstance(measured, Sweep):
        _scale(figure.axes[0], measured)  # of all panels, and after the last one is drawn
    figure.suptitle(measured.title, fontsize="medium")
    figure.savefig(path, dpi=120)


def ratios(title: str, by_kind: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Write a PNG with bars grouped by kind, and a line at 1. Raises ToolFailed without matplotlib."""
    figure, axes = new_figure()
    names = list(dict.fromkeys(name for by_name in by_kind.values() for name in by_name))
    height = 0.8 / len(by_kind)
    for number, (kind, by_name) in enumerate(by_kind.items()):
        places = [names.index(name) + (number - (len(by_kind) - 1) / 2) * height for name in by_name]
        axes.barh(places, list(by_name.values()), height, label=kind)
    axes.set_yticks(range(len(names)), names)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    axes.set_title(title, fontsize="medium")
    figure.savefig(path, dpi=120)


def new_figure(width: float = 8, height: float = 4.5, panels: int = 1, *, sharey: bool = True) -> tuple[Any, Any]:
    """An empty figure with this size in inches, and its axes; those of several panels side by side are an array, and
    share their y axis unless `sharey` is false.

    Raises ToolFailed without matplotlib.
    """
    try:
        from matplotlib.figure import Figure  # not pyplot: no window, no global state
    except ImportError:
        raise ToolFailed("matplotlib is not installed", action="Run: pip install matplotlib") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, panels, sharey=sharey)


def _bars(axes: Any, measured: Comparison) -> None:
    """Medians as bars, ours in color, and every run as a dot."""
    names = [series.name for series in measured.series]
    unit, scale = ("milliseconds", 1e3) if max(series.median for series in measured.series) < 1 else ("seconds", 1.0)
    colours = [_OURS if name.startswith("kafka-eos") else _OTHERS for name in names]
    axes.barh(names, [series.median * scale for series in measured.series], color=colours)
    for number, series in enumerate(measured.series):
        axes.plot([took * scale for took in series.seconds], [number] * len(series.seconds), "k.", markersize=4)
    axes.invert_yaxis()
    axes.set_xlabel(f"{unit}; the bar is the median, a dot is a run")


def _scale(axes: Any, measured: Sweep) -> None:
    """The y axis from 0 on, or a logarithmic one if the values differ by too much for that."""
    values = [point.value for point in measured.points]
    if min(values) > 0 and max(values) / min(values) > _LINEAR:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _lines(axes: Any, measured: Sweep, labels: Mapping[str, str]) -> None:
    """The lines with these names and labels; a bar between the quartiles of its runs, where they are known."""
    for number, (name, label) in enumerate(labels.items()):
        points = measured.line(name)
        marker = _MARKERS[number % len(_MARKERS)]
        spreads = [
            [point.value - point.spread[0] for point in points],
            [point.spread[1] - point.value for point in points],
        ]
        axes.errorbar(
            [point.at for point in points],
            [point.value for point in points],
            spreads,
            marker=marker,
            label=label,
            capsize=2,
            linewidth=1,
        )
    axes.set_xscale("log")
    places = sorted({point.at for point in measured.points})
    axes.set_xticks(places, [f"{place:,.0f}" for place in places])
    axes.minorticks_off()
    axes.set_xlabel(measured.x)
    axes.set_ylabel(measured.y)
