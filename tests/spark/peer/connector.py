"""One of the two connectors, with what a case needs of it: topics, batch reads, streams, batch writes and sinks.

A case says only what matters to it; the rest is the same for both, and set here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.conftest import SecuredKafka
from tests.producing import KEEP, produce
from tests.waiting import until

BUILT_IN, OURS = "kafka", "kafka-eos"
_SELECTING = {"subscribe", "subscribePattern", "assign"}
_names = itertools.count(1)


def numbers(frame: DataFrame) -> list[int]:
    """The values of a frame's rows as numbers, in their order; a value that is null is left out."""
    return sorted(int(row.value) for row in frame.select("value").collect() if row.value is not None)


def values(*bounds: int) -> list[bytes]:
    """The numbers of a range as records' values."""
    return [b"%d" % number for number in range(*bounds)]


@dataclass(kw_only=True)
class Query:
    """A stream that is stopped and started again on one checkpoint; `batches` has what each micro-batch read."""

    frame: DataFrame
    checkpoint: Path
    read: Callable[[DataFrame], list[Any]] = numbers
    batches: dict[int, list[Any]] = field(default_factory=dict)
    before: Callable[[int], None] | None = None  # is called with a batch's number before the batch is read
    running: StreamingQuery | None = None

    def start(self, **trigger: Any) -> Query:
        def process(frame: DataFrame, batch: int) -> None:
            if self.before is not None:
                self.before(batch)
            self.batches[batch] = self.read(frame)

        writer = self.frame.writeStream.foreachBatch(process).option("checkpointLocation", str(self.checkpoint))
        self.running = writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()
        return self

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()

    def all(self) -> list[Any]:
        """Everything that was read, in order, once nothing is left to read."""
        assert self.running is not None
        self.running.processAllAvailable()
        return self.so_far()

    def so_far(self) -> list[Any]:
        return sorted(row for batch in list(self.batches.values()) for row in batch)

    def await_rows(self, count: int) -> list[Any]:
        """Everything that was read, once it has this number of rows: a new partition is noticed some time later."""

        def enough() -> bool:
            assert self.running is not None
            if self.running.exception() is not None:
                raise self.running.exception()  # type: ignore[misc]
            return len(self.so_far()) >= count

        until(enough)
        return self.all()

    def run(self, **trigger: Any) -> list[list[Any]]:
        """What each micro-batch read of one run over what is there; those without rows are left out."""
        first = max(self.batches, default=-1)
        self.start(**trigger or {"availableNow": True})
        assert self.running is not None
        assert self.running.awaitTermination(120), "the run does not end"
        return [self.batches[batch] for batch in sorted(self.batches) if batch > first and self.batches[batch]]

    def single_batch(self) -> list[Any]:
        """What the next micro-batch reads, with a trigger that would wait for an hour before another one."""
        self.start(processingTime="1 hour")
        query = self.running
        assert query is not None

        def done() -> bool:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            return any(progress.batchId in self.batches for progress in query.recentProgress)

        until(done)
        self.stop()
        return self.batches[max(self.batches)]


@dataclass(kw_only=True)
class Connector:
    """`form`, on a broker; `folder` is for checkpoints and files of one case. `secured` starts a broker with logins."""

    form: str
    spark: SparkSession
    kafka: EmbeddedKafka
    folder: Path
    secured: Callable[[], SecuredKafka]
    queries: list[Query] = field(default_factory=list)

    @property
    def is_built_in(self) -> bool:
        return self.form == BUILT_IN

    def close(self) -> None:
        for query in self.queries:
            query.stop()

    # -- topics

    def name(self, prefix: str = "peer") -> str:
        """A name that no topic, query or transactional id has."""
        return f"{prefix}-{next(_names)}-{self.form}"

    def topic(
        self, *partitions: Iterable[bytes | None], name: str = "", config: Mapping[str, object] | None = None
    ) -> str:
        """A new topic with these values in its partitions; records stay in it whatever their time."""
        name = self.kafka.create_topic(name or self.name(), len(partitions), KEEP | dict(config or {}))
        for number, content in enumerate(partitions):
            self.send(name, content, partition=number)
        return name

    def send(self, topic: str, content: Iterable[bytes | None], **record: Any) -> None:
        produce(self.kafka.bootstrap, topic, content, **record)

    def add_partitions(self, topic: str, total: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
        until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == total)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap})

    def written(self, topic: str) -> list[Any]:
        """The messages that librdkafka's consumer sees of committed records."""
        return list(read_topic(self.kafka.bootstrap, topic, "read_committed"))

    # -- sources

    def options(self, topic: str | None, given: dict[str, Any]) -> dict[str, Any]:
        selection = {} if topic is None or _SELECTING & given.keys() else {"subscribe": topic}
        return {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.metadata.max.age.ms": "1"} | selection | given

    def read(self, topic: str | None, **options: Any) -> DataFrame:
        return self.spark.read.format(self.form).options(**self.options(topic, options)).load()

    def stream(self, topic: str | None, **options: Any) -> DataFrame:
        """A stream from the topic's beginning, unless the options say otherwise."""
        start = {} if any(name.lower().startswith("starting") for name in options) else {"startingOffsets": "earliest"}
        return self.spark.readStream.format(self.form).options(**self.options(topic, start | options)).load()

    def query(self, frame: DataFrame, **settings: Any) -> Query:
        self.queries.append(Query(frame=frame, checkpoint=self.folder / f"checkpoint-{len(self.queries)}", **settings))
        return self.queries[-1]

    # -- sinks

    def write(self, frame: DataFrame, mode: str | None = "append", **options: Any) -> None:
        options = {"kafka.bootstrap.servers": self.kafka.bootstrap} | options
        writer = frame.write.format(self.form).options(**options)
        (writer if mode is None else writer.mode(mode)).save()

    def lines(self) -> tuple[DataFrame, Callable[[Sequence[str]], None]]:
        """A stream of text with one column `value`, and what adds lines to it."""
        folder = self.folder / "lines"
        folder.mkdir()
        files = itertools.count()

        def add(content: Sequence[str]) -> None:
            (folder / f"{next(files)}.txt").write_text("".join(f"{line}\n" for line in content))

        return self.spark.readStream.format("text").load(str(folder)), add

    @contextmanager
    def sink(self, frame: DataFrame, mode: str = "append", **options: Any) -> Iterator[StreamingQuery]:
        """A streaming query into this connector's sink; ours has the transactional id that it requires."""
        required = {} if self.is_built_in else {"kafka.transactional.id": self.name("id")}
        options = {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.max.block.ms": "5000"} | required | options
        writer = frame.writeStream.format(self.form).options(**options).outputMode(mode)
        query = writer.option("checkpointLocation", str(self.folder / "sink")).start()
        try:
            yield query
        finally:
            query.stop()
