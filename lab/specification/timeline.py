"""A behaviour that TLC found, as lines that a person can follow: who did what, and what that changed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.specification.values import parse

_STATE = re.compile(r"^State \d+: <(\w+) .*>$")
_VARIABLE = re.compile(r"^(?:/\\ )?(\w+) = ")

# What each action is in the product: a request, or a question.
ACTIONS = {
    "Starts": "starts",
    "StartsAnew": "starts with a new checkpoint",
    "StartsFromCopy": "starts with an older copy of the checkpoint",
    "Plans": "plans",
    "Describes": "DescribeTransactions",
    "Glances": "reads the ledger without waiting",
    "AsksIfHeld": "DescribeTransactions: is my epoch current?",
    "Fences": "AddPartitionsToTxn, all under the old epoch",
    "Takes": "InitProducerId",
    "LooksAgain": "DescribeTransactions: was it only my InitProducerId?",
    "Reads": "reads the ledger as the owner",
    "AddsPartitions": "AddPartitionsToTxn",
    "Appends": "Produce",
    "TaskRunsAgain": "a task runs again",
    "StageRunsAgain": "the stage runs again",
    "AddsLedger": "AddPartitionsToTxn, AddOffsetsToTxn",
    "AppendsEntry": "Produce of the entry",
    "CommitsOffsets": "TxnOffsetCommit",
    "Commits": "EndTxn(commit)",
    "GivesUp": "gives up on EndTxn(commit)",
    "Doubts": "DescribeTransactions: was it committed?",
    "AsksWhy": "DescribeTransactions: why is my epoch over?",
    "Aborts": "EndTxn(abort)",
    "Notes": "Spark records the batch as done",
    "Unanswered": "no answer",
    "SomethingArrives": "arrives late",
    "Arrives": "arrives late",
    "MarkerIsWritten": "a marker is written",
    "Pauses": "is paused for longer than its timeout",
    "TimesOut": "the coordinator ends the transaction, which was open for too long",
    "ReadsTable": "reads the table",
    "CommitsPrepared": "EndTxn(commit) for the transaction that the table names",
    "FencesTable": "fences the table",
    "FenceUnanswered": "fences the table, without an answer",
    "RefusesRows": "compares the rows with the table's; EndTxn(abort)",
    "CommitsTable": "the table's commit",
    "TableUnanswered": "the table's commit, without an answer",
    "PreparedUnanswered": "no answer",
    "SettlesTable": "was the table's commit applied? If not, a fence",
    "TableCommitArrives": "a commit of the table arrives late",
}
_ALSO = "Also"  # TableAndTopic's name for an action of SharedTransaction


@dataclass(frozen=True, slots=True)
class Step:
    """An action of the specification, and the state after it."""

    action: str
    state: dict[str, Any]


def steps_of(output: str) -> list[Step]:
    """The behaviour in TLC's output, from its initial state; empty if there is none."""
    lines = iter(output.splitlines())
    return [
        Step(match[1], _variables("\n".join(_until_blank(lines)))) for line in lines if (match := _STATE.match(line))
    ]


def _until_blank(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if not line.strip():
            return
        yield line


def _variables(text: str) -> dict[str, Any]:
    values: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        match = _VARIABLE.match(line)
        if match:
            name = match[1]
        values.setdefault(name, []).append(line[match.end() :] if match else line)
    return {name: parse(" ".join(lines)) for name, lines in values.items()}


def timeline(steps: Sequence[Step]) -> list[str]:
    """One line for each step after the initial state."""
    steps = [replace(step, action=step.action.removesuffix(_ALSO)) for step in steps]
    return [
        f"{number:3}  {_who(step, before.state):8} {_what(step, before.state)}{changes(before.state, step.state)}"
        for number, (before, step) in enumerate(itertools.pairwise(steps), 1)
    ]


def _who(step: Step, before: dict[str, Any]) -> str:
    if step.action in ("SomethingArrives", "Arrives", "TableCommitArrives"):
        return "network"
    if step.action in ("MarkerIsWritten", "TimesOut"):
        return "brokers"
    sent: list[dict[str, Any]] = list(step.state["late"] - before["late"])
    acted = [
        number
        for number, (was, now) in enumerate(zip(_memories(before), _memories(step.state), strict=True), 1)
        if was != now
    ]
    # Another run's memory only changes if it is overtaken. One that waits for the coordinator does not change its own.
    waiting = [number for number, memory in enumerate(before["run"], 1) if memory["at"] == "init"]
    number = next(iter([*(message["run"] for message in sent), *acted, *waiting]), None)
    return "a run" if number is None else f"run {number}"


def _memories(state: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What each run remembers, of the table too. That it was overtaken is not its own doing."""
    memories = [{**memory, "owned": 0} for memory in state["run"]]
    return list(zip(memories, state.get("know", memories), strict=True))


def _what(step: Step, before: dict[str, Any]) -> str:
    what = ACTIONS.get(step.action, step.action)
    gone = [_message(m) for m in before["late"] - step.state["late"]]
    new = [_message(m) for m in step.state["late"] - before["late"]]
    if gone:
        return f"{gone[0]} {what}"
    if new:
        return f"{what}: {new[0]} may arrive late"
    return what


def _message(m: dict[str, Any]) -> str:
    what = ""
    if m["records"]:
        what = f" of {list(m['records'])} to out-{min(m['parts']) - 1}"
    elif m["entry"]["batch"]:
        what = f" of the entry of batch {m['entry']['batch']}"
    epoch = "" if m["epoch"] < 0 else f", epoch {m['epoch']}"
    return f"{m['api']}{what} (run {m['run']}{epoch})"


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What a step changed, each after a semicolon."""
    texts = [*_of_runs(before, after), *_of_brokers(before["kafka"], after["kafka"])]
    if "table" in before:
        texts += _of_table(before["table"], after["table"])
    older = before["checkpoints"]
    for number, now in enumerate(after["checkpoints"], 1):
        was = older[number - 1] if number <= len(older) else {"plan": [], "done": now["done"]}
        if was["plan"] != now["plan"]:
            n = len(now["plan"])
            start = now["plan"][n - 2] if n > 1 else now["start"]
            texts.append(f"checkpoint {number}: batch {n} is records {start + 1}..{now['plan'][-1]}")
        if was["done"] != now["done"]:
            texts.append(f"checkpoint {number}: batch {now['done']} is done")
    if not before["harmed"] and after["harmed"]:
        texts.append("A LATE DRIVER DISTURBS A LIVE ONE")
    return "".join(f"; {text}" for text in texts)


def _of_runs(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for was, now in zip(before["run"], after["run"], strict=True):
        if was["epoch"] != now["epoch"] and now["epoch"] >= 0:
            yield f"has epoch {now['epoch']}"
        if was["at"] != now["at"]:
            batch = f" batch {now['batch']}" if now["at"] in ("append", "add partitions", "note") else ""
            yield f"{now['at'].upper() if now['at'] in _ENDS else 'next: ' + now['at']}{batch}" + (
                f" ({now['why']})" if now["why"] else ""
            )


def _partitions(count: int) -> list[str]:
    """The names of the partitions 1..count: those of the output, the ledger's, the group's."""
    return [*(f"out-{n}" for n in range(count - 2)), "ledger", "group"]


_ENDS = ("finished", "refused", "fenced", "failed", "stopped")


def _of_brokers(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if (was["state"], was["epoch"]) != (now["state"], now["epoch"]):
        yield f"coordinator: {now['state']}, epoch {now['epoch']}"
    for name, before, after in zip(_partitions(len(now["log"])), was["log"], now["log"], strict=True):
        if before["visible"] != after["visible"]:
            yield f"{name}: {_shown(after['visible'])} visible"
        elif before["pending"] != after["pending"]:
            yield f"{name}: {_shown(after['pending'])} pending"


def _of_table(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if was["version"] != now["version"]:
        yield f"table: version {now['version']}"
    for token in now["log"][len(was["log"]) :]:
        rows = ", ".join(f"{list(part)} for out-{n}" for n, part in enumerate(token["rows"]) if part)
        yield f"table: {rows}, token: batch {token['batch']}, epoch {token['epoch']}"


def _shown(content: Sequence[Any]) -> str:
    if content and isinstance(content[0], dict):
        return f"entry of batch {content[-1]['batch']} (to {content[-1]['end']}, by run {content[-1]['run']})"
    return f"{list(content)}"
