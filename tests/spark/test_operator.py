"""A stateful query whose checkpoint was restored from an older copy: refused, it goes on by the word that the message
offers, with its state kept and nothing in the output twice."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.writer import TransactionalWriter
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

BATCH = 10  # records
COPIED, COMMITTED = 2, 4  # batches, when the checkpoint was copied and when it was lost


class Counting:
    """A query that counts odd and even numbers and writes each count that changes, ten numbers in a micro-batch."""

    def __init__(self, session: SparkSession, bootstrap: str, topic: Callable[..., str], folder: Path) -> None:
        self._session, self._bootstrap, self._folder = session, bootstrap, folder
        self._source, self._target = topic("in", partitions=2), topic("out")  # one of the source's stays empty
        self._checkpoint = folder / "checkpoint"
        self._fed = 0

    def feed(self, batches: int) -> None:
        numbers = range(self._fed, self._fed + batches * BATCH)
        produce(self._bootstrap, self._source, [b"%d" % number for number in numbers])
        self._fed = numbers.stop

    def run(self, *, at_a_time: int = BATCH, **options: str) -> None:
        reader = self._session.readStream.format("kafka-eos").option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.options(subscribe=self._source, startingOffsets="earliest", maxOffsetsPerTrigger=at_a_time)
        parity = (F.col("value").cast("string").cast("int") % 2).alias("parity")
        counts = reader.load().groupBy(parity).count()
        rows = counts.select(F.concat("parity", F.lit("="), "count").alias("value"))
        to = {"kafka.bootstrap.servers": self._bootstrap, "topic": self._target}
        writer = TransactionalWriter(to | {"kafka.transactional.id": f"id-{self._target}"} | options)
        stream = rows.writeStream.foreachBatch(writer).outputMode("update").trigger(availableNow=True)
        stream.option("checkpointLocation", str(self._checkpoint)).start().awaitTermination()

    def lose_two_batches(self) -> None:
        """Run some batches; then the checkpoint is again what it was before the last two."""
        self.feed(COPIED)
        self.run()
        shutil.copytree(self._checkpoint, self._folder / "copy")
        self.feed(COMMITTED - COPIED)
        self.run()
        shutil.rmtree(self._checkpoint)
        shutil.copytree(self._folder / "copy", self._checkpoint)

    def words(self, **options: object) -> list[str]:
        """What the refusal offers to set and do no more."""
        before = self.written()
        with pytest.raises(StreamingQueryException, match="LedgerRefused.*Nothing was committed") as refused:
            self.run(**options)  # type: ignore[arg-type]
        assert self.written() == before
        return list(dict.fromkeys(re.findall(r"resolve='([^']+)' (?:treats|writes)", str(refused.value))))

    def written(self) -> Counter[str]:
        messages = read_committed(self._bootstrap, self._target)
        return Counter((message.value() or b"").decode() for message in messages)


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, topic: Callable[..., str], tmp_path: Path) -> Counting:
    query = Counting(spark, bootstrap, topic, tmp_path)
    query.lose_two_batches()
    return query


def counts(*numbers: int) -> Counter[str]:
    return Counter(f"{parity}={number}" for parity in (0, 1) for number in numbers)


def test_a_stateful_query_whose_checkpoint_is_two_batches_old_continues_by_the_word_with_its_state(query):
    (word,) = query.words()
    assert word.startswith("skip-to:")
    query.run(resolve=word)
    assert query.written() == counts(5, 10, 15, 20)
    query.feed(1)
    query.run(resolve=word)  # left in the code
    query.feed(1)
    query.run()
    assert query.written() == counts(5, 10, 15, 20, 25, 30)


@pytest.mark.parametrize("at_a_time", [4, 20])
def test_the_same_word_works_although_the_lost_batches_are_planned_again_with_other_bounds(query, at_a_time):
    (word,) = query.words(at_a_time=at_a_time)
    query.run(at_a_time=at_a_time, resolve=word)
    assert query.written() == counts(5, 10, 15, 20), "what is committed, and nothing else"
    query.feed(1)
    query.run(resolve=word)
    query.feed(1)
    query.run(resolve=word)
    assert query.written() == counts(5, 10, 15, 20, 25, 30)


def test_a_batch_that_reads_beyond_what_is_committed_is_offered_no_word_for_skipping_to_it(query):
    query.feed(1)
    words = query.words(at_a_time=50)
    assert [word.split(":")[0] for word in words] == ["write", "skip"]
    assert query.written() == counts(5, 10, 15, 20)
