"""Commits batches with whatever release of this package comes first on the path: run by `releases`, or imported.

Reads a JSON list of steps from its standard input, and prints where the package is and the steps' outcomes.

    {"step": "batch", "options": the sink's, "query": id, "batch": id, "source": topic, "range": [start, end]}
        writes one record for each offset, its number, to partition 0 of each output topic
    {"step": "write", "options": the sink's, with txnAppId and txnVersion, "range": [start, end]}
    {"step": "starts", "options": the source's}     where a new query starts
    {"step": "replay", "options": the sink's, "id": transactional.id, "topic": of dead letters}

An outcome is {"outcome": "committed" or "skipped"}, {"refused": message}, {"starts": {partition: offset}} or
{"sent": records}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

import pyarrow as pa

PACKAGE = "spark_kafka_eos"
_PARTITIONS, _MICRO_BATCH = ("kafka.partitions", "model"), ("micro_batch", "model")

Step = Mapping[str, Any]
Outcome = dict[str, Any]


def outcome_of(step: Step) -> Outcome:
    """What comes of one step. A refusal is an outcome; any other error is raised."""
    try:
        return _STEPS[step["step"]](step)
    except _name("errors", "LedgerRefused") as error:
        return {"refused": str(error)}


def _name(module: str, name: str) -> Any:
    return getattr(import_module(f"{PACKAGE}.{module}"), name)


def _is_there(module: str) -> bool:
    parts = module.split(".")
    return all(find_spec(".".join([PACKAGE, *parts[:count]])) is not None for count in range(1, len(parts) + 1))


def _first(name: str, *modules: str) -> Any:
    """`name` from the first of these modules that this release has."""
    return _name(next(module for module in modules if _is_there(module)), name)


def _is_0_1() -> bool:
    return _is_there("eos")


def _decide(name: str) -> Any:
    return _first(name, "ledger.decide", "writing.transaction", "eos.distributed")


def _batch(step: Step) -> Outcome:
    tp = _first("TopicPartition", *_PARTITIONS)(step["source"], 0)
    start, end = ({tp: offset} for offset in step["range"])
    digest = f"{step['source']} {step['range']}"
    # 0.1 only knows the sources of a batch together.
    sources = {} if _is_0_1() else {"sources": (_first("SourceRange", *_MICRO_BATCH)(start=start, end=end),)}
    batch = _micro_batch(query_id=step["query"], batch_id=step["batch"], digest=digest, start=start, end=end, **sources)
    return _commit(step, batch, _decide("decide_micro_batch"))


def _micro_batch(**given: Any) -> Any:
    """Of these fields, those that this release has: later ones derive a batch's start and end from its sources."""
    kind = _first("MicroBatch", *_MICRO_BATCH)
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in known})


def _write(step: Step) -> Outcome:
    app_id, version = step["options"]["txnAppId"], int(step["options"]["txnVersion"])
    batch = _micro_batch(query_id=app_id, batch_id=version, digest="d", start={}, end={})
    decide = _decide("decide_batch_write")
    return _commit(step, batch, (lambda _: decide) if _is_0_1() else decide)


def _commit(step: Step, batch: Any, decide: Callable[[Any], Any]) -> Outcome:
    options = _name("options", "sink_options")(step["options"])
    encode, append = (
        _first("encode", "kafka.wire.encode", "wire.encode"),
        _first("append", "appending.append", "writing.append", "eos.appending"),
    )
    appended = _first("Appended", "eos.settle", "appending.report", "writing.report")
    values = [b"%d" % number for number in range(*step["range"])]
    topics = str(step["options"].get("outputTopics") or step["options"]["topic"]).split(",")

    def write(identity: Any) -> Any:
        blocks = [
            (
                _first("TopicPartition", *_PARTITIONS)(topic, 0),
                len(values),
                encode(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), int(time.time() * 1e3)),
            )
            for topic in topics
        ]
        append(cluster, identity, blocks)
        return appended(partitions=len(blocks), records=len(blocks) * len(values), bytes=0)

    with _first("Cluster", "kafka.protocol.cluster", "protocol.cluster", "broker.cluster")(options.client) as cluster:
        transaction = _first("SharedTransaction", "transaction.shared", "writing.transaction", "eos.distributed")(
            options, cluster, decide(options)
        )
        by_driver: dict[str, Any] = {"append_mode": "driver"}
        if _is_0_1():
            report = _name("eos.settle", "settle")(transaction, batch, write, max_tries=2, **by_driver)
        else:
            commit_batch = _first("commit_batch", "transaction.commit", "writing.commit")
            takes_choice = "choice" in signature(commit_batch).parameters
            mode = {"choice": _name("appending.append_mode", "Choice")(mode="driver")} if takes_choice else by_driver
            report = commit_batch(transaction, batch, write, max_attempts=2, **mode)
    return {"outcome": report.outcome}


def _starts(step: Step) -> Outcome:
    options = _name("options", "source_options")(step["options"])
    is_new = _is_there("reading.offset_planner")
    planner_class = _first(
        "OffsetPlanner" if is_new else "Positions", "reading.offset_planner", "reading.positions", "eos.positions"
    )
    with planner_class(options) as planner:
        return {"starts": {str(tp): offset for tp, offset in planner.starting().items()}}


def _replay(step: Step) -> Outcome:
    plan, run = (_first(name, "tools.replay.send", "replay.send", "dead_letters.replay") for name in ("plan", "run"))
    client = _name("options", "sink_options")(step["options"] | {"kafka.transactional.id": step["id"]}).client
    with _first("Cluster", "kafka.protocol.cluster", "protocol.cluster", "broker.cluster")(client) as cluster:
        return {"sent": run(cluster, plan(cluster, step["topic"], step["options"], step["id"]))}


_STEPS: Mapping[str, Callable[[Step], Outcome]] = {
    "batch": _batch,
    "write": _write,
    "starts": _starts,
    "replay": _replay,
}

if __name__ == "__main__":
    found = {
        "package": import_module(PACKAGE).__file__,
        "outcomes": [outcome_of(step) for step in json.load(sys.stdin)],
    }
    json.dump(found, sys.stdout)
