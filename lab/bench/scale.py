"""Measures what a micro-batch costs with more partitions, topics and append tasks, whatever its records cost.

    planning      the driver's planning and bookkeeping, of a broker in memory (large_cluster.py)
    topics        the same with `subscribePattern`, one partition in each topic
    batches       the driver's memory after many planned batches
    tasks         `appendMode=executors`: its append tasks, one after the other, on the simulation's model of Kafka
    transactions  preflight, append, offsets and end, on real brokers with either protocol
    together      append tasks that start one transaction together, on the same brokers

CPU time, except for the last two.
"""

from __future__ import annotations

import gc
import json
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from lab.bench.alternating import Show, silent
from lab.bench.figures import Point, Sweep
from lab.bench.lab import Lab, releases
from lab.bench.large_cluster import LargeCluster
from lab.simulation.chance import Seeded
from lab.simulation.kafka import ModelKafka
from lab.simulation.network import Network
from lab.simulation.world import Process, World
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.append_task import append_attempt, judge
from spark_kafka_eos.appending.barrier import AppendReport, StageAttempts
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import Appended, EncodeReport, encoded
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.recorder import recording
from spark_kafka_eos.kafka.protocol.transactions import init_producer_id
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import ClientOptions, SinkOptions, sink_options, source_options
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.source_offset import JsonOffsets
from spark_kafka_eos.spark.checkpoint import micro_batch
from spark_kafka_eos.transaction.shared import SharedTransaction

PARTITIONS = (10, 100, 1_000, 10_000)
REAL_PARTITIONS = (10, 100, 1_000)
TOPICS = (50, 500, 5_000)
TASKS = (2, 10, 100, 1_000)
REAL_TASKS = (2, 10, 50)
BATCHES = (10, 100, 500)
PLAN, FIRST = "plan a micro-batch", "plan a query's first one"
CHECKPOINT, LEDGER = "read it from the checkpoint", "its ledger entry, encoded and decoded"
ATTEMPTS, BARRIER, ROWS = "append attempts, all tasks", "barrier, in the driver", "shuffled rows of one encode task"
PREFLIGHT, BEGIN, APPEND, OFFSETS, END = "preflight", "begin", "append a record to each", "offsets and ledger", "EndTxn"
MEMORY = "the driver's Python"
TOGETHER = "all have appended"

_IN_MEMORY = "in memory"
_OFFSETS_PER_BATCH = 100
_OUTPUT_PARTITIONS = 2_000  # of `tasks`, so that each has some
_ENCODE_TASKS = 4
_PARTITIONS_OF_TASK = 4  # of `together`
_CLIENT = ClientOptions(bootstrap_servers=(("node-0", 9092),))


class Planned(NamedTuple):
    """A planned micro-batch: where it starts and ends, its tasks, the driver's CPU time in seconds, and what went over
    the connection, by API.
    """

    start: JsonOffsets
    end: JsonOffsets
    tasks: int
    seconds: float
    requests: Mapping[str, int]
    bytes: int


class Planner:
    """Plans the micro-batches of one query, as Spark calls the source: from and to JSON."""

    def __init__(self, topics: Mapping[str, int], **options: str) -> None:
        self._kafka = LargeCluster(topics)
        source = {"kafka.bootstrap.servers": "broker:9092", "startingOffsets": "earliest", **options}
        self._planner = OffsetPlanner(source_options(source), self._kafka.cluster())
        self._start = self._planner.initial()

    def plan(self) -> Planned:
        """The next one, with 100 new offsets in each partition."""
        kafka, start = self._kafka, self._start
        kafka.end += _OFFSETS_PER_BATCH
        requests, size, theirs, began = kafka.requests.copy(), kafka.bytes.total(), kafka.cpu, time.process_time()
        end = json.loads(json.dumps(self._planner.latest(start, limited=True)))
        tasks = self._planner.batch(start, end)
        seconds = time.process_time() - began - (kafka.cpu - theirs)
        self._start = end
        return Planned(start, end, len(tasks), seconds, kafka.requests - requests, kafka.bytes.total() - size)


def everything(
    labs: Mapping[str, Lab], *, runs: int = 5, partitions: Sequence[int] = REAL_PARTITIONS, show: Show = silent
) -> Iterator[tuple[str, Sweep]]:
    """All sweeps, with the names of their files; `labs` are by protocol, and have topics of up to `partitions`."""
    yield "scale-planning", planning(runs=runs, show=show)
    yield "scale-topics", topics(runs=runs, show=show)
    yield "scale-batches", batches(show=show)
    yield "scale-tasks", tasks(runs=min(runs, 3), show=show)  # of which each takes 20 s
    yield "scale-transactions", transactions(labs, runs=runs, partitions=partitions, show=show)
    yield "scale-together", together(labs, runs=runs, show=show)


def planning(*, runs: int = 5, partitions: Sequence[int] = PARTITIONS, show: Show = silent) -> Sweep:
    """Milliseconds of the driver's CPU by number of partitions of one topic."""
    points: list[Point] = []
    _warmed_up()
    for number, count in enumerate(partitions):
        show(f"planning, {count:,} partitions", number, len(partitions))
        planner = Planner({"orders": count}, subscribe="orders")
        first = planner.plan()
        planned = [planner.plan() for _ in range(runs + 1)][1:]
        last = planned[-1]
        points += [
            Point.of(PLAN, count, [measured.seconds * 1e3 for measured in planned]),
            Point.of(FIRST, count, [first.seconds * 1e3]),
            Point.of(CHECKPOINT, count, [_milliseconds(lambda: _recorded(last)) for _ in range(runs)]),  # noqa: B023
            Point.of(LEDGER, count, [_milliseconds(lambda: _entered(last)) for _ in range(runs)]),  # noqa: B023
        ]
    show("done", len(partitions), len(partitions))
    return Sweep(
        title="Planning a micro-batch on the driver",
        x="partitions",
        y="ms of CPU",
        points=tuple(points),
        settings={
            "runs": runs,
            "kafka": _IN_MEMORY,
            "requests": dict(last.requests),
            "ledger_bytes": len(_entered(last)),
        },
    )


def topics(*, runs: int = 3, counts: Sequence[int] = TOPICS, show: Show = silent) -> Sweep:
    """Milliseconds of the driver's CPU by number of topics that a pattern matches."""
    points: list[Point] = []
    requests: dict[str, Mapping[str, int]] = {}
    _warmed_up()
    for number, count in enumerate(counts):
        show(f"planning, {count:,} topics", number, len(counts))
        planner = Planner({f"tenant-{name:05}": 1 for name in range(count)}, subscribePattern="tenant-.*")
        first = planner.plan()
        planned = [planner.plan() for _ in range(runs)]
        requests[str(count)] = {**planned[-1].requests, "bytes": planned[-1].bytes}
        points += [
            Point.of(PLAN, count, [measured.seconds * 1e3 for measured in planned]),
            Point.of(FIRST, count, [first.seconds * 1e3]),
        ]
    show("done", len(counts), len(counts))
    return Sweep(
        title="subscribePattern",
        x="topics of one partition",
        y="ms of CPU",
        points=tuple(points),
        settings={"runs": runs, "kafka": _IN_MEMORY, "requests": requests},
    )


def batches(*, partitions: int = 200, counts: Sequence[int] = BATCHES, show: Show = silent) -> Sweep:
    """Memory blocks that Python holds after so many planned batches."""
    planner = Planner({"orders": partitions}, subscribe="orders")
    for _ in range(3):
        planner.plan()
    points: list[Point] = []
    for number in range(1, max(counts) + 1):
        show(f"planned batches of {partitions:,} partitions", number, max(counts))
        planner.plan()
        if number in counts:
            gc.collect()
            points.append(Point(line=MEMORY, at=number, value=sys.getallocatedblocks() / 1e3))
    return Sweep(
        title=f"Memory of planning, {partitions:,} partitions",
        x="planned batches",
        y="thousand memory blocks",
        points=tuple(points),
        settings={"runs": 1, "kafka": _IN_MEMORY, "partitions": partitions},
    )


def tasks(
    *, runs: int = 3, counts: Sequence[int] = TASKS, partitions: int = _OUTPUT_PARTITIONS, show: Show = silent
) -> Sweep:
    """Milliseconds of CPU by number of append tasks, which share these partitions."""
    points: list[Point] = []
    for number, count in enumerate(counts):
        show(f"{count:,} append tasks", number, len(counts))
        samples = [_appended(count, partitions) for _ in range(runs)]
        points += [Point.of(line, count, [sample[line] for sample in samples]) for line in samples[0]]
    show("done", len(counts), len(counts))
    return Sweep(
        title="appendMode=executors",
        x="append tasks",
        y="ms of CPU",
        points=tuple(points),
        settings={"runs": runs, "kafka": _IN_MEMORY, "partitions": partitions, "encode_tasks": _ENCODE_TASKS},
    )


def transactions(
    labs: Mapping[str, Lab], *, runs: int = 5, partitions: Sequence[int] = REAL_PARTITIONS, show: Show = silent
) -> Sweep:
    """Milliseconds of each step of a transaction, back to back, by number of partitions of the topic that it reads and
    writes. `labs` are by protocol.
    """
    points: list[Point] = []
    for number, (protocol, lab) in enumerate(labs.items()):
        for count in partitions:
            show(f"{protocol}, {count:,} partitions", number, len(labs))
            samples = list(_committed(lab, count, runs))
            points += [
                Point.of(f"{protocol}, {line}", count, [sample[line] for sample in samples if line in sample])
                for line in (PREFLIGHT, BEGIN, APPEND, OFFSETS, END)
            ]
    show("done", len(labs), len(labs))
    return Sweep(
        title="A transaction's steps, without its records",
        x="partitions",
        y="ms",
        points=tuple(points),
        settings={"runs": runs, "kafka": releases(labs)},
        panels=tuple(labs),
    )


def together(
    labs: Mapping[str, Lab], *, runs: int = 5, counts: Sequence[int] = REAL_TASKS, show: Show = silent
) -> Sweep:
    """Milliseconds until all append tasks of one transaction have appended a record to each of their four partitions,
    by number of tasks. Each task has its own connections, which are open.
    """
    points: list[Point] = []
    for number, (protocol, lab) in enumerate(labs.items()):
        for count in counts:
            show(f"{protocol}, {count:,} append tasks", number, len(labs))
            points.append(Point.of(f"{protocol}, {TOGETHER}", count, _at_once(lab, count, runs)))
    show("done", len(labs), len(labs))
    return Sweep(
        title="Append tasks that start a transaction together",
        x="append tasks",
        y="ms",
        points=tuple(points),
        settings={"runs": runs, "partitions_of_task": _PARTITIONS_OF_TASK, "kafka": releases(labs)},
        panels=tuple(labs),
    )


def _warmed_up() -> None:
    """Load what is loaded on demand, and exclude it from garbage collection, as the planning process does."""
    Planner({"orders": 1_000}, subscribe="orders").plan()
    gc.collect()
    gc.freeze()


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1e3


# -- the driver


def _recorded(planned: Planned) -> MicroBatch:
    """The batch as the sink reads it from the checkpoint."""
    lines = "v1\n{}\n"
    files = {
        "metadata": '{"id":"scale"}',
        "offsets/1": lines + json.dumps(planned.start),
        "offsets/2": lines + json.dumps(planned.end),
    }
    return micro_batch(files.get, 2)


def _entered(planned: Planned) -> bytes:
    progress = SourceProgress(cluster="large", offsets=offsets_from_json(planned.end))
    value = entry_format.encode_record(LedgerEntry(query_id="scale", batch_id=2, digest="", sources=(progress,)))
    entry_format.decode_record(value)
    return value


# -- append tasks


def _appended(slots: int, count: int) -> dict[str, float]:
    """The milliseconds of one transaction with this number of append tasks."""
    from spark_kafka_eos.spark.shuffled import block_row, read, report_rows  # loads PySpark

    kafka = _Model(count)
    partitions = [TopicPartition("out", number) for number in range(count)]
    shuffled: list[list[pa.RecordBatch]] = [[] for _ in range(slots)]
    spent: dict[str, float] = {}
    for task in range(_ENCODE_TASKS):
        blocks = [Block(partition=tp, task=task, number=0, records=1, data=_record()) for tp in partitions]
        report = EncodeReport(task=task, blocks=tuple(map(encoded, blocks)))
        rows: list[pa.RecordBatch] = []

        def to_rows() -> None:
            rows.extend(report_rows(report, slots))  # noqa: B023
            rows.extend(block_row(block, slots) for block in blocks)  # noqa: B023

        spent[ROWS] = _milliseconds(to_rows)
        for row in rows:
            shuffled[row.column("slot")[0].as_py()].append(row)
    cluster = kafka.cluster()
    identity = init_producer_id(cluster, "scale", 60_000)
    reports: list[bytes] = []

    def append_all() -> None:
        for slot, rows in enumerate(shuffled):
            rows.sort(key=lambda row: not row.column("report")[0].is_valid)
            report = append_attempt(
                cluster,  # which tasks of a process share
                identity,
                read(rows),
                stage_id=0,
                slot=slot,
                attempt=0,
                batch_id=0,
            )
            reports.append(pickle.dumps(report))

    spent[ATTEMPTS] = _milliseconds(append_all)
    stages = {0: StageAttempts(current_attempt=0, completed_tasks=slots, failed_tasks=0, num_tasks=slots)}

    def decide() -> Appended:
        loaded: list[AppendReport] = [pickle.loads(report) for report in reports]  # noqa: S301 - our own
        return judge(loaded, lambda _: stages)

    spent[BARRIER] = _milliseconds(decide)
    return spent


class _Model(ModelKafka):
    """The simulation's cluster without faults; markers are written at once."""

    def __init__(self, partitions: int) -> None:
        super().__init__(
            transaction_version=2,
            topics={"out": partitions},
            later=lambda _, action: action(),
            contents=lambda _tp, _batch: (None,),
        )
        self._process = Process(World(Seeded(0)), "scale")

    def cluster(self) -> Cluster:
        return Cluster(
            _CLIENT,
            connect=Network(self).connector(self._process),
            clock=lambda: self._process.world.now,
            sleep=self._process.sleep,
        )


def _record() -> bytearray:
    return encode(pa.array([b"k"], pa.binary()), pa.array([b"v"], pa.binary()), 1_700_000_000_000)


# -- real brokers


def _committed(lab: Lab, partitions: int, runs: int) -> Iterator[dict[str, float]]:
    """The milliseconds of each step of `runs` transactions, after one that is not measured."""
    topic = lab.topics("scale", 1, partitions)[0]
    places = [TopicPartition(topic, number) for number in range(partitions)]
    options = _sink(lab, topic)
    transaction = SharedTransaction(options, lab.cluster, decide_micro_batch(options))
    for number in range(runs + 1):
        spent = {PREFLIGHT: _wall(lambda: examine(lab.cluster, options))}
        batch = _batch(number, places)
        with recording(kept=10) as recorder:
            spent[BEGIN] = _wall(lambda: transaction.begin(batch))  # noqa: B023
            spent[APPEND] = _wall(lambda: transaction.append(lambda identity: _one_each(lab, identity, places)))
            transaction.commit(batch)
        steps = recorder.spent("offsets", "end")
        if number:
            yield spent | {OFFSETS: steps["offsets"], END: steps["end"]}
    lab.kafka.delete_topics([topic])


def _one_each(lab: Lab, identity: ProducerIdentity, places: Sequence[TopicPartition]) -> Appended:
    """A record for each partition."""
    acks = append(lab.cluster, identity, ((tp, 1, _record()) for tp in places), partitions=places)
    return Appended(partitions=len(places), records=len(acks), bytes=sum(ack.bytes for ack in acks))


def _at_once(lab: Lab, tasks: int, runs: int) -> list[float]:
    """The milliseconds of `runs` transactions, after one that is not measured."""
    topic = lab.topics("scale", 1, tasks * _PARTITIONS_OF_TASK)[0]
    places = [TopicPartition(topic, number) for number in range(tasks * _PARTITIONS_OF_TASK)]
    options = _sink(lab, topic)
    transaction = SharedTransaction(options, lab.cluster, decide_micro_batch(options))
    clusters = [Cluster(options.client) for _ in range(tasks)]
    start = threading.Barrier(tasks + 1)
    seconds: list[float] = []

    def task(slot: int, identity: ProducerIdentity) -> None:
        own = places[slot::tasks]
        blocks = [(tp, 1, _record()) for tp in own]
        start.wait()
        append(clusters[slot], identity, blocks, partitions=own)

    try:
        with ThreadPoolExecutor(tasks) as pool:
            for number in range(runs + 1):
                batch = _batch(number, places)
                transaction.begin(batch)
                transaction.appending()
                running = [pool.submit(task, slot, transaction.identity) for slot in range(tasks)]
                start.wait()
                took = _wall(lambda: [future.result() for future in running])  # noqa: B023
                transaction.commit(batch)
                seconds += [took] if number else []
    finally:
        for cluster in clusters:
            cluster.close()
    lab.kafka.delete_topics([topic])
    return seconds


def _sink(lab: Lab, topic: str) -> SinkOptions:
    return sink_options(
        {"kafka.bootstrap.servers": lab.bootstrap, "topic": topic, "kafka.transactional.id": lab.name("id")}
    )


def _batch(number: int, partitions: Sequence[TopicPartition]) -> MicroBatch:
    source = SourceRange(start=dict.fromkeys(partitions, number), end=dict.fromkeys(partitions, number + 1))
    return MicroBatch(query_id="scale", batch_id=number, digest=str(number), sources=(source,))


def _wall(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3
