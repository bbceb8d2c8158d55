"""Measures how long a fresh session's first query takes: to the first commit of an `availableNow` query, and beside a
producer and a consumer to the first record that the consumer sees; on local threads, on executors of their own, and on
a standalone cluster. Each side in turn, each run in a session of its own, with nothing set.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from lab.bench.alternating import Side, alternate
from lab.bench.apart import SparkApart
from lab.bench.figures import Comparison
from lab.bench.inputs import Shape
from lab.bench.lab import LAUNCHED, PLAIN, Lab, Settings, temporary_directory
from lab.bench.latency import trickle
from lab.bench.places import Where
from lab.bench.sides import FETCH_WAIT
from lab.bench.start_figures import COMMIT, PROGRAM, VISIBLE
from lab.bench.steady import Load, Query, await_commit, run_query, side_of, way_writer
from lab.bench.steady_figures import BUILT_IN, OURS, Way
from lab.standalone import StandaloneCluster
from spark_kafka_eos.errors import ToolFailed

_RATE, _VALUE_BYTES, _PARTITIONS = 200, 100, 4  # of the producer
_VISIBLE_SECONDS = 180


@contextmanager
def _settings(where: Where, base: Settings) -> Iterator[Settings]:
    """A session's settings there."""
    if where is Where.STANDALONE:
        with temporary_directory() as folder, StandaloneCluster(folder / "cluster") as cluster:
            yield replace(base, master=cluster.url)
    else:
        yield replace(base, master={Where.LOCAL: "local[2]", Where.EXECUTORS: "local-cluster[2,1,1024]"}[where])


def starts(
    lab: Lab, ways: Collection[Way], places: Collection[Where], *, rows: int, rounds: int, launched: bool = False
) -> Iterator[Comparison]:
    """A comparison for each way, place and moment: the seconds to it. Each run has a new session."""
    warm_up = 1  # creates what a cluster's first query creates: Kafka's internal topics, the ledger's topic
    for where in places:
        with _settings(where, LAUNCHED if launched else PLAIN) as settings:
            for way in ways:
                described = {"way": way, "where": where, "rows": rows, "launched": launched}
                title = f"{way.words}, {where.words}"
                sides = _committing(lab, way, settings, rows)
                series = alternate(sides, records=rows, runs=rounds, warm_up=warm_up, show=lab.show)
                warm_up = 0
                yield Comparison(title=f"{COMMIT}: {title}", series=series, settings=described | {"moment": COMMIT})
                programs: dict[str, list[float]] = {OURS: [], BUILT_IN: []}
                sides = _seeing(lab, way, settings, programs)
                series = alternate(sides, records=1, runs=rounds, warm_up=0, show=lab.show)
                yield Comparison(title=f"{VISIBLE}: {title}", series=series, settings=described | {"moment": VISIBLE})
                series = tuple(replace(side, seconds=tuple(programs[side.name])) for side in series)
                yield Comparison(title=f"{PROGRAM}: {title}", series=series, settings=described | {"moment": PROGRAM})


def _committing(lab: Lab, way: Way, settings: Settings, rows: int) -> list[Side]:
    """The sides up to the first commit."""
    load = Load(rows=rows, batches=0, records=Shape(records=0))

    def run(query: Query) -> float:
        with SparkApart(settings) as spark:
            return spark.run(functools.partial(run_query, query=query)).since_session

    return [side_of(lab, name, way, load, run, ours=name == OURS) for name in (OURS, BUILT_IN)]


def _seeing(lab: Lab, way: Way, settings: Settings, programs: Mapping[str, list[float]]) -> list[Side]:
    """The sides up to the first record that a read_committed consumer sees, from when the session is ready. `programs`
    gets the seconds from the start of the driver's process, too.
    """

    def run(name: str) -> Callable[[], float]:
        return lambda: _first_record(lab, way, settings, programs[name], ours=name == OURS)

    return [Side(name=name, run=run(name)) for name in (OURS, BUILT_IN)]


def _first_record(lab: Lab, way: Way, settings: Settings, programs: list[float], *, ours: bool) -> float:
    (source,), (target,) = lab.topics("fresh", 1, _PARTITIONS), lab.topics("out", 1, _PARTITIONS)
    kafka = {"kafka.bootstrap.servers": lab.bootstrap}
    read = kafka | {"subscribe": source, "startingOffsets": "earliest"}
    written = kafka | {"topic": target}
    query = Query(
        way=way,
        ours=ours,
        columns=None,
        source=read if ours else read | FETCH_WAIT | {"kafka.isolation.level": "read_committed"},
        sink=written | {"kafka.transactional.id": lab.name("id")} if ours else written,
        batches=0,
    )
    with trickle(lab.bootstrap, source, _RATE, _VALUE_BYTES), _first_seen(lab, target) as seen:
        began = time.time()
        with SparkApart(settings) as spark:
            ready = spark.run(functools.partial(_run_to_commit, query=query))
            visible = seen.result(_VISIBLE_SECONDS)
    lab.kafka.delete_topics([source, target])
    programs.append(visible - began)
    return visible - ready


def _run_to_commit(spark: SparkSession, query: Query) -> float:
    """Run it until its first commit; returns when the session was ready, in seconds since the epoch."""
    ready = time.time()
    writer = way_writer(spark, query)
    with temporary_directory() as checkpoint:
        running = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            await_commit(running, checkpoint, 0)
        finally:
            running.stop()
    return ready


@contextmanager
def _first_seen(lab: Lab, topic: str) -> Iterator[Future[float]]:
    """When a read_committed consumer gets the topic's first record, in seconds since the epoch."""
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "log_level": 0,
            "group.id": lab.name("group"),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    # Not subscribed: a group's first rebalance takes seconds.
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    ended = threading.Event()

    def watch() -> float:
        while not ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                return time.time()
        raise ToolFailed("the consumer saw no record")

    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(watch)
        finally:
            ended.set()
    consumer.close()
