"""What Spark does around a query in real time: plans long micro-batches, runs tasks, loses some, restarts.

It calls the product as `spark.real_time` does: `RealTimeDriver`, `Supervisor` and `real_time.task.run`, with a
`Cluster` whose connections lead to the model. Each task is a process of its own, which may outlive its driver.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa

from lab.simulation.network import Network
from lab.simulation.query import OPTIONS, OUTPUT, TOPIC, Checkpoint, Row, Stopped
from lab.simulation.threads import Fibers
from lab.simulation.world import Process, World
from spark_kafka_eos.appending.blocks import EncodeSettings, Target
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_to_json
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import source_options
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.real_time.intervals import TaskReport
from spark_kafka_eos.real_time.supervisor import Supervisor, failure_of_attempt
from spark_kafka_eos.real_time.task import RealTimeTask, run
from spark_kafka_eos.transaction.shared import SharedTransaction

SOURCE_TOPIC = "in"
# How long tasks live on that were cancelled, or whose driver is gone.
AFTERLIFE_S = (0.0, 0.0, 0.03, 1.0, 100.0)
_FIRST_BUCKETS = 2  # of a query that names no number
_MOST_FAILURES = 3

_READ = replace(
    source_options({"kafka.bootstrap.servers": "node-0:9092", "subscribe": SOURCE_TOPIC}, streaming=True),
    columns=("key", "value"),
)
_SETTINGS = EncodeSettings(
    topic=TOPIC, targets={TOPIC: Target(partitions=len(OUTPUT))}, ledger_topic=OPTIONS.ledger_topic
)


@cache
def source_batch(rows: tuple[Row, ...]) -> bytes:
    """A record batch of the source. A partition's records go to different partitions of the output."""
    keys = [f"{row.partition}.{row.offset % 3}".encode() for row in rows]
    values = [f"{row.partition}@{row.offset}".encode() for row in rows]
    return bytes(encode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), 0))


class SimulatedRealTime:
    """One run of the query in a driver, until `is_done` or an error stops it.

    `planned` returns where a micro-batch that is planned now ends in each partition of the source. `buckets` is the
    option of this name, `take_over` is `takeOverQuery`. `at_least` so many micro-batches run, also if all is done.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        checkpoint: Checkpoint,
        *,
        number: int,
        buckets: int | None,
        tasks: int,
        seconds: float,
        planned: Callable[[], dict[TopicPartition, int]],
        is_done: Callable[[], bool],
        on_pause: Callable[[float], None],
        take_over: str | None = None,
        at_least: int = 0,
    ) -> None:
        self.process = Process(world, f"driver {number}", self._run, on_pause=on_pause)
        self.error: KafkaEosError | Stopped | None = None
        self.finished = False
        self.checkpoint = checkpoint
        self.tasks: list[Process] = []
        self._world, self._network = world, network
        self._buckets, self._most_tasks, self._seconds = buckets, tasks, seconds
        self._planned, self._is_done, self._at_least = planned, is_done, at_least
        self._options = replace(OPTIONS, take_over_query=take_over)
        self._cancelled = False

    def _run(self) -> None:
        try:
            with self._cluster(self.process) as cluster:
                self._query(cluster)
            self.finished = True
        except (KafkaEosError, Stopped) as error:
            self.error = error
            self._world.note(f"stops: {type(error).__name__}: {error}")

    def end_tasks(self) -> None:
        """Let what its tasks still do end, some time after their driver did not want them any more."""
        for task in self.tasks:
            if not task.fiber.done:
                self._world.after(self._world.chance.choose("afterlife", AFTERLIFE_S), "", task.die)

    def _cluster(self, process: Process) -> Cluster:
        return Cluster(
            OPTIONS.client,
            connect=self._network.connector(process),
            clock=process.clock,
            sleep=process.sleep,
            jitter=lambda: self._world.chance.fraction("jitter"),
        )

    def _query(self, cluster: Cluster) -> None:
        options = self._options
        transaction = SharedTransaction(options, cluster, decide_in_real_time(options), clock=self.process.clock)
        driver = RealTimeDriver(options, cluster, transaction, fail_on_data_loss=True)
        batches = 0
        while batches < self._at_least or not self._is_done():
            batches += 1
            self._world.step(self.process, "checkpoint")
            batch = self._plan(self.checkpoint.next_batch())
            driver.check(batch)
            self._batch(driver, batch)
            self._world.step(self.process, "checkpoint")
            if not self.checkpoint.add(f"commits/{batch.batch_id}", "v1\n{}"):
                raise Stopped(f"commits/{batch.batch_id} is there already")

    def _plan(self, number: int) -> MicroBatch:
        if self.checkpoint.end(number) is None:
            end = self._planned()
            self._world.note(f"plans batch {number} of {len(end)} partitions")
            if not self.checkpoint.add(f"offsets/{number}", f"v1\n{{}}\n{json.dumps(offsets_to_json(end))}"):
                raise Stopped(f"offsets/{number} is there already")
        planned = self.checkpoint.end(number)
        assert planned is not None
        first = None if number else dict.fromkeys(planned, 0)
        return replace(self.checkpoint.batch(number, first), run_id=self.process.name)

    def _batch(self, driver: RealTimeDriver, batch: MicroBatch) -> None:
        def start(numbers: Collection[int] | None) -> Sequence[Bucket]:
            self._network.owners.starts_buckets(self.process)
            count = self._buckets if batch.batch_id else self._buckets or _FIRST_BUCKETS
            return driver.start(batch, count, numbers)

        self._cancelled = False
        supervisor = Supervisor(
            start,
            self._task,
            self._cancel,
            tasks=self._most_tasks,
            seconds=self._seconds,
            most_failures=_MOST_FAILURES,
            threads=Fibers(self.process),
            clock=self.process.clock,
        )
        try:
            reports = supervisor.run()
            driver.ended(batch, (bucket for report in reports for bucket in report.ended))
        except KafkaEosError:
            with contextlib.suppress(KafkaEosError):
                driver.end(batch)
            raise

    def _cancel(self) -> None:
        self._cancelled = True
        self.end_tasks()

    def _task(self, buckets: Sequence[Bucket], seconds: float) -> TaskReport:
        """The report of a task in an executor of its own, or that the task was lost."""
        world, chance = self._world, self._world.chance
        reports: list[TaskReport] = []
        lost: list[str] = []
        task = RealTimeTask(
            buckets=tuple(buckets),
            source=_READ,
            client=OPTIONS.client,
            settings=_SETTINGS,
            group_id=OPTIONS.group_id,
            mark=source_mark(OPTIONS.transactional_id),
            seconds=seconds,
        )

        def work() -> None:
            report = run(
                task,
                lambda rows, _: rows,
                connect=lambda _: self._cluster(process),
                clock=process.clock,
                now_ms=lambda: process.clock() * 1e3,
            )
            world.note(f"has committed {report.transactions} times{f': {report.error}' if report.error else ''}")
            reports.append(report)

        process = Process(world, f"task {len(self.tasks)} of {self.process.name}", work)
        self.tasks.append(process)
        after = 0.0
        if world.strikes("a task", often=3):
            kind = chance.choose("end of a task", ("task killed", "executor lost", "executor lost"))
            when = chance.choose("end of a task after", (0.0, 0.01, 0.05, 0.4, 1.0))
            world.fault(kind, f"{process.name}, after {when} s")
            if kind == "task killed":
                world.after(when, "", process.die)
            else:  # it goes on, or begins, all the same
                after = chance.choose("straggler after", (0.0, 0.0, 0.01, 1.0, 50.0))
                world.after(when, f"{process.name} is taken for lost", partial(lost.append, kind))
        world.start(process, after)
        world.wait_until(self.process.whole, lambda: bool(reports or lost or process.fiber.done or self._cancelled))
        return reports[0] if reports else failure_of_attempt(*(lost or ["its process ended"]))


def rows_in(content: Iterable[Row | tuple[bytes, bytes]]) -> tuple[Row, ...]:
    """The rows of a record batch of the output, whether micro-batches or a query in real time wrote it."""
    return tuple(row if isinstance(row, Row) else _row(row[1]) for row in content)


@cache
def _row(value: bytes) -> Row:
    return Row(*map(int, value.split(b"@")))
