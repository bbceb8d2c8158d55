"""An old copy of a checkpoint is restored, the query keeps state, and its source has moved on: with the sink's name on
the source and `skip-to` on the sink, the query goes on with the state and the output of one that was never disturbed.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.writer import TransactionalWriter
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

SINKS = ("kafka-eos", "foreachBatch")
PLANS = ("windows", "first-ones")


def usually(*cases: tuple[str, str]) -> pytest.MarkDecorator:
    """Every plan with every sink, of which these are in every run: each starts and ends a dozen queries."""
    return pytest.mark.parametrize(
        ("plan", "sink"),
        [
            pytest.param(*case, marks=() if case in cases else pytest.mark.slow)
            for case in itertools.product(PLANS, SINKS)
        ],
    )


def records(number: int) -> list[bytes]:
    """What is fed at a time: half a minute of events, every third one twice, and some that are late by a little."""
    events = [f"{'abc'[n % 3]},{30 * number + n}" for n in range(30)]
    late = [f"a,{30 * number - 2}"] if number else []
    return [event.encode() for event in [*events, *events[::3], *late]]


class Query:
    """A query with state; each run takes what is there and stops."""

    def __init__(self, session: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
        self._session, self._bootstrap, self.checkpoint = session, bootstrap, checkpoint
        self._source, self._target = source, target
        self.given: dict[str, str] = {}

    def run(self, plan: str, sink: str, *, resolve: str | None = None) -> None:
        kafka = {"kafka.bootstrap.servers": self._bootstrap}
        reader = self._session.readStream.format("kafka-eos").options(**kafka, subscribe=self._source)
        rows = reader.options(startingOffsets="earliest", **self.given).load()
        options = kafka | {"topic": self._target, "kafka.transactional.id": f"id-{self._target}"}
        options |= {"resolve": resolve} if resolve else {}
        stream = self._with_state(rows, plan).writeStream.option("checkpointLocation", str(self.checkpoint))
        stream = stream.trigger(availableNow=True)
        if sink == "foreachBatch":
            stream = stream.foreachBatch(TransactionalWriter(options))
        else:
            stream = stream.format(sink).options(**options)
        stream.start().awaitTermination()

    def _with_state(self, rows: DataFrame, plan: str) -> DataFrame:
        parts = F.split(F.col("value").cast("string"), ",")
        events = rows.select(parts[0].alias("k"), F.timestamp_seconds(parts[1].cast("long")).alias("t"))
        events = events.withWatermark("t", "5 seconds")
        if plan == "first-ones":
            return events.dropDuplicates(["k", "t"]).select(F.concat_ws(",", "k", F.unix_timestamp("t")).alias("value"))
        counts = events.groupBy(F.window("t", "10 seconds"), "k").count()
        return counts.select(F.concat_ws(",", "k", F.unix_timestamp("window.start"), "count").alias("value"))

    def refusal(self, plan: str, sink: str) -> str:
        before = self.written()
        with pytest.raises(StreamingQueryException, match="LedgerRefused.*Nothing was committed") as refused:
            self.run(plan, sink)
        assert self.written() == before
        return str(refused.value)

    def written(self) -> Counter[str]:
        messages = read_committed(self._bootstrap, self._target)
        return Counter((message.value() or b"").decode() for message in messages)


class Scene:
    """A query, another one that nobody disturbs, and their source."""

    def __init__(self, session: SparkSession, bootstrap: str, topic: Callable[..., str], folder: Path) -> None:
        self._bootstrap, self._source, self._fed = bootstrap, topic("in"), 0
        self.copy = folder / "copy"
        self.query, self.undisturbed = (
            Query(session, bootstrap, self._source, topic(name), folder / name) for name in ("out", "undisturbed")
        )
        self.named = {"sink.kafka.transactional.id": f"id-{self.query._target}"}

    def feed(self) -> None:
        produce(self._bootstrap, self._source, records(self._fed))
        self._fed += 1

    def both(self, plan: str, sink: str) -> None:
        self.feed()
        for query in (self.query, self.undisturbed):
            query.run(plan, sink)

    def restore(self) -> None:
        shutil.rmtree(self.query.checkpoint)
        shutil.copytree(self.copy, self.query.checkpoint)


@pytest.fixture
def scene(spark: SparkSession, bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> Scene:
    return Scene(spark, bootstrap, topic, tmp_path)


@pytest.fixture
def without_empty_batches(spark: SparkSession):
    """Spark runs no batches without data, in which windows would close."""
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.unset(name)


def word(refusal: str) -> str:
    (found,) = set(re.findall(r"resolve='(skip-to:[^']+)'", refusal))
    return str(found)


def goes_on_as_if_nothing_had_happened(scene: Scene, plan: str, sink: str) -> None:
    scene.both(plan, sink)
    shutil.copytree(scene.query.checkpoint, scene.copy)
    for _ in range(2):
        scene.both(plan, sink)
    scene.restore()
    scene.feed()
    scene.query.given = scene.named
    resolve = word(scene.query.refusal(plan, sink))
    scene.query.run(plan, sink, resolve=resolve)
    scene.undisturbed.run(plan, sink)
    assert scene.query.written() == scene.undisturbed.written()
    scene.both(plan, sink)  # the option stays, the word does not
    assert scene.query.written() == scene.undisturbed.written()
    assert max(scene.query.written().values()) == 1
    assert scene.query.written()


@pytest.mark.usefixtures("without_empty_batches")
@usually(("windows", "kafka-eos"))
def test_an_old_copy_goes_on_from_the_ledger_with_its_state(scene, plan, sink):
    goes_on_as_if_nothing_had_happened(scene, plan, sink)


@usually(("windows", "foreachBatch"))
def test_an_old_copy_goes_on_where_the_last_commit_was_a_batch_without_data(scene, plan, sink):
    goes_on_as_if_nothing_had_happened(scene, plan, sink)


@pytest.mark.usefixtures("without_empty_batches")
def test_a_batch_that_is_planned_across_the_ledgers_end_already_is_planned_again_once_its_file_is_deleted(scene):
    plan, sink = "windows", "foreachBatch"
    scene.both(plan, sink)
    shutil.copytree(scene.query.checkpoint, scene.copy)
    scene.both(plan, sink)
    scene.restore()
    scene.feed()
    said = scene.query.refusal(plan, sink)
    assert not re.search(r"resolve='skip-to:[^']+' treats", said), "no word settles it: it straddles that end"
    scene.query.given = scene.named
    assert word(scene.query.refusal(plan, sink)) == word(said), "it stays planned"
    (planned,) = set(re.findall(r"delete `offsets/(\d+)`", said))
    for name in (planned, f".{planned}.crc"):  # Spark takes a checksum without its file for another query's work
        (scene.query.checkpoint / "offsets" / name).unlink()
    scene.query.run(plan, sink, resolve=word(said))
    scene.undisturbed.run(plan, sink)
    assert scene.query.written() == scene.undisturbed.written()
