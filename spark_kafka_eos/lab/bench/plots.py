"""Plots measurements as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.bench.figures import Comparison, Sweep

_OURS, _OTHERS = "#1f77b4", "#999999"
_MARKERS = "osD^vPX*<>"


def plot(measured: Comparison | Sweep, path: Path) -> None:
    """Write a PNG. Raises ToolFailed without matplotlib."""
    figure, axes = new_figure()
    if isinstance(measured, Comparison):
        _bars(axes, measured)
    else:
        _lines(axes, measured)
    axes.set_title(measured.title, fontsize="medium")
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


def new_figure(width: float = 8, height: float = 4.5) -> tuple[Any, Any]:
    """An empty figure with this size in inches, and its axes. Raises ToolFailed without matplotlib."""
    try:
        from matplotlib.figure import Figure  # not pyplot: no window, no global state
    except ImportError:
        raise ToolFailed("matplotlib is not installed", action="Run: pip install matplotlib") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


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


def _lines(axes: Any, measured: Sweep) -> None:
    for number, name in enumerate(measured.lines):
        points = measured.line(name)
        marker = _MARKERS[number % len(_MARKERS)]
        axes.plot([point.at for point in points], [point.value for point in points], marker=marker, label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(measured.x)
    axes.set_ylabel(measured.y)
    axes.legend(fontsize="small")
