"""The supervisor of a query: starts its drivers, lets a fault happen to each, and keeps or spoils the checkpoint.

A driver that is killed, or ends with an error, gets a successor. One that is held or paused gets a successor, too, and
goes on later: a late driver. After some faults the world heals, and a driver reaches the end of the source.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from lab.forked import forked_after
from lab.real_runs import driver
from lab.real_runs.driver import SOURCE, Job, Stopped
from lab.real_runs.faults import TIMEOUT_S, Fault
from lab.real_runs.witness import Witness
from lab.simulation.query import Checkpoint
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import Offsets, offsets_to_json
from spark_kafka_eos.testing.proxy import Fault as Met
from spark_kafka_eos.testing.proxy import Proxy

RECORDS = 6  # of the source
FIRST_QUERY = "query 1"
Main = Callable[[Job, Connection], None]

_MOST_RUNS = 20
_PATIENCE_S = 120.0  # for anything to happen
_SPOILT = 0.3  # how often a checkpoint is lost or older, once a driver has ended

processes = forked_after("lab.real_runs.warm")

What = Literal["late", "ended"]


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A driver, and what happens to it. `why` it stopped: None if it did not, else an error's class, or empty."""

    name: str
    fault: Fault | None
    checkpoint: Checkpoint
    process: BaseProcess
    pipe: Connection
    rule: Met | None = None  # of its fault, in the proxy
    goes_on: threading.Event = field(default_factory=threading.Event)  # if it is late
    why: str | None = None


@dataclass(slots=True, kw_only=True)
class Query:
    """Runs of a query that writes to the topic `output`; `faults` happen to the first ones, one to each.

    `spoils`: the checkpoint may be lost, or an older copy of it restored. `main` is what a driver's process calls.
    """

    output: str
    holds: bool
    spoils: bool
    faults: Sequence[Fault]
    chance: random.Random
    proxy: Proxy
    witness: Witness
    settings: dict[str, object]
    main: Main = driver.main
    killed: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)  # faults, kills among them
    met: Counter[str] = field(default_factory=Counter)
    timeouts_s: dict[str, float] = field(default_factory=dict)
    _runs: dict[str, Run] = field(default_factory=dict)
    _alive: set[str] = field(default_factory=set)
    _queries: int = 1
    _checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(FIRST_QUERY))
    _happened: queue.Queue[tuple[Run, What]] = field(default_factory=queue.Queue)

    def live(self) -> None:
        """Run drivers until one has reached the end of the source, and all have ended. Raises ToolFailed."""
        self.witness.on_rule = self._meets_rule
        try:
            self._live()
        finally:
            self.proxy.clear()  # what is delayed arrives now
            for run in self._runs.values():
                run.goes_on.set()
                run.process.kill()
                run.process.join()
                if run.fault is not None and run.rule is not None and run.rule.fired and not run.fault.kills:
                    self.happened[run.fault.kind] += 1

    def _live(self) -> None:
        current, finished = self._start(), False
        while self._alive:
            try:
                run, what = self._happened.get(timeout=_PATIENCE_S)
            except queue.Empty:
                raise ToolFailed(f"nothing happens any more in the runs {', '.join(sorted(self._alive))}") from None
            if what == "late":
                if run is current:
                    current = self._start()
                else:
                    run.goes_on.set()
                continue
            self._alive.discard(run.name)
            self._let_go("stopped")
            if run is not current or finished:
                continue
            finished = run.why == ""
            if finished:  # no successor comes, so late drivers go on now
                self._let_go()
            else:
                self._spoil(refused=run.why == "LedgerRefused")
                current = self._start()

    def _spoil(self, *, refused: bool) -> None:
        """Lose the checkpoint, as a person would who reads a refusal; or restore an older copy of it; or neither."""
        if refused or (self.spoils and self.chance.random() < _SPOILT / 2):
            self.met["checkpoint lost"] += 1
            self.happened["checkpoint lost"] += 1
            self._queries += 1
            self._checkpoint = Checkpoint(f"query {self._queries}")
        elif self.spoils and self.chance.random() < _SPOILT / 2:
            self.met["checkpoint restored"] += 1
            self.happened["checkpoint restored"] += 1
            older = Checkpoint("")
            older.files = dict(self._checkpoint.files)
            older.forget(self.chance.randrange(self._checkpoint.next_batch() + 1))
            self._checkpoint = older

    # -- drivers

    def _start(self) -> Run:
        number = len(self._runs) + 1
        if number > _MOST_RUNS:
            raise ToolFailed(f"the query is not done after {_MOST_RUNS} runs")
        fault = self.faults[number - 1] if number <= len(self.faults) else None
        job = Job(
            name=f"driver-{number}",
            output=self.output,
            holds=self.holds,
            hold=fault.point if fault else "",
            settings=self._settings(f"driver-{number}", fault),
        )
        ours, theirs = processes.Pipe()
        process = processes.Process(target=self.main, args=(job, theirs), daemon=True)
        run = Run(name=job.name, fault=fault, checkpoint=self._checkpoint, process=process, pipe=ours)
        if fault is not None:
            self.met[fault.kind] += 1
            if (rule := fault.rule(job.name)) is not None:
                run.rule = self.proxy.add(rule)
        self._runs[run.name] = run
        self._alive.add(run.name)
        self.witness.drivers.add(run.name)
        process.start()
        theirs.close()
        threading.Thread(target=self._serve, args=(run,), name=run.name, daemon=True).start()
        return run

    def _settings(self, name: str, fault: Fault | None) -> dict[str, object]:
        if fault is None or fault.kind != "timed out":
            return self.settings
        self.timeouts_s[name] = self.witness.shortest_s = TIMEOUT_S
        return {**self.settings, "kafka.transaction.timeout.ms": int(TIMEOUT_S * 1e3)}

    def _serve(self, run: Run) -> None:
        """Answer a driver's questions until it has ended."""
        if run.fault is not None and run.fault.after_s:
            timer = threading.Timer(run.fault.after_s, self._strike, args=(run,))
            timer.daemon = True
            timer.start()
        try:
            while True:
                run.pipe.send(self._answer(run, *run.pipe.recv()))
        except (EOFError, ConnectionError):
            run.process.join()
        self._happened.put((run, "ended"))

    def _answer(self, run: Run, what: str, *more: Any) -> Any:
        if what == "held":
            return self._held(run)
        answer: Any = None
        with self.witness.recording:
            match what:
                case "begins":
                    number = run.checkpoint.next_batch()
                    self.witness.recorder.begins(run.name, run.checkpoint, number)
                    answer = number, run.checkpoint.query != FIRST_QUERY
                case "plans":
                    answer = self._planned(run, *more)
                case "notes":
                    self.witness.recorder.notes(run.name, *more)
                    if not run.checkpoint.add(f"commits/{more[0]}", "v1\n{}"):
                        answer = Stopped("the batch is recorded as done already")
                case "stops":
                    (run.why,) = more
                    self.witness.recorder.stops(run.name, *more)
        self._let_go({"plans": "planned", "notes": "noted"}.get(what, ""), by=run)
        return answer

    def _planned(self, run: Run, number: int, start: Offsets | None) -> Any:
        """The batch, planned now unless it is in the checkpoint; None if there is nothing left to read."""
        checkpoint = run.checkpoint
        if number == 0 and start is not None:  # it is looked up only once, as by the source
            checkpoint.add("start/0", str(start[SOURCE]))
            start = {SOURCE: int(checkpoint.files["start/0"])}
        if checkpoint.end(number) is None:
            begin = start if start is not None else checkpoint.end(number - 1)
            assert begin is not None
            if begin[SOURCE] >= RECORDS:
                return None
            end = min(begin[SOURCE] + self.chance.randint(1, 3), RECORDS)
            checkpoint.add(f"offsets/{number}", f"v1\n{{}}\n{json.dumps(offsets_to_json({SOURCE: end}))}")
        batch = checkpoint.batch(number, start)
        self.witness.recorder.plans(run.name, batch)
        return batch

    # -- what happens to them

    def _held(self, run: Run) -> None:
        """A driver is at its failpoint."""
        assert run.fault is not None
        if run.fault.kills:
            self._kill(run)
        elif run.fault.is_late and not run.goes_on.is_set():
            self.happened[run.fault.kind] += 1
            self._happened.put((run, "late"))
            run.goes_on.wait()
        elif not run.goes_on.is_set():
            self.happened[run.fault.kind] += 1
            self.witness.await_timeout()
            run.goes_on.set()  # it may come to the failpoint again, in another attempt

    def _strike(self, run: Run) -> None:
        """The moment of a fault that may come at any time."""
        assert run.fault is not None
        if run.name not in self._alive or not run.process.is_alive():
            return
        if run.fault.kills:
            self._kill(run)
            return
        assert run.process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(run.process.pid, signal.SIGSTOP)
            self.happened[run.fault.kind] += 1
            self._happened.put((run, "late"))
            run.goes_on.wait()
            os.kill(run.process.pid, signal.SIGCONT)

    def _meets_rule(self, name: str) -> None:
        run = self._runs[name]
        if run.fault is not None and run.fault.kills:
            self._kill(run)

    def _kill(self, run: Run) -> None:
        assert run.fault is not None
        run.process.kill()
        self.killed[run.fault.kind] += 1
        self.happened[run.fault.kind] += 1

    def _let_go(self, until: str | None = None, by: Run | None = None) -> None:
        """Late drivers go on, for which this is the moment; by default, all."""
        for run in tuple(self._runs.values()):
            if run is not by and run.fault is not None and run.fault.is_late and until in (None, run.fault.until):
                run.goes_on.set()
