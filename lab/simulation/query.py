"""What Spark does around the product: plans micro-batches, keeps the checkpoint, runs the append stage, restarts.

It calls the product as a real driver and real tasks do: `commit_batch`, `SharedTransaction`, `BlockAppender`,
`append_attempt` and `judge`, with a `Cluster` whose connections lead to the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from lab.simulation.network import Network
from lab.simulation.world import Killed, Process, World
from spark_kafka_eos.appending.append import BlockAppender
from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.append_task import append_attempt, judge
from spark_kafka_eos.appending.barrier import AppendReport, StageAttempts
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import Appended, CommitReport, EncodeReport, encoded
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import BrokerError, KafkaEosError
from spark_kafka_eos.kafka.partitions import (
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
    offsets_from_json,
    offsets_to_json,
)
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import HEADER, scan
from spark_kafka_eos.ledger.decide import Decide, batch_write, decide_batch_write, decide_micro_batch
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark.checkpoint import micro_batch
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction

TOPIC = "out"
OUTPUT = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
SOURCE = (TopicPartition("in", 0), TopicPartition("in", 1))
OPTIONS = sink_options({"kafka.bootstrap.servers": "node-0:9092", "kafka.transactional.id": "id", "topic": TOPIC})
ELSEWHERE = replace(OPTIONS, source_clusters=("another cluster",))
TOPICS = {OPTIONS.ledger_topic: 3} | {TOPIC: len(OUTPUT)}  # number of partitions
SLOTS = len(OUTPUT)  # one append task for each partition

_STAGING = Staging("memory")  # blocks travel inline, so that there are no files
_MOST_TRIES = 3


class Row(NamedTuple):
    """A record, identified by its place in the source."""

    partition: int
    offset: int


# The writer's two append modes, the sink, and a job of batch writes with `txnAppId`.
WritePath = Literal["driver", "executors", "sink", "batch writes"]
BlockRows = Mapping[TopicPartition, tuple[tuple[Row, ...], ...]]  # of each output partition, its blocks
# By the bytes after a record batch's header.
_rows: dict[bytes, tuple[Row, ...]] = {}
_others: dict[bytes, tuple[Any, ...]] = {}
_MOST_OTHERS = 10_000


@cache
def block_of(rows: tuple[Row, ...]) -> bytes:
    """A complete record batch with these rows."""
    values = [f"{row.partition}@{row.offset}".encode() for row in rows]
    block = bytes(encode(pa.nulls(len(rows), pa.binary()), pa.array(values, pa.binary()), 0))
    _rows[block[HEADER.size :]] = rows
    return block


def contents_of(_tp: TopicPartition, batch: bytes) -> tuple[Any, ...]:
    """The rows of a block, stamped or not; the keys and values of any other record batch."""
    records = batch[HEADER.size :]
    if records in _rows:
        return _rows[records]
    if records not in _others:
        if len(_others) == _MOST_OTHERS:
            _others.clear()
        columns = decode(batch, scan(batch))
        _others[records] = tuple(zip(columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True))
    return _others[records]


@cache
def _end(text: str) -> Offsets:
    return offsets_from_json(text.split("\n")[2])


@cache  # the files of different histories are often the same
def _micro_batch(
    metadata: str,
    batch_id: int,
    planned: str,
    before: str | None,
    first_start: tuple[tuple[TopicPartition, int], ...] | None,
) -> MicroBatch:
    files = {"metadata": metadata, f"offsets/{batch_id}": planned, f"offsets/{batch_id - 1}": before}
    first = None if first_start is None else [json.dumps(offsets_to_json(dict(first_start)))]
    return micro_batch(files.get, batch_id, first)


class Checkpoint:
    """A checkpoint location: files that are written once and atomically."""

    def __init__(self, query_id: str) -> None:
        self.files = {"metadata": json.dumps({"id": query_id})}

    @property
    def query(self) -> str:
        """The query's id."""
        return str(json.loads(self.files["metadata"])["id"])

    def add(self, name: str, text: str) -> bool:
        """False if the file exists."""
        if name in self.files:
            return False
        self.files[name] = text
        return True

    def end(self, batch_id: int) -> Offsets | None:
        """The planned end of a batch."""
        text = self.files.get(f"offsets/{batch_id}")
        return None if text is None else _end(text)

    def batch(self, batch_id: int, first_start: Offsets | None) -> MicroBatch:
        """The batch as the product reads it from these files."""
        before = self.files.get(f"offsets/{batch_id - 1}")
        return _micro_batch(
            self.files["metadata"],
            batch_id,
            self.files[f"offsets/{batch_id}"],
            before,
            first_start and tuple(first_start.items()),
        )

    def next_batch(self) -> int:
        """The batch with which a query starts: the last planned one, unless it is recorded as done."""
        planned = 0
        while f"offsets/{planned}" in self.files:
            planned += 1
        return planned - 1 if planned and f"commits/{planned - 1}" not in self.files else planned

    def forget(self, from_batch: int) -> None:
        """Restore an older copy without `from_batch` and later batches."""
        kept = {}
        for name, text in self.files.items():
            _, slash, number = name.partition("/")
            if not slash or int(number) < from_batch:
                kept[name] = text
        self.files = kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the product reported about a batch, and the identities of its attempts."""

    who: str
    batch: MicroBatch
    outcome: str  # "committed", "skipped", or an error's `committed`
    identities: tuple[ProducerIdentity, ...]
    report: CommitReport | None = None


class Stopped(Exception):
    """Spark stops this query, because another one uses its checkpoint."""


class _NothingHangs(SharedTransaction):
    """Where brokers leave out no marker, nothing hangs. To look for it changes nothing but the requests, and with them
    the histories of all seeds.
    """

    def end_hanging(self) -> bool:
        return False


class SimulatedDriver:
    """One run of the query in a driver, until everything is written or an error stops it."""

    def __init__(
        self,
        world: World,
        network: Network,
        checkpoint: Checkpoint,
        *,
        number: int,
        way: WritePath,
        resumes: bool,
        records: int,
        claims: list[Claim],
        on_pause: Callable[[float], None],
        idle: Callable[[], float],
        elsewhere: bool,
        late: bool = False,
        left_out: bool = False,
        after_real_time: bool = False,
    ) -> None:
        """Each source partition has `records` records. `resumes`: start at the committed offsets instead of 0. `idle`
        returns for how many seconds there is nothing to read. `elsewhere`: the source is on another cluster.
        `late`, `left_out`: see Conditions. `after_real_time`: the query ran in real time before.
        """
        self.process = Process(world, f"driver {number}", self._run, on_pause=on_pause)
        self.error: KafkaEosError | Stopped | None = None
        self.finished = False
        self.checkpoint = checkpoint
        self._world, self._network = world, network
        self._way, self._resumes, self._records, self._claims = way, resumes, records, claims
        self._idle, self._late, self._after_real_time = idle, late, after_real_time
        self._options = ELSEWHERE if elsewhere else OPTIONS
        self._kind = SharedTransaction if left_out else _NothingHangs
        self._stages = 0
        self._tasks: dict[int, tuple[Process, Cluster]] = {}
        self._stragglers = 0

    def _cluster(self, process: Process) -> Cluster:
        # While it is open, it is kept with all that its connections lead to: the whole world.
        return process.sockets.enter_context(
            Cluster(
                OPTIONS.client,
                connect=self._network.connector(process),
                clock=process.clock,
                sleep=process.sleep,
                jitter=lambda: self._world.chance.fraction("jitter"),
            )
        )

    def _transaction(self, cluster: Cluster, decide: Decide) -> SharedTransaction:
        return self._kind(self._options, cluster, decide, clock=self.process.clock)

    # -- the query

    def _run(self) -> None:
        try:
            if self._way == "batch writes":
                self._job(self._cluster(self.process))
            else:
                self._query(self._cluster(self.process))
            self.finished = True
        except (KafkaEosError, Stopped) as error:
            self.error = error
            self._world.note(f"stops: {type(error).__name__}: {error}")
        if self._world.recorder is not None:
            self._world.recorder.stops(self.process.name, type(self.error).__name__ if self.error else "")

    def _query(self, cluster: Cluster) -> None:
        number = self.checkpoint.next_batch()
        if self._world.recorder is not None:
            self._world.recorder.begins(self.process.name, self.checkpoint, number)
        start = None if number else self._first_start(cluster)
        transaction = self._transaction(cluster, decide_micro_batch(OPTIONS))
        while True:
            self._world.step(self.process, "checkpoint")
            if seconds := self._idle():
                self.process.sleep(seconds)
            if self._way == "sink":  # which commits each batch in a separate process
                transaction = self._transaction(cluster, decide_micro_batch(OPTIONS))
                self._network.owners.forgets(self.process)
            if not self._planned(number, start):
                return
            planned = self.checkpoint.batch(number, start)
            if self._world.recorder is not None:
                self._world.recorder.plans(self.process.name, planned)
            self._lag()
            self._write(cluster, transaction, replace(planned, run_id=self.process.name))
            if not self._noted(number):
                raise Stopped(f"commits/{number} is there already")
            number, start = number + 1, None

    def _lag(self) -> None:
        """Pause before a planned batch is written, for as long as a successor needs to begin, to commit, or to end."""
        if self._late and self._world.strikes("a planned batch", often=8):
            seconds = self._world.chance.choose("lag", (0.02, 0.03, 0.04, 0.06, 5.0, 70.0))
            self._world.fault("pause", f"{seconds} s before the batch is written")
            self.process.pause(seconds)

    def _job(self, cluster: Cluster) -> None:
        """One write for each version that is not recorded as done: of the record at that offset in both partitions."""
        for version in range(self._records):
            if f"commits/{version}" not in self.checkpoint.files:
                self._network.owners.starts(self.process)
                batch = batch_write("job", version, destination=TOPIC)
                self._write(cluster, self._transaction(cluster, decide_batch_write(OPTIONS)), batch)
                self._noted(version)

    def _noted(self, number: int) -> bool:
        """Record that the batch is done; False if it was recorded before."""
        self._world.step(self.process, "checkpoint")
        if self._world.strikes("a written batch", often=2):
            self._world.fault("driver killed", f"before it records that batch {number} is done")
            self.process.kill()
        if self._world.recorder is not None:
            self._world.recorder.notes(self.process.name, number)
        return self.checkpoint.add(f"commits/{number}", "v1\n{}")

    def _first_start(self, cluster: Cluster) -> Offsets:
        if not self._resumes:
            return dict.fromkeys(SOURCE, 0)
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if not self._after_real_time:  # else the group has a late copy
            try:
                committed = GroupCoordinator(cluster, OPTIONS.group_id).fetch_offsets(SOURCE)
            except BrokerError as error:
                if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
                self._world.note("starts from the ledger, as the error advises")
        standing = {tp: at.offset for tp, at in committed.items() if at is not None}
        if not standing:  # expired, never committed, or pending in a transaction that nobody ends
            entry = last_entry(cluster, OPTIONS.ledger_topic, OPTIONS.transactional_id)
            (progress,) = (entry and entry.sources) or (None,)
            standing = dict(progress.offsets) if progress is not None else {}
        return {tp: standing.get(tp, 0) for tp in SOURCE}

    def _planned(self, number: int, start: Offsets | None) -> bool:
        """Plan the batch, if it is not in the checkpoint yet; False if there is nothing left to read."""
        if self.checkpoint.end(number) is not None:
            return True
        begin = start if start is not None else self.checkpoint.end(number - 1)
        assert begin is not None
        if all(begin[tp] >= self._records for tp in SOURCE):
            return False
        end = {
            tp: min(begin[tp] + self._world.chance.choose("records of a batch", range(1, 4)), self._records)
            for tp in SOURCE
        }
        if end == begin:
            end = dict.fromkeys(SOURCE, self._records)
        text = f"v1\n{{}}\n{json.dumps(offsets_to_json(end))}"
        self._world.note(f"plans batch {number}: up to {', '.join(map(str, end.values()))}")
        if not self.checkpoint.add(f"offsets/{number}", text):
            raise Stopped(f"offsets/{number} is there already")
        return True

    def _write(self, cluster: Cluster, transaction: SharedTransaction, batch: MicroBatch) -> None:
        identities: list[ProducerIdentity] = []

        def write(identity: ProducerIdentity) -> Appended:
            identities.append(identity)
            appended = staged(identity) if staged else self._append_stage(identity, batch)
            return replace(appended, milliseconds={})  # the ledger has them, and they are of the wall clock

        staged = None
        if self._way != "executors":
            reports = _staged(self._block_rows(batch))
            staged = BlockAppender(cluster, OPTIONS, _STAGING, lambda: reports, batch.batch_id)
        outcome, report = "", None
        try:
            report = commit_batch(
                transaction,
                batch,
                write,
                max_attempts=_MOST_TRIES,
                choice=Choice(mode="executors" if self._way == "executors" else "driver"),
                clock=self.process.clock,
            )
            outcome = report.outcome
        except KafkaEosError as error:
            outcome = error.committed or ""
            raise
        finally:
            self._world.note(f"batch {batch.batch_id}: {outcome or 'not reported'}")
            self._claims.append(
                Claim(who=self.process.name, batch=batch, outcome=outcome, identities=tuple(identities), report=report)
            )

    def _block_rows(self, batch: MicroBatch) -> BlockRows:
        """The partition of each row: random each time, as after a shuffle that is recomputed."""
        chance = self._world.chance
        blocks: dict[TopicPartition, list[tuple[Row, ...]]] = {}
        rows: dict[TopicPartition, list[Row]] = {tp: [] for tp in OUTPUT}
        for source in SOURCE:
            rule = chance.choose(f"placement of {source}", range(3))
            for offset in self._offsets(batch, source):
                to = OUTPUT[offset & 1 if rule == 2 else rule]
                rows[to].append(Row(source.partition, offset))
        for tp, placed in rows.items():
            size = chance.choose("records of a block", range(1, 4))
            if placed:
                blocks[tp] = [tuple(placed[at : at + size]) for at in range(0, len(placed), size)]
        return {tp: tuple(cut) for tp, cut in blocks.items()}

    def _offsets(self, batch: MicroBatch, source: TopicPartition) -> range:
        if self._way == "batch writes":
            return range(batch.batch_id, batch.batch_id + 1)
        assert batch.start is not None
        return range(batch.start[source], batch.end[source])

    # -- the append stage

    def _append_stage(self, identity: ProducerIdentity, batch: MicroBatch) -> Appended:
        """One job with a task per slot, which is retried as Spark does."""
        self._stages += 1
        block_rows, again = self._block_rows(batch), 0
        failed = 0
        reports: dict[int, AppendReport] = {}
        world = self._world
        for slot in range(SLOTS):
            if world.strikes("an append task", often=3):
                kind = world.chance.choose("kind of straggler", ("executor lost", "speculative copy", "stage again"))
                world.fault(kind, f"slot {slot}")
                self._straggle(identity, batch, block_rows, slot)
                if kind == "stage again":
                    again, failed = again + 1, 0
                    block_rows = (
                        self._block_rows(batch) if world.chance.happens("placed otherwise", 0.7) else block_rows
                    )
                    reports[slot] = self._task(identity, batch, block_rows, slot, attempt=0)
                else:
                    # The status store may not know it yet.
                    failed += kind == "executor lost" and world.chance.happens("executor known lost", 0.5)
                    reports[slot] = self._task(identity, batch, block_rows, slot, attempt=1)
                continue
            attempt = 0
            while slot not in reports:
                try:
                    reports[slot] = self._task(identity, batch, block_rows, slot, attempt=attempt)
                except Killed as killed:
                    if killed.process is self.process or self.process.dead:
                        raise
                    failed, attempt = failed + 1, attempt + 1
        stage = StageAttempts(current_attempt=again, completed_tasks=SLOTS, failed_tasks=failed, num_tasks=SLOTS)
        return judge(list(reports.values()), lambda ids: dict.fromkeys(ids, stage))

    def _task(
        self, identity: ProducerIdentity, batch: MicroBatch, block_rows: BlockRows, slot: int, *, attempt: int
    ) -> AppendReport:
        """A task attempt in the executor of this slot, while the driver waits."""
        executor, cluster = self._tasks.get(slot, (None, None))
        if executor is None or cluster is None or executor.dead:
            executor = Process(self._world, f"task {slot} of {self.process.name}", inside=self.process)
            cluster = self._cluster(executor)
            self._tasks[slot] = executor, cluster
        return self._attempt(cluster, identity, batch, block_rows, slot, attempt)

    def _straggle(self, identity: ProducerIdentity, batch: MicroBatch, block_rows: BlockRows, slot: int) -> None:
        """A first attempt that Spark has given up, but that continues nevertheless."""
        self._stragglers += 1
        if self._world.recorder is not None:
            self._world.recorder.runs_again(self.process.name)

        def run() -> None:
            try:
                self._attempt(cluster, identity, batch, block_rows, slot, 0)
            except KafkaEosError as error:
                self._world.note(f"straggler: {error.what}")

        process = Process(self._world, f"task straggler {self._stragglers} of {self.process.name}", run)
        cluster = self._cluster(process)
        self._world.start(process, after=self._world.chance.choose("straggler after", (0.0, 0.0, 0.01, 1.0, 50.0)))
        self._world.wait(self.process, 0.005)
        self.process.check()

    def _attempt(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        batch: MicroBatch,
        block_rows: BlockRows,
        slot: int,
        attempt: int,
    ) -> AppendReport:
        return append_attempt(
            cluster,
            identity,
            _shuffled(block_rows, slot),
            stage_id=self._stages,
            slot=slot,
            attempt=attempt,
            batch_id=batch.batch_id,
        )


def _blocks(block_rows: BlockRows) -> list[Block]:
    """The blocks of the only encode task."""
    rows = [(tp, number, some) for tp, blocks in block_rows.items() for number, some in enumerate(blocks)]
    return [
        Block(partition=tp, task=0, number=number, records=len(some), data=bytearray(block_of(some)))
        for tp, number, some in rows
    ]


def _shuffled(block_rows: BlockRows, slot: int) -> Iterator[Block | EncodeReport]:
    """The shuffled rows of a slot: the encode task's report of its partition's blocks, and these."""
    blocks = [block for block in _blocks(block_rows) if block.partition.partition == slot]
    yield EncodeReport(task=0, blocks=tuple(encoded(block) for block in blocks))
    yield from blocks


def _staged(block_rows: BlockRows) -> Sequence[EncodeReport]:
    blocks = _blocks(block_rows)
    return [EncodeReport(task=0, blocks=tuple(encoded(block, data=bytes(block.data)) for block in blocks))]
