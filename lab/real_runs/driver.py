"""A driver's process, without Spark: it writes micro-batches as Spark's driver does, with the product's own code.

What Spark keeps in the checkpoint, its supervisor keeps (`query.py`): the driver asks for it over a pipe. So a file is
written, and recorded, or it is neither, whenever the driver is killed.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from spark_kafka_eos import failpoints
from spark_kafka_eos.appending.append import BlockAppender
from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import EncodeReport, encoded
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import BrokerError, KafkaEosError
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.transaction.commit import commit_batch, committer

SOURCE = TopicPartition("in", 0)
PARTITIONS = 2  # of the output
_MOST_ATTEMPTS = 3


class Stopped(Exception):
    """Spark stops this query, because another one uses its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run of the query: `name` is also its client.id. `holds`: it keeps its transaction from batch to batch, as
    TransactionalWriter does; else it begins anew for each, as the sink does. `hold` is a failpoint.
    """

    name: str
    output: str
    holds: bool
    hold: str
    settings: dict[str, object]

    @property
    def options(self) -> SinkOptions:
        return sink_options({"kafka.client.id": self.name, "topic": self.output, **self.settings})


class Supervisor:
    """What the driver asks its supervisor, which answers."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def begins(self) -> tuple[int, bool]:
        """The batch to begin with, and whether batch 0 starts at the committed offsets."""
        number, resumes = self._ask("begins")
        return int(number), bool(resumes)

    def plans(self, number: int, start: Offsets | None) -> MicroBatch | None:
        """The batch, planned now unless it is in the checkpoint; None if nothing is left to read."""
        batch: MicroBatch | None = self._ask("plans", number, start)
        return batch

    def notes(self, number: int) -> None:
        """Record in the checkpoint that the batch is done."""
        self._ask("notes", number)

    def held(self) -> None:
        """Wait at a failpoint."""
        self._ask("held")

    def stops(self, why: str) -> None:
        """The run ends: with an error of this class, or without one."""
        self._ask("stops", why)

    def _ask(self, *question: object) -> Any:
        """Raises Stopped if another driver was faster."""
        self._pipe.send(question)
        answer = self._pipe.recv()
        if isinstance(answer, Stopped):
            raise answer
        return answer


def main(job: Job, pipe: Connection) -> None:
    """A driver's life."""
    logging.disable(logging.CRITICAL)  # every fault is reported
    supervisor = Supervisor(pipe)
    try:
        with _held_by(supervisor, job.hold):
            _query(job, supervisor)
    except (KafkaEosError, Stopped) as error:
        supervisor.stops(type(error).__name__)
    else:
        supervisor.stops("")


@contextmanager
def _held_by(supervisor: Supervisor, point: str) -> Iterator[None]:
    """Ask the supervisor at this failpoint, instead of waiting for a file."""

    def held(_folder: Path, _reached: Path) -> bool:
        supervisor.held()
        return True

    with (
        mock.patch.object(failpoints, "_ARMED", point or None),
        mock.patch.object(failpoints, "_held", held),
        mock.patch.dict("os.environ", KAFKA_EOS_FAILPOINT_DIR="/nowhere"),
    ):
        yield


def _query(job: Job, supervisor: Supervisor) -> None:
    options = job.options
    chance = random.Random(f"{job.output} {job.name}")  # noqa: S311 - it places rows
    with Cluster(options.client) as cluster:
        number, resumes = supervisor.begins()
        start = None if number else {SOURCE: _committed(cluster, options) if resumes else 0}
        transaction = committer(options, cluster, decide_micro_batch(options))
        while (batch := supervisor.plans(number, start)) is not None:
            if not job.holds:
                transaction = committer(options, cluster, decide_micro_batch(options))
            staged = EncodeReport(task=0, blocks=tuple(_blocks(job.output, batch, chance)))
            write = BlockAppender(cluster, options, Staging("memory"), partial(list, [staged]), number)
            commit_batch(
                transaction,
                replace(batch, run_id=job.name),
                write,
                max_attempts=_MOST_ATTEMPTS,
                choice=Choice(mode="driver"),
            )
            supervisor.notes(number)
            number, start = number + 1, None


def _committed(cluster: Cluster, options: SinkOptions) -> int:
    """Where a query starts whose checkpoint is lost: at the group's offset, or, while that is pending, the ledger's."""
    try:
        committed = GroupCoordinator(cluster, options.group_id).fetch_offsets([SOURCE])[SOURCE]
    except BrokerError as error:
        if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
        committed = None
    if committed is not None:
        return committed.offset
    entry = last_entry(cluster, options.ledger_topic, options.transactional_id)
    (progress,) = (entry and entry.sources) or (None,)
    return progress.offsets[SOURCE] if progress is not None else 0


def _blocks(topic: str, batch: MicroBatch, chance: random.Random) -> Iterator[Any]:
    """The batch's rows, one block for each output partition that has some: placed at random, as by a shuffle that is
    computed again.
    """
    assert batch.start is not None
    placed: dict[int, list[int]] = {}
    for offset in range(batch.start[SOURCE], batch.end[SOURCE]):
        placed.setdefault(chance.randrange(PARTITIONS), []).append(offset)
    for partition, offsets in sorted(placed.items()):
        values = pa.array([b"%d" % offset for offset in offsets], pa.binary())
        now_ms = int(time.time() * 1e3)  # else the broker's retention would delete them
        data = bytes(encode(pa.nulls(len(offsets), pa.binary()), values, now_ms))
        block = Block(
            partition=TopicPartition(topic, partition), task=0, number=0, records=len(offsets), data=bytearray(data)
        )
        yield encoded(block, data=data)


def row_of(value: bytes) -> tuple[int, int]:
    """Source partition and offset of a record of the output."""
    return SOURCE.partition, int(value)


def contents_of(output: str, tp: TopicPartition, batch: bytes) -> tuple[Any, ...]:
    """The rows of a record batch of the output; the keys and values of any other one."""
    columns = decode(batch, scan(batch))
    values = columns["value"].to_pylist()
    if tp.topic == output:
        return tuple(map(row_of, values))
    return tuple(zip(columns["key"].to_pylist(), values, strict=True))
