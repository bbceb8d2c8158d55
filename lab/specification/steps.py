"""Translates what was recorded, of the simulation or of real runs, into steps of the specification (spec/Trace.tla).

A history is outside of the specification if it has something that the specification does not have: see `Outside`.

Not obvious:
- The specification's source is one partition. The rows of both partitions are numbered in the order in which the
  batches have them; a history whose batches contain each other in part has no such order. Of a source with one
  partition, whatever the order of the rows is, it is the code's, and TLC judges it.
- A row that no batch has gets a number that the specification's source does not have, so that TLC does not allow it.
- A step that was recorded when a request was sent, and one when it arrived, are one step if the sender received the
  answer. Otherwise the sender's step is that it has no answer, and the request may arrive later.
- Spark plans a batch a moment after it started, or after it recorded the one before. In the specification, that is one
  step, so the plan is looked up in what follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lab.simulation.record import (
    Answer,
    Append,
    Arrived,
    Began,
    Marked,
    Noted,
    Planned,
    RanAgain,
    Recording,
    Request,
    Requested,
    Shown,
    Stopped,
    TimedOut,
)
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.ledger.entry import LedgerEntry

OUTPUTS, LEDGER, GROUP = (1, 2, 3), 4, 5
SOURCE = 3  # the last one of the outputs: the source's offsets, see Trace.tla

Step = Mapping[str, Any]
"""A record of TLA+: `kind`, `run` and what else belongs to it."""

_CODES = {
    0: "NONE", 19: "CONCURRENT_TRANSACTIONS", 45: "OUT_OF_ORDER_SEQUENCE_NUMBER", 47: "PRODUCER_FENCED",
    48: "INVALID_TXN_STATE", 49: "PRODUCER_FENCED", 51: "CONCURRENT_TRANSACTIONS", 90: "PRODUCER_FENCED",
    120: "TRANSACTION_ABORTABLE",
}  # fmt: skip
_UNKNOWN_ID = 105
_TIMEOUT_S = 60.0  # kafka.transaction.timeout.ms, unless the recording has another one
_WAYS = ("driver", "executors", "sink")
_HOW = {"": "finished", "ProducerFenced": "fenced", "LedgerRefused": "refused", "Stopped": "stopped"}
_IN_PART = "batches of two source partitions that contain each other in part"
STARTED_TWICE = "a new checkpoint that is started twice, from different offsets"
_SEVERAL = "several record batches for a partition, with a fault among them"
_READS = ("OffsetFetch", "ListOffsets", "Fetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`steps` of `runs` runs in `protocol` 1 or 2; `holds`: see SharedTransaction.tla. `records` are the source's."""

    seed: int
    protocol: Literal[1, 2]
    holds: bool
    records: int
    runs: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Outside:
    """A history with `what` the specification does not have."""

    seed: int
    what: str


class _Lacks(Exception):
    """The specification does not have this."""


def translate(recording: Recording) -> Trace | Outside:
    """The history as steps of the specification."""
    try:
        _require_inside(recording)
        return _Translation(recording).trace()
    except _Lacks as lacks:
        return Outside(recording.seed, str(lacks))


def _require_inside(recording: Recording) -> None:
    if recording.way not in _WAYS:
        raise _Lacks(recording.way)
    if recording.flags.replace("--late", "").strip():
        raise _Lacks(f"conditions{recording.flags}")
    if recording.first_epoch >= 0:
        raise _Lacks("a producer id that runs out of epochs")
    if "outdated coordinator" in recording.faults:
        raise _Lacks("an outdated coordinator")


@dataclass(slots=True)
class _Numbers:
    """Numbers the source's records in the order of the batches, whose `ends` follow each other."""

    ends: list[tuple[int, ...]]

    @property
    def several(self) -> bool:
        """Whether the source has more than one partition."""
        return len(self.ends[-1]) > 1

    def of_end(self, end: Offsets) -> int:
        return sum(end.values())

    def of_row(self, row: tuple[int, int]) -> int:
        partition, offset = row
        before: tuple[int, ...] = (0,) * len(self.ends[-1])
        for end in self.ends:
            if offset < end[partition]:
                others = sum(end[p] - before[p] for p in range(partition))
                return sum(before) + others + offset - before[partition] + 1
            before = end
        return sum(before) + 1


def _numbers_by(ends: Sequence[Offsets]) -> _Numbers:
    """Raises _Lacks if the ends of the batches are not one behind the other."""
    ordered = sorted({tuple(end[tp] for tp in sorted(end)) for end in ends}, key=sum)
    for end, following in itertools.pairwise(ordered):
        if any(a > b for a, b in zip(end, following, strict=True)):
            raise _Lacks(_IN_PART)
    return _Numbers(ordered)


@dataclass(slots=True)
class _Driver:
    number: int
    checkpoint: int  # from 1
    began: Began


@dataclass(slots=True)
class _Attempt:
    """The layout that follows from the first append, and the rows that were appended to each partition."""

    layout: tuple[tuple[int, ...], ...]
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    interrupted: bool = False


class _Translation:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._numbers = _numbers_by([end for step in recording.steps for end in _ends(step)])
        self._sent = {step.number: step for step in recording.steps if isinstance(step, Requested)}
        self._failed = {step.number for step in recording.steps if isinstance(step, Arrived) and any(step.answer.codes)}
        self._ledger_group = next((name for name in recording.groups if name.endswith(".ledger")), "")
        self._groups = {
            group: GROUP if name == self._ledger_group else SOURCE for name, group in recording.groups.items()
        }
        self._drivers: dict[str, _Driver] = {}
        self._plan: dict[tuple[int, int], int] = {}  # of a checkpoint's batch
        self._starts: dict[str, int] = {}  # of a query
        self._queries: dict[str, int] = {}  # numbers, of those that planned something
        self._batch: dict[str, Planned] = {}  # of a driver, now
        self._made: set[int] = set()
        self._attempts: dict[tuple[str, int], _Attempt] = {}  # by driver and epoch
        self._merged = dict(_merged(recording))
        self._lasting = dict(_lasting(recording))
        self._number_drivers()

    def trace(self) -> Trace:
        recording = self._recording
        steps = [step for recorded in recording.steps for step in self._steps(recorded)]
        while steps and steps[-1]["kind"] == "marker":
            steps.pop()
        return Trace(
            seed=recording.seed,
            protocol=2 if recording.version >= 2 else 1,
            holds=recording.way != "sink",
            records=sum(self._numbers.ends[-1]),
            runs=len(self._drivers),
            steps=tuple(_without_repeats(steps)),
        )

    # -- drivers and their plans

    def _number_drivers(self) -> None:
        steps = self._recording.steps
        planned = {step.driver for step in steps if isinstance(step, Planned)}
        finished = {step.driver for step in steps if isinstance(step, Stopped) and not step.why}
        checkpoints: dict[int, int] = {}
        for step in steps:
            if isinstance(step, Began) and step.driver in planned | finished:
                at = checkpoints.setdefault(step.checkpoint, len(checkpoints) + 1)
                self._drivers[step.driver] = _Driver(len(self._drivers) + 1, at, step)
                self._queries.setdefault(step.query, len(self._queries) + 1)
                if step.driver not in planned and step.batch == 0:
                    self._start(step.query, sum(self._numbers.ends[-1]))  # there was nothing left to read
            elif isinstance(step, Planned):
                driver = self._drivers[step.driver]
                self._plan[driver.checkpoint, step.batch] = self._numbers.of_end(step.end)
                if step.batch == 0:
                    self._start(driver.began.query, self._numbers.of_end(step.start))

    def _start(self, query: str, start: int) -> None:
        if self._starts.setdefault(query, start) != start:
            raise _Lacks(STARTED_TWICE)

    # -- steps

    def _steps(self, step: Any) -> Iterator[Step]:
        driver = self._drivers.get(getattr(step, "driver", ""))
        match step:
            case Marked(partition=tp):
                yield {"kind": "marker", "partition": self._place(tp)}
            case TimedOut():
                yield {"kind": "times out"}
            case Shown(partition=tp):
                rows = tuple(map(self._numbers.of_row, step.rows))
                yield {"kind": "shows", "partition": self._place(tp), "records": rows}
            case Arrived():
                yield from self._arrived(step)
            case _ if driver is None:
                return
            case Began():
                yield self._began(driver)
            case Planned():
                self._batch[step.driver] = step
            case Noted(batch=batch):
                end = self._plan.get((driver.checkpoint, batch + 1), 0)
                yield {"kind": "notes", "run": driver.number, "batch": batch + 1, "end": end}
            case RanAgain():
                yield {"kind": "runs again", "run": driver.number}
            case Stopped(why=why) if why in _HOW:
                yield {"kind": "ends", "run": driver.number, "how": _HOW[why]}
            case Requested():
                yield from self._requested(driver, step)

    def _began(self, driver: _Driver) -> Step:
        began, new = driver.began, []
        if driver.checkpoint not in self._made and driver.checkpoint > 1:
            new.append(
                {
                    "query": self._queries[began.query],
                    "start": self._starts[began.query],
                    "plan": tuple(map(self._numbers.of_end, began.plan)),
                    "done": began.done,
                }
            )
        self._made.add(driver.checkpoint)
        end = self._plan.get((driver.checkpoint, began.batch), 0)
        return {
            "kind": "starts", "run": driver.number, "checkpoint": driver.checkpoint, "new": tuple(new), "end": end,
        }  # fmt: skip

    def _requested(self, driver: _Driver, step: Requested) -> Iterator[Step]:
        """What it is to its sender, if that gets no answer."""
        settled = self._recording.answered | self._recording.refused
        if (
            step.number not in settled
            and not step.straggles
            and step.request.api not in ("DescribeTransactions", *_READS)
        ):
            for append in step.request.appends or (None,):
                yield {**self._request(driver, step, append), "code": "unanswered"}

    def _arrived(self, step: Arrived) -> Iterator[Step]:
        sent = self._sent[step.number]
        driver, api = self._drivers.get(sent.driver), sent.request.api
        if driver is None:
            return
        if api in _READS:
            if not sent.straggles and sent.request.group in ("", self._ledger_group):
                yield {"kind": "reads", "run": driver.number}
        elif api == "DescribeTransactions":
            if step.number in self._recording.answered and step.answer.codes in ((0,), (_UNKNOWN_ID,)):
                state = step.answer.state or "Empty"
                yield {"kind": "describes", "run": driver.number, "state": state, "epoch": step.answer.epoch}
        else:
            for place, code in enumerate(step.answer.codes):
                if code in _CODES:  # else it asked the wrong broker, or of a topic that is not there: nothing was done
                    yield from self._handled(driver, sent, place, step.answer)

    def _handled(self, driver: _Driver, sent: Requested, place: int, answer: Answer) -> Iterator[Step]:
        """A request that can change something, or a part of it, was handled by the brokers."""
        request, code = sent.request, _CODES[answer.codes[place]]
        append = request.appends[place] if request.appends else None
        if append is not None and (sent.number, place) in self._merged:
            rows = self._merged[sent.number, place]
            if not rows:
                return
            append = replace(append, rows=rows)
        if sent.straggles:
            yield {"kind": "straggles", **self._message(driver, request, append), "code": code}
        elif sent.number not in self._recording.answered:
            yield {"kind": "arrives", **self._message(driver, request, append), "code": code}
        else:
            returned = {"returned": answer.epoch} if request.api == "InitProducerId" else {}
            yield {**self._request(driver, sent, append), "code": code, **returned}
        if self._lasting.get(sent.number) == place:
            yield {"kind": "lasts", "run": driver.number}

    def _request(self, driver: _Driver, sent: Requested, append: Append | None) -> dict[str, Any]:
        request = sent.request
        step: dict[str, Any] = {"run": driver.number, "epoch": request.epoch}
        match request.api:
            case "InitProducerId":
                return {"kind": "initialises", **step}
            case "EndTxn":
                return {"kind": "ends transaction", **step, "commit": request.commit}
            case "AddPartitionsToTxn" | "AddOffsetsToTxn":
                return {"kind": "adds", **step, "parts": self._parts(request, None)}
            case "TxnOffsetCommit":
                (partition,) = self._parts(request, None)
                return {"kind": "commits offsets", **step, "partition": partition}
        assert append is not None
        if append.entry is not None:
            return {"kind": "appends entry", **step, "entry": self._entry(append.entry)}
        partition, rows = self._place(append.partition), self._rows(append)
        planned = self._batch[sent.driver]
        before, end = self._numbers.of_end(planned.start), self._numbers.of_end(planned.end)
        others = tuple(n for n in range(before + 1, end + 1) if n not in rows)
        layout = tuple({partition: rows, SOURCE: ()}.get(p, others) for p in OUTPUTS)
        self._require_whole(sent, layout, partition)
        return {"kind": "appends", **step, "partition": partition, "records": rows, "layout": layout}

    def _require_whole(self, sent: Requested, layout: tuple[tuple[int, ...], ...], partition: int) -> None:
        """Raises _Lacks if an attempt was interrupted between two record batches for the same partition."""
        attempt = self._attempts.setdefault((sent.driver, sent.request.epoch), _Attempt(layout))
        attempt.interrupted |= sent.number not in self._recording.answered or sent.number in self._failed
        attempt.rows[partition] = layout[partition - 1]
        if layout != attempt.layout and attempt.interrupted:
            appended = sum(map(len, attempt.rows.values()))
            if appended < sum(map(len, layout)):
                raise _Lacks(_SEVERAL)

    def _message(self, driver: _Driver, request: Request, append: Append | None) -> dict[str, Any]:
        api = {
            "EndTxn": "EndTxn(commit)" if request.commit else "EndTxn(abort)",
            "AddOffsetsToTxn": "AddPartitionsToTxn",
        }
        parts = self._parts(request, append)
        return {
            "run": driver.number,
            "api": api.get(request.api, request.api),
            "epoch": request.epoch,
            "parts": parts,
            "records": self._rows(append) if append is not None else (),
        }

    def _rows(self, append: Append) -> tuple[int, ...]:
        rows = tuple(map(self._numbers.of_row, append.rows))
        if self._numbers.several and list(rows) != sorted(rows):
            raise _Lacks(_IN_PART)
        return rows

    def _parts(self, request: Request, append: Append | None) -> frozenset[int]:
        places = request.partitions if append is None else (append.partition,)
        group = {self._groups[self._recording.groups[request.group]]} if request.group else set()
        return frozenset(map(self._place, places)) | group

    def _place(self, tp: TopicPartition) -> int:
        if tp in self._groups:
            return self._groups[tp]
        return tp.partition + 1 if tp.topic == self._recording.output else LEDGER

    def _entry(self, entry: LedgerEntry) -> Step:
        (source,) = entry.sources or (None,)
        if source is None or source.start is None:
            raise _Lacks("an entry without its source's offsets")
        return {
            "query": self._queries[entry.query_id],
            "batch": entry.batch_id + 1,
            "from": self._numbers.of_end(source.start),
            "end": self._numbers.of_end(source.offsets),
            "serial": entry.serial,
            "run": self._drivers[entry.run_id or ""].number,
            "earlier": frozenset(self._drivers[run].number for run in entry.earlier_runs),
        }


def _ends(step: Any) -> tuple[Offsets, ...]:
    match step:
        case Planned(start=start, end=end):
            return start, end
        case Began(plan=plan):
            return plan
    return ()


def _without_repeats(steps: Sequence[Step]) -> Iterator[Step]:
    """Reading and describing once more at the same moment shows the same."""
    before: Step = {}
    for step in steps:
        if step != before or step["kind"] != "reads":
            yield step
        before = step


@dataclass(frozen=True, slots=True)
class _Appended:
    """A record batch that arrived: the step's place among all, and the append's place in its request."""

    at: int
    place: int
    sent: Requested
    code: int

    @property
    def append(self) -> Append:
        return self.sent.request.appends[self.place]


def _merged(recording: Recording) -> Iterator[tuple[tuple[int, int], tuple[tuple[int, int], ...]]]:
    """What is one append to the specification: all record batches of a task for one partition, at the first of them.

    By request and the append's place in it: all rows, or none if they are those of an earlier request. Raises _Lacks
    unless the batches follow each other, each was appended, and nobody else appends to the partition in this epoch.
    """
    requests = {step.number: step for step in recording.steps if isinstance(step, Requested)}
    arrived: dict[tuple[int, TopicPartition], list[_Appended]] = {}
    lost = {
        (sent.request.epoch, append.partition)
        for number, sent in requests.items()
        if number not in recording.answered
        for append in sent.request.appends
    }
    for at, step in enumerate(recording.steps):
        if isinstance(step, Arrived) and (sent := requests[step.number]).request.appends:
            for place, append in enumerate(sent.request.appends):
                appended = _Appended(at, place, sent, step.answer.codes[place])
                arrived.setdefault((sent.request.epoch, append.partition), []).append(appended)
    for key, batches in arrived.items():
        if all(batch.append.sequence == 0 for batch in batches):
            continue
        first, follow = batches[0], 0
        for batch in batches:
            whose = batch.sent.driver == first.sent.driver and not batch.sent.straggles
            if key in lost or not whose or batch.code or batch.append.sequence != follow:
                raise _Lacks(_SEVERAL)
            follow += len(batch.append.rows)
        between = [step for step in recording.steps[first.at : batches[-1].at] if isinstance(step, Requested)]
        if any(step.request.api != "Produce" or step.driver != first.sent.driver for step in between):
            raise _Lacks(_SEVERAL)
        yield (first.sent.number, first.place), tuple(row for batch in batches for row in batch.append.rows)
        for batch in batches[1:]:
            yield (batch.sent.number, batch.place), ()


def _lasting(recording: Recording) -> Iterator[tuple[int, int]]:
    """The first request that was done in each attempt that lasted longer than the transaction's timeout, with the
    number of partitions in it minus 1.
    """
    first: dict[tuple[str, int], tuple[int, float]] = {}
    ended: dict[tuple[str, int], float] = {}
    last: dict[str, float] = {}
    current: dict[str, tuple[str, int]] = {}
    sent = {step.number: step for step in recording.steps if isinstance(step, Requested)}
    for step in recording.steps:
        if not isinstance(step, (Requested, Arrived)):
            continue
        request = sent[step.number]
        if request.straggles:
            continue
        driver, api = request.driver, request.request.api
        if driver in current:
            ended[current[driver]] = step.at_s
        if api in ("AddPartitionsToTxn", "Produce") and isinstance(step, Arrived) and step.answer.codes[-1] == 0:
            key = driver, request.request.epoch
            first.setdefault(key, (step.number, last.get(driver, 0.0)))
        if request.request.epoch >= 0 and api != "InitProducerId":
            current[driver] = driver, request.request.epoch
        elif api != "DescribeTransactions":
            current.pop(driver, None)
        if isinstance(step, Arrived) and (driver, request.request.epoch) not in first:
            last[driver] = step.at_s
    for key, (number, since) in first.items():
        if ended.get(key, since) - since >= recording.timeouts_s.get(key[0], _TIMEOUT_S):
            yield number, len(sent[number].request.appends or (None,)) - 1
