"""Writes and reads measurements as JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.bench.figures import Comparison, Point, Series, Sweep
from lab.bench.machine import Machine

Measured = Comparison | Sweep


def write(path: Path, measured: Measured, machine: Machine) -> None:
    """Write the measurement and the machine, with derived figures for human readers."""
    machine = machine.running(measured.settings.get("kafka"))
    kind = "comparison" if isinstance(measured, Comparison) else "sweep"
    content: dict[str, Any] = {"kind": kind, **asdict(measured)}
    if isinstance(measured, Comparison):
        content["medians"] = {series.name: series.median for series in measured.series}
        content["records_per_second"] = {series.name: round(series.rate) for series in measured.series}
    path.write_text(json.dumps(content | {"machine": asdict(machine)}, indent=1) + "\n")


def read(path: Path) -> tuple[Measured, Machine]:
    """The inverse of `write`."""
    stored = json.loads(path.read_text())
    machine = Machine(**stored["machine"])
    if stored["kind"] == "comparison":
        series = tuple(_series(fields) for fields in stored["series"])
        return Comparison(title=stored["title"], series=series, settings=stored["settings"]), machine
    points = tuple(Point(**point | {"runs": tuple(point.get("runs", ()))}) for point in stored["points"])
    named = {name: stored[name] for name in ("title", "x", "y", "settings")}
    panels, alternatives = tuple(stored.get("panels", ())), stored.get("alternatives", False)
    return Sweep(**named, points=points, panels=panels, alternatives=alternatives), machine


def _series(stored: Mapping[str, Any]) -> Series:
    return Series(name=stored["name"], records=stored["records"], seconds=tuple(stored["seconds"]))
