"""A streaming query's driver without Spark: plans, writes and notes micro-batches as Spark does.

It keeps a checkpoint in Spark's format, encodes and stages a batch's rows as tasks do, and settles the batch as the
sink does. The records tell where they come from (tools/verify/provenance_bytes.py), and which driver wrote them. If the
source is on another cluster, it is read: the values found there are the keys of the output.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_kafka_eos import failpoints
from spark_kafka_eos.appending.append import BlockAppender
from spark_kafka_eos.appending.blocks import BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings, target
from spark_kafka_eos.appending.staging import folder_of, staging_of
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import OffsetRange, Offsets, TopicPartition, offsets_to_json
from spark_kafka_eos.kafka.protocol import cluster as cluster_module
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.preflight.run import preflight
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import arrow_schema, read
from spark_kafka_eos.spark.checkpoint import micro_batch
from spark_kafka_eos.tools.verify.provenance_bytes import pack
from spark_kafka_eos.transaction.commit import commit_batch, committer
from tests.batches import BY_DRIVER

PARTITIONS = 2  # of the source, and of the target: source partition p goes to target partition p
RECORDS = 30  # in each source partition


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a query: `name` is the driver's, its client.id and its mark on the records.

    Batches take `step` records of each source partition, up to `end` of them. `hold` is a failpoint, with its batch
    (`all appended@1`). `from_committed`: startingOffsets=committed, as a query whose checkpoint is lost is started; its
    batch ids begin anew, so the records count them from `numbered_from`. `source_bootstrap` is of the source's cluster,
    where that is another one, which `options` must name in sourceClusters.
    """

    name: str
    bootstrap: str
    source: str
    target: str
    folder: Path
    step: int = 10
    end: int = RECORDS
    hold: str | None = None
    from_committed: bool = False
    numbered_from: int = 0
    source_bootstrap: str = ""
    options: dict[str, object] = field(default_factory=dict)

    @property
    def connection(self) -> dict[str, object]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.client.id": self.name,
            "kafka.retry.backoff.ms": 20,
        }

    @property
    def source_connection(self) -> dict[str, object]:
        elsewhere = {"kafka.bootstrap.servers": self.source_bootstrap} if self.source_bootstrap else {}
        return {**self.connection, "subscribe": self.source, **elsewhere}

    @property
    def results(self) -> Path:
        return self.folder / f"{self.name}.results"


class Checkpoint:
    """Spark's: `metadata`, `offsets/<batch>`, `commits/<batch>`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        if self.read("metadata") is None:
            self._write("metadata", json.dumps({"id": str(uuid.uuid4())}))

    def read(self, name: str) -> str | None:
        file = self._root / name
        return file.read_text() if file.exists() else None

    def plan(self, batch: int, end: Offsets) -> None:
        self._write(f"offsets/{batch}", f"v1\n{{}}\n{json.dumps(offsets_to_json(end))}")

    def note(self, batch: int) -> None:
        self._write(f"commits/{batch}", "v1\n{}")

    def _write(self, name: str, text: str) -> None:
        file = self._root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f".{file.name}").write_text(text)
        file.with_name(f".{file.name}").rename(file)


def main(job: Job) -> None:
    """`run` in a process of its own, which may be held at a failpoint."""
    failpoints._ARMED = job.hold
    os.environ["KAFKA_EOS_FAILPOINT_DIR"] = str(job.folder)
    cluster_module.UNKNOWN_TOPIC_PATIENCE_MS = 500  # topics of these tests are there, or gone for good
    run(job)


def run(job: Job) -> None:
    """All of the query's batches, each with a line of results: its report, or the error that ended the run."""
    with job.results.open("a", buffering=1) as results:
        try:
            for batch, report in batches(job):
                line = {"batch": batch.batch_id, "outcome": report.outcome, "redone": report.redone}
                print(json.dumps(line), file=results)
        except KafkaEosError as error:
            line = {"error": type(error).__name__, "text": str(error), "committed": error.committed}
            print(json.dumps(line), file=results)


def batches(job: Job) -> Any:
    """Run the batches that are left; yields each one with its report once it is noted."""
    checkpoint = Checkpoint(job.folder / "checkpoint")
    options = sink_options(
        {"kafka.transactional.id": f"id-{job.target}", "topic": job.target, **job.connection, **job.options}
    )
    with Cluster(options.client) as cluster:
        start = first_offsets(job, checkpoint)
        preflight(cluster, options)
        transaction = committer(options, cluster, decide_micro_batch(options))
        staging = staging_of(options, str(job.folder))
        number = next(n for n in itertools.count() if checkpoint.read(f"commits/{n}") is None)
        while True:
            before = start if number == 0 else planned(checkpoint, number - 1)
            if checkpoint.read(f"offsets/{number}") is None:
                if all(offset >= job.end for offset in before.values()):
                    return
                # A query that starts at the group's offsets reads nothing in its batch 0: it only pins them.
                step = 0 if job.from_committed and number == 0 else job.step
                checkpoint.plan(number, {tp: min(job.end, offset + step) for tp, offset in before.items()})
            batch = micro_batch(checkpoint.read, number, [json.dumps(offsets_to_json(start))])
            settings = encode_settings(options, job.target, cluster)
            encoder = BlockEncoder(
                settings, 0, lambda topic: target(cluster, topic, options.ledger_topic), lambda: int(time.time() * 1000)
            )
            rows = (rows_read if job.source_bootstrap else rows_of)(batch, before, job)
            blocks = [*encoder.add(rows), *encoder.finish()] if rows.num_rows else []
            staged = staging.stage(folder := folder_of(number), 0, blocks)
            write = BlockAppender(cluster, options, staging, functools.partial(list, [staged]), number)
            report = commit_batch(transaction, batch, write, max_attempts=3, choice=BY_DRIVER)
            staging.clean(folder)
            checkpoint.note(number)
            yield batch, report
            number += 1


def first_offsets(job: Job, checkpoint: Checkpoint) -> dict[TopicPartition, int]:
    """Where batch 0 starts: determined again by every driver that has to run it."""
    if checkpoint.read("commits/0") is not None:
        return {}
    if not job.from_committed:
        return {TopicPartition(job.source, number): 0 for number in range(PARTITIONS)}
    told_by: dict[str, object] = {"kafka.group.id": f"id-{job.target}"}
    if job.source_bootstrap:
        sink = {**job.connection, "kafka.transactional.id": f"id-{job.target}"}
        told_by = {f"sink.{name}": value for name, value in sink.items()}
    options = source_options({"startingOffsets": "committed", **told_by, **job.source_connection})
    with OffsetPlanner(options) as planner:
        return planner.starting()


def planned(checkpoint: Checkpoint, number: int) -> dict[TopicPartition, int]:
    return dict(micro_batch(checkpoint.read, number).end)


def rows_of(batch: MicroBatch, start: Offsets, job: Job) -> pa.RecordBatch:
    """The batch's rows, which name the source record, the batch and the driver."""
    places = [(tp.partition, offset) for tp in sorted(batch.end) for offset in range(start[tp], batch.end[tp])]
    partitions, offsets = [partition for partition, _ in places], [offset for _, offset in places]
    return _rows(batch, job, partitions, offsets, pa.nulls(len(places), pa.binary()))


def rows_read(batch: MicroBatch, start: Offsets, job: Job) -> pa.RecordBatch:
    """The same of the records that the source has there; what they hold is the key."""
    options = source_options(job.source_connection)
    wanted = [OffsetRange(partition=tp, start=start[tp], end=end) for tp, end in sorted(batch.end.items())]
    with Cluster(options.client) as cluster:
        found = pa.Table.from_batches(read(wanted, options, cluster), arrow_schema(include_headers=False))
    rows = found.combine_chunks()
    return _rows(batch, job, rows["partition"].to_pylist(), rows["offset"].to_pylist(), rows["value"].combine_chunks())


def _rows(batch: MicroBatch, job: Job, partitions: list[int], offsets: list[int], keys: pa.Array) -> pa.RecordBatch:
    number = batch.batch_id + job.numbered_from
    return pa.RecordBatch.from_pydict(
        {
            "key": keys,
            "value": pack(partitions, offsets, number, payload=job.name.encode()),
            "partition": pa.array(partitions, pa.int32()),
        }
    )
