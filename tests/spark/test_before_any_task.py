"""What is wrong with a write is found before Spark computes a row, on every way to write."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.producing import produce

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write of rows that leave a file when a task computes them."""

    spark: SparkSession
    kafka: EmbeddedKafka
    folder: Path

    def run(self, way: str, **options: str) -> None:
        """Write by `way` to a new topic, unless the options say otherwise."""
        given = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "kafka.transactional.id": f"before-{next(_numbers)}",
            "topic": self._topic(),
        }
        given |= options
        if way == "batch":
            rows = self.spark.range(4).select(self._computed(F.col("id")).alias("value"))
            rows.write.format("kafka-eos").mode("append").options(**given).save()
            return
        stream = self._stream().writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        if way == "sink":
            stream = stream.format("kafka-eos").options(**given)
        else:
            stream = stream.foreachBatch(TransactionalWriter(given | {"appendMode": way}))
        stream.trigger(availableNow=True).start().awaitTermination()

    def _topic(self) -> str:
        return self.kafka.create_topic(f"before-{next(_numbers)}", 1)

    def _stream(self) -> DataFrame:
        topic = self._topic()
        produce(self.kafka.bootstrap, topic, [b"1", b"2"])
        read = self.spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", self.kafka.bootstrap)
        rows = read.options(subscribe=topic, startingOffsets="earliest").load()
        return rows.select(self._computed(F.col("value").cast("string")).alias("value"))

    def _computed(self, column: Column) -> Column:
        mark = self.folder / "computed"

        def compute(value):  # without hints, which Spark would take for those of a pandas_udf
            mark.touch()
            return str(value)

        return F.udf(compute, "string")(column)

    @property
    def computed(self) -> bool:
        """Whether a task has computed a row."""
        return (self.folder / "computed").exists()


@pytest.fixture
def write(spark, kafka, tmp_path) -> Write:
    return Write(spark=spark, kafka=kafka, folder=tmp_path)


@pytest.mark.parametrize(
    ("way", "wrong", "message"),
    [
        ("sink", {"topic": "no-such-topic"}, "topic no-such-topic: does not exist"),
        ("sink", {"deliveryGuarantee": "at-least-once", "stagingDir": "/proc/staging"}, "cannot be written"),
        ("batch", {"stagingDir": "nowhere://staging"}, "supports 'nowhere:'"),
        ("driver", {"stagingDir": "/proc/staging"}, "staging directory /proc/staging/.*: cannot be written"),
        ("executors", {"kafka.transaction.timeout.ms": "3600000"}, "above the brokers' transaction.max.timeout.ms"),
    ],
)
def test_what_is_wrong_is_told_before_any_row_is_computed(
    write: Write, way: str, wrong: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message) as raised:
        write.run(way, **wrong)
    assert "Nothing was committed" in str(raised.value)
    assert not write.computed
