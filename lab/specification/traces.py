"""Has TLC check whether recorded histories are behaviours of the specification (spec/Trace.tla).

TLC starts once for many traces, because a start costs more than a trace: they are a constant, and each is an initial
state. It prints how far each of them came. One that does not come to its end is run once more, alone, so that TLC shows
the behaviour that came farthest.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.record import Recording
from lab.simulation.run import recorded
from lab.specification.models import Model
from lab.specification.steps import SOURCE, Outside, Step, Trace, translate
from lab.specification.timeline import changes, steps_of
from lab.specification.tlc import run
from lab.specification.values import text
from spark_kafka_eos.errors import ToolFailed

_REACHED = re.compile(r'^<<"reached", (\d+), (\d+)>>$', re.MULTILINE)
_DONE = "Model checking completed. No error has been found."
_AT_ONCE = 400  # traces
_MOST_TIMEOUTS = 99  # in a trace


@dataclass(frozen=True, slots=True)
class Rejected:
    """A trace of which the specification allows only the first `accepted` steps."""

    trace: Trace
    accepted: int

    def __str__(self) -> str:
        return (
            f"seed {self.trace.seed}: the specification allows {self.accepted} of {len(self.trace.steps)} steps, not "
            f"{shown(self.trace.steps[self.accepted])}"
        )


@dataclass(slots=True)
class Checked:
    """What was found out about histories: how many traces are behaviours, how many histories are outside, and why.

    `wrong` has, by seed, what the simulation itself found wrong, whatever became of the trace.
    """

    accepted: int = 0
    steps: int = 0
    outside: Counter[str] = field(default_factory=Counter)
    rejected: list[Rejected] = field(default_factory=list)
    wrong: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def histories(self) -> int:
        return self.accepted + len(self.rejected) + self.outside.total()


def check_histories(
    seeds: Iterable[int], *, conditions: Conditions = USUAL, progress: Callable[[int], None] = lambda _done: None
) -> Checked:
    """Record the seeds' histories of the simulation, and check their traces: see `check_recordings`."""
    return check_recordings((recorded(seed, conditions=conditions) for seed in seeds), progress=progress)


def check_recordings(
    recordings: Iterable[Recording], *, progress: Callable[[int], None] = lambda _done: None
) -> Checked:
    """Check the traces of recorded histories. `progress` gets the number of histories done.

    Raises ToolFailed if TLC does not finish.
    """
    checked, waiting = Checked(), defaultdict[tuple[int, bool, int], list[Trace]](list)

    def check(traces: list[Trace]) -> None:
        rejected = check_traces(traces)
        checked.rejected += rejected
        checked.accepted += len(traces) - len(rejected)
        checked.steps += sum(len(trace.steps) for trace in traces)
        progress(checked.histories)
        traces.clear()

    for recording in recordings:
        if recording.wrong:
            checked.wrong[recording.seed] = recording.wrong
        trace = translate(recording)
        if isinstance(trace, Outside):
            checked.outside[trace.what] += 1
            continue
        alike = waiting[trace.protocol, trace.holds, trace.records]
        alike.append(trace)
        if len(alike) == _AT_ONCE:
            check(alike)
    for traces in filter(None, waiting.values()):
        check(traces)
    return checked


def check_traces(traces: Sequence[Trace]) -> list[Rejected]:
    """Those that are no behaviours of the specification. All have the same protocol, writer or sink, and number of
    records. Raises ToolFailed if TLC does not finish.
    """
    output = _run(traces)
    if _DONE not in output:
        raise ToolFailed(
            f"TLC did not finish: {output[-2_000:]}", action="Correct spec/Trace.tla, or what was translated."
        )
    reached = dict.fromkeys(range(1, len(traces) + 1), 1)
    for number, step in _REACHED.findall(output):
        reached[int(number)] = max(reached[int(number)], int(step))
    pairs = zip(traces, reached.values(), strict=True)
    return [Rejected(trace, step - 1) for trace, step in pairs if step <= len(trace.steps)]


def explained(rejected: Rejected) -> Iterator[str]:
    """Lines: a behaviour to the last step that the specification allows, and the step that it does not."""
    states = [step.state for step in steps_of(_run([rejected.trace], farthest=rejected.accepted + 1))]
    for before, after in itertools.pairwise(states):
        if after["next"] > before["next"]:
            yield f"{before['next']:4}  {shown(rejected.trace.steps[before['next'] - 1])}{changes(before, after)}"
        else:
            yield f"      not recorded{changes(before, after)}"
    yield f"{rejected.accepted + 1:4}  NOT ALLOWED: {shown(rejected.trace.steps[rejected.accepted])}"


def shown(step: Step) -> str:
    """A recorded step as a person reads it."""
    who = f"run {step['run']}" if "run" in step else "brokers"
    details = (f"{name} {text(value)}" for name, value in step.items() if name not in ("run", "kind"))
    return f"{who:8} {', '.join([step['kind'], *details])}"


def _run(traces: Sequence[Trace], *, farthest: int | None = None) -> str:
    """TLC's output; with `farthest`, a behaviour to that step of one of the traces."""
    first = traces[0]
    model = Model(
        protocol=first.protocol,
        holds=first.holds,
        records=first.records,
        outputs=SOURCE,
        runs=max(trace.runs for trace in traces),
        timeouts=_MOST_TIMEOUTS,
        invariants=() if farthest is None else ("NotFarthest",),
        specification="TraceSpec",
    )
    # A constant in a module of its own: TLC computes it once, but not one that the configuration replaces.
    steps = ",\n".join(text(trace.steps) for trace in traces)
    histories = f"---- MODULE Histories ----\nEXTENDS Integers\nTraces == <<\n{steps}\n>>\n====\n"
    constants = {"Source": SOURCE, "Farthest": farthest or 0}
    return run("Trace", model.configuration(**constants), generated={"Histories": histories})
