"""Shows one micro-batch in steady state: the CPU time of each process, every few milliseconds, and Spark's phases; and
in which steps of a micro-batch the cores are idle.
"""

from __future__ import annotations

import functools
import platform
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
from rich.table import Column, Table

from lab.bench.alternating import alternate
from lab.bench.apart import SparkApart
from lab.bench.lab import PLAIN, Lab, temporary_directory
from lab.bench.plots import new_figure
from lab.bench.steady import Load, Query, Ran, run_query, side_of
from lab.bench.steady_figures import BUILT_IN, OURS, SKIPPED, Progress, Way
from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.trace import Trace
from spark_kafka_eos.observe import trace_file

# The phases of `durationMs` in the order in which a micro-batch goes through them.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
# Words in the command line of a Python process, and what it is. A worker is forked from the daemon, and keeps its
# command line.
ROLES = {
    "python_streaming_source_runner": "Python, source",
    "python_streaming_sink_runner": "Python, sink's commit",
    "pyspark.daemon": "Python, tasks",
    "multiprocessing.spawn": "Python, driver",
    "pyspark.sql.worker": "Python, planning",
}
JVM, OTHERS, BROKER = "JVM", "others", "broker"
_IDLE = "idle"  # not a process, but what all cores of the machine were idle
_EVERY_SECONDS = 0.004
_BIN_SECONDS = 0.01
_SETTLING = 20  # samples of a new process until its command line is its own: before that, it is its parent's

Samples = Sequence[tuple[float, float]]  # (time since the epoch, CPU time until then), in seconds, ascending


@dataclass(slots=True)
class Watched:
    """What a process used, what it is, and since when."""

    role: str
    samples: list[tuple[float, float]] = field(default_factory=list)
    pid: int = 0
    started: float = 0.0  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a micro-batch: how long it took, and for how long cores were idle meanwhile, in seconds of one core."""

    name: str
    seconds: float
    idle: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One micro-batch of `seconds`: by phase its start and end, and by role the cores that were busy in each bin.

    `steps` are means of all `batches` that count.
    """

    title: str
    seconds: float
    phases: Mapping[str, tuple[float, float]]
    busy: Mapping[str, tuple[float, ...]]
    steps: Sequence[Step] = ()
    batches: int = 0

    @property
    def cpu(self) -> dict[str, float]:
        """The CPU seconds of each role."""
        return {role: _BIN_SECONDS * sum(used) for role, used in self.busy.items()}

    def lines(self) -> Iterator[str]:
        """The figures of the picture."""
        yield f"{self.title}; {1e3 * self.seconds:.0f} ms"
        yield "phases, ms: " + ", ".join(f"{name} {1e3 * (end - at):.0f}" for name, (at, end) in self.phases.items())
        yield "CPU, ms: " + ", ".join(f"{role} {1e3 * seconds:.0f}" for role, seconds in self.cpu.items())

    def table(self) -> Table:
        """A row for each step, and their sum."""
        idle = sum(step.idle for step in self.steps)
        table = Table(
            Column("step"),
            *(Column(heading, justify="right") for heading in ("ms", "idle core-ms", "of all idle")),
            title=f"idle cores, mean of {self.batches} micro-batches",
            title_justify="left",
            box=None,
        )
        for step in [*self.steps, Step(name="trigger", seconds=sum(step.seconds for step in self.steps), idle=idle)]:
            share = step.idle / idle if idle else 0.0
            table.add_row(step.name, f"{1e3 * step.seconds:.1f}", f"{1e3 * step.idle:.1f}", f"{share:.0%}")
        return table

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object, in seconds."""
        return {
            "title": self.title,
            "seconds": self.seconds,
            "phases": self.phases,
            "cpu": self.cpu,
            "batches": self.batches,
            "steps": [asdict(step) for step in self.steps],
        }


def role_of(command: Sequence[str]) -> str:
    """What a process of a Spark session is, by its command line."""
    line = " ".join(command)
    if "org.apache.spark.deploy" in line:
        return JVM
    return next((role for word, role in ROLES.items() if word in line), OTHERS)


def phases_of(batch: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Start and end of each phase, in seconds from the start of the trigger. Spark reports only how long they took, so
    what is between two of them is drawn after the last one.
    """
    out, at = {}, 0.0
    for name in PHASES:
        took = batch["durationMs"].get(name, 0) / 1e3
        out[name] = (at, at + took)
        at += took
    return out


def steps_of(batch: Mapping[str, Any], trace: Trace | None) -> dict[str, tuple[float, float]]:
    """Start and end of each step of the trigger, in seconds from its start. They leave no gap: what is between two of
    Spark's phases belongs to the later one.

    `addBatch` is divided by the phases of our sink's `trace`, if there is one. Spark says only how long phases took:
    those before `addBatch` are placed from the trigger's start on, and `commitOffsets` at its end.
    """
    durations, trigger = batch["durationMs"], batch["durationMs"]["triggerExecution"] / 1e3
    ends: dict[str, float] = {}
    at = 0.0
    for name in PHASES[: PHASES.index("addBatch")]:
        at += durations.get(name, 0) / 1e3
        ends[name] = at
    parts = [phase for phase in trace.phases if phase.name != "begin"] if trace else []
    if trace and parts:
        began = trace.began_ms / 1e3 - started_at(batch)
        ends[f"addBatch: before {parts[0].name}"] = began + parts[0].start / 1e3
        ends |= {f"addBatch: {phase.name}": began + (phase.start + phase.milliseconds) / 1e3 for phase in parts}
    committed = trigger - durations.get("commitOffsets", 0) / 1e3
    ends["addBatch: rest" if parts else "addBatch"] = committed
    ends["commitOffsets"] = trigger
    steps, at = {}, 0.0
    for name, end in ends.items():
        until = min(max(at, end), trigger)
        steps[name] = (at, until)
        at = until
    return steps


def idle_steps(batches: Sequence[Mapping[str, Any]], traces: Mapping[int, Trace], idle: Samples) -> list[Step]:
    """The means over these micro-batches of their steps. `traces` are by batch id; `idle` is of all cores."""
    by_name: dict[str, list[Step]] = {}
    for batch in batches:
        start = started_at(batch)
        for name, (at, end) in steps_of(batch, traces.get(batch["batchId"])).items():
            unused = _used_until(idle, start + end) - _used_until(idle, start + at)
            by_name.setdefault(name, []).append(Step(name=name, seconds=end - at, idle=unused))
    return [
        Step(name=name, seconds=mean(step.seconds for step in steps), idle=mean(step.idle for step in steps))
        for name, steps in by_name.items()
    ]


def counting(progress: Progress) -> Progress:
    """The micro-batches after the first `SKIPPED` and before the last, partial one."""
    if not (counted := progress[SKIPPED:-1]):
        raise ToolFailed(f"only {len(progress)} micro-batches")
    return counted


def middle(progress: Progress) -> Mapping[str, Any]:
    """Of the micro-batches that count, the one with the median trigger."""
    counted = sorted(counting(progress), key=lambda batch: batch["durationMs"]["triggerExecution"])
    return counted[len(counted) // 2]


def started_at(batch: Mapping[str, Any]) -> float:
    """When its trigger started, in seconds since the epoch."""
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def busy(samples: Samples, start: float, seconds: float, width: float = _BIN_SECONDS) -> tuple[float, ...]:
    """The mean number of cores that a process kept busy in each bin of `width` seconds from `start` on."""
    edges = [_used_until(samples, start + number * width) for number in range(round(seconds / width) + 1)]
    return tuple((after - before) / width for before, after in pairwise(edges))


def _used_until(samples: Samples, moment: float) -> float:
    """The CPU time at a moment, between the samples around it; before the first and after the last, it stands still."""
    after = bisect_right(samples, moment, key=lambda sample: sample[0])
    if after in (0, len(samples)):
        return samples[min(after, len(samples) - 1)][1]
    (earlier, less), (later, more) = samples[after - 1], samples[after]
    return less + (more - less) * (moment - earlier) / (later - earlier)


def timeline(title: str, batch: Mapping[str, Any], watched: Sequence[Watched]) -> Timeline:
    """What the processes did during `batch`; processes with the same role are added up."""
    start, seconds = started_at(batch), batch["durationMs"]["triggerExecution"] / 1e3
    by_role: dict[str, tuple[float, ...]] = {}
    for process in watched:
        used = busy(process.samples, start, seconds)
        by_role[process.role] = tuple(map(sum, zip(by_role.get(process.role, [0.0] * len(used)), used, strict=True)))
    order = [BROKER, JVM, *ROLES.values(), OTHERS]
    roles = {role: by_role[role] for role in order if any(by_role.get(role, ()))}
    return Timeline(title=title, seconds=seconds, phases=phases_of(batch), busy=roles)


def measure(lab: Lab, way: Way, load: Load, *, ours: bool = True) -> Timeline:
    """The micro-batch with the median trigger, out of a query on plain settings in a warm session."""
    ran: list[Ran] = []
    traces: dict[int, Trace] = {}
    with temporary_directory() as folder, SparkApart(PLAIN) as spark:

        def run(query: Query) -> float:
            if ours:
                query = replace(query, sink={**query.sink, "traceDir": str(folder)})
            ran.append(spark.run(functools.partial(run_query, query=query)))
            if ours:
                reports = trace_file.read(folder, query.sink["kafka.transactional.id"])
                traces.update((report.batch_id, report.trace) for report in map(CommitReport.from_json, reports))
            return ran[-1].first_batch

        side = side_of(lab, OURS if ours else BUILT_IN, way, load, run, ours=ours)
        alternate([side], records=load.rows, runs=1, warm_up=0, show=lab.show)
        with watching(lab.kafka.pid()) as watched:
            alternate([side], records=load.rows, runs=1, warm_up=0, show=lab.show)
    title = f"{side.name}, {way.words}: {load.rows:,} records of {load.records.values}, plain settings"
    chart = timeline(title, middle(ran[-1].progress), watched)
    counted, idle = counting(ran[-1].progress), next(process.samples for process in watched if process.role == _IDLE)
    return replace(chart, steps=idle_steps(counted, traces, idle), batches=len(counted))


@contextmanager
def watching(broker: int) -> Iterator[list[Watched]]:
    """The CPU time of the process `broker` and of all descendants of this process but itself, and the idle time of all
    cores, while the block runs.

    Raises ToolFailed except on Linux, where the clock of another process has nanoseconds.
    """
    if platform.system() != "Linux":
        raise ToolFailed("a timeline needs the processes' CPU clocks, which only Linux has")
    processes: dict[int, Watched | None] = {broker: Watched(BROKER)}  # None: of somebody else
    ended, idle = threading.Event(), Watched(_IDLE)

    def watch() -> None:
        while not ended.wait(_EVERY_SECONDS):
            cores = psutil.cpu_times()  # in hundredths of a second, so only the mean of many micro-batches is exact
            idle.samples.append((time.time(), cores.idle + cores.iowait))
            for pid in psutil.pids():
                if pid not in processes:
                    processes[pid] = _ours(pid)
            for pid, watched in processes.items():
                if watched is not None:
                    _sample(pid, watched)

    watcher = threading.Thread(target=watch, daemon=True)
    watched: list[Watched] = []
    watcher.start()
    try:
        yield watched
    finally:
        ended.set()
        watcher.join()
        watched += [idle, *(process for process in processes.values() if process is not None and process.samples)]


def _ours(pid: int) -> Watched | None:
    try:
        process = psutil.Process(pid)
        if psutil.Process() not in process.parents():
            return None
        return Watched(OTHERS, pid=pid, started=process.create_time())
    except psutil.Error:
        return None


def _sample(pid: int, watched: Watched) -> None:
    try:
        count = len(watched.samples)
        settling = count < _SETTLING or (watched.role == OTHERS and count % _SETTLING == 0)  # a shell may become a JVM
        if settling and watched.role != BROKER:
            watched.role = role_of(psutil.Process(pid).cmdline())
        watched.samples.append((time.time(), time.clock_gettime(~pid << 3 | 2)))  # as clock_getcpuclockid(3) has it
    except (OSError, psutil.Error):  # it has ended
        return


def draw(chart: Timeline, path: Path) -> None:
    """Write a PNG: a row of phases, and below it a row for each role. Raises ToolFailed without matplotlib."""
    figure, axes = new_figure(height=1.5 + 0.6 * (len(chart.busy) + 1))
    axes.set_title(chart.title, fontsize="medium")
    for number, (name, (start, end)) in enumerate(chart.phases.items()):
        axes.barh(0.4, 1e3 * (end - start), 0.7, 1e3 * start, color=f"C{number}", alpha=0.5, label=name)
    width = 1e3 * _BIN_SECONDS
    for row, used in enumerate(chart.busy.values(), 1):
        edges = [number * width for number in range(len(used) + 1)]
        axes.stairs([used_in / 2 - row for used_in in used], edges, baseline=-row, fill=True, color="#1f77b4")
        axes.axhline(-row, color="black", linewidth=0.5)
    rows = [f"{role}: {1e3 * seconds:.0f} ms" for role, seconds in chart.cpu.items()]
    axes.set_yticks([0.4, *(0.4 - row for row in range(1, len(rows) + 1))], ["Spark's phases", *rows])
    axes.set_xlim(0, 1e3 * chart.seconds)
    axes.set_xlabel("ms since the start of the trigger; a full row is two cores; beside a name its CPU time")
    figure.legend(loc="outside lower center", ncols=len(chart.phases), fontsize="small")
    figure.savefig(path, dpi=120)
