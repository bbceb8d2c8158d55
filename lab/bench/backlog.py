"""Throughput of copies that begin behind a backlog: those that `real_time` compares, each in a fresh process.

A run's seconds are those from the start of the process until all is visible, less those of a run with one record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from lab.bench.copies import TITLES, Copy, running
from lab.bench.figures import Comparison, Series
from lab.bench.inputs import Shape
from lab.bench.lab import Lab, temporary_directory
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.offsets import latest

_PARTITIONS = 4
_LOOK_SECONDS = 0.05  # between two looks at the log: brokers tell nobody that an offset has become stable
_QUIET_SECONDS = 1.0  # markers take offsets, too: all is visible when no more come
_PATIENCE_SECONDS = 600


def backlog(
    lab: Lab, copies: Sequence[Copy], *, records: int, rounds: int, long_batch: str = "5 minutes"
) -> Comparison:
    """Run each copy in turn. Raises ToolFailed if an output does not have exactly the input's records."""
    seconds: dict[Copy, list[float]] = {copy: [] for copy in copies}
    for number in range(rounds):
        for copy in copies:
            lab.show(f"{copy}, round {number + 1}", number, rounds)
            alone, behind = (_seconds(lab, copy, count, long_batch) for count in (1, records))
            seconds[copy].append(behind - alone)
    lab.show("done", 1, 1)
    return Comparison(
        title=f"A backlog of {records:,} records",
        series=tuple(Series(name=TITLES[copy], records=records, seconds=tuple(each)) for copy, each in seconds.items()),
        settings={"records": records, "partitions": _PARTITIONS, "rounds": rounds, "long_batch": long_batch},
    )


def _seconds(lab: Lab, copy: Copy, records: int, long_batch: str) -> float:
    (source,) = lab.input(Shape(records=records, partitions=_PARTITIONS)).topics
    (target,) = lab.topics("out", 1, _PARTITIONS)
    with temporary_directory() as folder:
        started = time.monotonic()
        with running(copy, lab.bootstrap, source, target, folder, long_batch):
            ended = _all_visible(lab, target, records, folder)
    lab.check([target], records, str(copy))
    return ended - started


def _all_visible(lab: Lab, topic: str, records: int, folder: Path) -> float:
    """When the last offset became stable."""
    partitions = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    offsets, changed, deadline = 0, time.monotonic(), time.monotonic() + _PATIENCE_SECONDS
    while offsets < records or time.monotonic() - changed < _QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise ToolFailed("not every record arrived", action=(folder / "log").read_text(errors="replace")[-2_000:])
        time.sleep(_LOOK_SECONDS)
        now = sum(latest(lab.cluster, partitions).values())
        if now != offsets:
            offsets, changed = now, time.monotonic()
    return changed
