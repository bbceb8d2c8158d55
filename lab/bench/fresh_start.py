"""Shows a fresh session's first batch by process: when each Python process that Spark starts runs, what it imports, and
what it asks brokers.

Not obvious: PySpark's daemons fork their workers, so a worker has imported what its daemon had. What is imported counts
for the package that takes the time, without what it imports in turn.
"""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession
from rich.table import Column, Table

from lab.bench import process_log
from lab.bench.alternating import alternate
from lab.bench.apart import SparkApart
from lab.bench.inputs import Shape
from lab.bench.lab import LAUNCHED, PLAIN, Lab, temporary_directory
from lab.bench.steady import Load, Query, run_query, side_of
from lab.bench.steady_figures import BUILT_IN, OURS, Way
from lab.bench.timeline import JVM, Samples, Watched, watching

OWN = ("spark_kafka_eos", "pyspark_kafka_eos", "kafka_eos_python")
GROUPS: Mapping[str, Sequence[str]] = {
    "PySpark": ("pyspark", "py4j"),
    "Arrow": ("pyarrow", "numpy", "pandas"),
    "ours": (*OWN, "kafka", "google_crc32c"),
}
OTHERS = "others"  # the standard library and what else there is
_DRIVER = "driver"
_MOST = 0.99  # of a process's CPU time: an idle process still uses some now and then
_LEAST_CPU = 0.005  # seconds; a JVM forks many that only set permissions
_BAR = 30  # characters
_SLOWEST = 6  # imports of a process that are listed


@dataclass(slots=True)
class Logged:
    """What a Python process wrote into the log. `imports`: by module, CPU seconds without what it imported in turn."""

    role: str
    since: float
    imports: dict[str, float] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    request_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process until the first commit, in seconds since the driver was started: when it started, and until when it
    used its CPU time.
    """

    role: str
    start: float
    end: float
    cpu: float
    imports: Mapping[str, float] = field(default_factory=dict)
    slowest: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    request_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshStart:
    """Moments in seconds since the driver was started, and its processes in the order in which they started."""

    title: str
    session: float
    committed: float
    processes: Sequence[Process]

    @property
    def requests(self) -> int:
        """How many requests were sent before the first commit."""
        return sum(sum(process.requests.values()) for process in self.processes)

    def table(self) -> Table:
        """A row for each process, with a bar from the driver's start to the first commit."""
        numbers = ("from, s", "to, s", "CPU", *GROUPS, OTHERS, "requests")
        table = Table(
            Column("process", no_wrap=True),
            *(Column(heading, justify="right", no_wrap=True) for heading in numbers),
            Column(f"0 to {self.committed:.1f} s", no_wrap=True),
            title=f"{self.title}: session after {self.session:.1f} s, commit after {self.committed:.1f} s; "
            f"{self.requests} requests.\nIn ms: CPU time, of it imports by package; requests",
            title_justify="left",
            box=None,
        )
        for process in self.processes:
            imports = (f"{1e3 * process.imports[name]:.0f}" if process.imports else "" for name in (*GROUPS, OTHERS))
            count = sum(process.requests.values())
            table.add_row(
                process.role,
                f"{process.start:.1f}",
                f"{process.end:.1f}",
                f"{1e3 * process.cpu:.0f}",
                *imports,
                f"{count}: {1e3 * process.request_seconds:.0f}" if count else "",
                bar(process.start, process.end, self.committed),
            )
        return table

    def lines(self) -> Iterable[str]:
        """For each process, its slowest imports and its requests."""
        for process in self.processes:
            imports = ", ".join(f"{name} {1e3 * seconds:.0f}" for name, seconds in process.slowest.items())
            requests = ", ".join(f"{count} {api}" for api, count in process.requests.items())
            if imports or requests:
                yield f"{process.role}: " + "; ".join(filter(None, [imports and f"{imports} ms", requests]))

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object, in seconds."""
        return asdict(self)


def bar(start: float, end: float, whole: float) -> str:
    """A bar from `start` to `end` in a line for `whole`."""
    first, last = (round(_BAR * moment / whole) for moment in (start, end))
    return "·" * first + "█" * max(1, last - first)


def parse(lines: Iterable[str], until: float) -> dict[int, Logged]:
    """What each process logged before the moment `until`, by its ID."""
    processes: dict[int, Logged] = {}
    for line in lines:
        kind, number, moment, *fields = line.rstrip("\n").split("\t")
        pid, at = int(number), float(moment)
        if at > until:
            continue
        if kind == "start":
            processes[pid] = Logged(role=role_of(fields), since=at)
        elif kind == "fork":
            parent = processes.get(int(fields[0]))
            processes[pid] = Logged(role=_forked(parent.role if parent else ""), since=at)
        elif kind == "import":
            processes[pid].imports[fields[0]] = float(fields[2])
        else:
            processes[pid].requests[fields[0]] += 1
            processes[pid].request_seconds += float(fields[1])
    return processes


def role_of(arguments: Sequence[str]) -> str:
    """What a Python process of Spark's is: the module that it runs; of a daemon, the one that its workers run."""
    modules = [part.rpartition(".")[2] for part in arguments if part.startswith("pyspark.")]
    if modules[:1] == ["daemon"]:
        return f"daemon of {modules[1] if modules[1:] else 'worker'}"
    if modules:
        return modules[0]
    if any("multiprocessing" in part for part in arguments):
        return _DRIVER
    return " ".join([Path(arguments[0]).name, *arguments[1:2]])  # Spark asks for Python's version


def _forked(parent: str) -> str:
    """What a daemon forks is its worker."""
    return parent.removeprefix("daemon of ")


def by_group(imports: Mapping[str, float]) -> dict[str, float]:
    """The seconds of imports, by group of packages."""
    seconds = dict.fromkeys((*GROUPS, OTHERS), 0.0)
    for module, took in imports.items():
        package = module.partition(".")[0]
        seconds[next((name for name, packages in GROUPS.items() if package in packages), OTHERS)] += took
    return seconds


def processes_of(
    logged: Mapping[int, Logged], watched: Sequence[Watched], began: float, committed: float
) -> list[Process]:
    """The processes that took part, from their log and from samples of their CPU clocks."""
    processes = []
    for process in watched:
        log = None if process.role == JVM else logged.get(process.pid)  # a JVM is forked from the driver
        cpu, end = _used(process.samples, committed)
        if cpu < _LEAST_CPU or (log is None and process.role != JVM):
            continue
        slowest = sorted(log.imports.items(), key=lambda item: -item[1])[:_SLOWEST] if log else []
        processes.append(
            Process(
                role=log.role if log else process.role,
                start=max(0.0, process.started - began),
                end=end - began,
                cpu=cpu,
                imports=by_group(log.imports) if log else {},
                slowest=dict(slowest),
                requests=dict(log.requests) if log else {},
                request_seconds=log.request_seconds if log else 0.0,
            )
        )
    return sorted(processes, key=lambda process: process.start)


def _used(samples: Samples, until: float) -> tuple[float, float]:
    """The CPU seconds until a moment, and when most of them were used."""
    counted = [(at, used) for at, used in samples if at <= until] or [samples[0]]
    total = counted[-1][1]
    return total, next(at for at, used in counted if used >= _MOST * total)


def measure(lab: Lab, way: Way, *, rows: int, ours: bool = True, launched: bool = False) -> FreshStart:
    """The start of a fresh session's first query, on plain settings or with `kafka-eos-python`."""
    load = Load(rows=rows, batches=0, records=Shape(records=0))
    moments: list[float] = []

    with temporary_directory() as folder:

        def run(query: Query) -> float:
            with mock.patch.dict(os.environ, logged(folder)):
                moments.append(time.time())
                with SparkApart(LAUNCHED if launched else PLAIN) as spark:
                    moments.append(time.time())
                    began, seconds = spark.run(functools.partial(_to_commit, query=query))
            moments.append(began + seconds)
            return seconds

        side = side_of(lab, OURS if ours else BUILT_IN, way, load, run, ours=ours)
        with watching(lab.kafka.pid()) as watched:
            alternate([side], records=rows, runs=1, warm_up=0, show=lab.show)
        began, session, committed = moments
        log = parse((folder / "log").read_text().splitlines(), committed)
    return FreshStart(
        title=f"{side.name}, {way.words}: {rows:,} records, {'kafka-eos-python' if launched else 'plain settings'}",
        session=session - began,
        committed=committed - began,
        processes=processes_of(log, watched, began, committed),
    )


def logged(folder: Path) -> dict[str, str]:
    """What is in the environment of Python processes that are logged into `folder`."""
    (folder / "sitecustomize.py").write_text("from lab.bench import process_log\n\nprocess_log.begin()\n")
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return {process_log.VARIABLE: str(folder / "log"), "PYTHONPATH": path.rstrip(os.pathsep)}


def _to_commit(spark: SparkSession, query: Query) -> tuple[float, float]:
    """When the session was ready, and the seconds from then to the query's first commit."""
    began = time.time()
    return began, run_query(spark, replace(query, batches=0)).since_session
