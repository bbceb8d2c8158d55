"""A query stopped in the middle of a batch ends cleanly: no error, nothing half, and a restart writes the batch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = 40


class _Uncaught:
    """Collects what ends a thread of the JVM: Spark reports it nowhere but on standard error."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def uncaughtException(self, thread: object, error: object) -> None:
        self.errors.append(str(error.toString()))  # type: ignore[attr-defined]

    class Java:
        implements = ("java.lang.Thread$UncaughtExceptionHandler",)


@pytest.fixture
def uncaught(spark: SparkSession) -> Iterator[list[str]]:
    ensure_callback_server_started(spark.sparkContext._gateway)
    threads = spark.sparkContext._jvm.java.lang.Thread  # type: ignore[union-attr]
    before, handler = threads.getDefaultUncaughtExceptionHandler(), _Uncaught()
    threads.setDefaultUncaughtExceptionHandler(handler)
    yield handler.errors
    threads.setDefaultUncaughtExceptionHandler(before)


@pytest.fixture
def options(bootstrap: str, topic: Callable[..., str]) -> dict[str, str]:
    name = topic("stopped", partitions=2)
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": name}


@pytest.fixture
def slow(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of one batch whose tasks run until the file `go` exists; the file `computing` says that one does."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(ROWS)))

    def hold(number: int) -> str:
        (tmp_path / "computing").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.02)
        return str(number)

    numbers = spark.readStream.schema("n long").json(str(tmp_path / "in"))
    return numbers.select(F.udf(hold, "string", useArrow=False)("n").alias("value"))


@pytest.mark.parametrize("way", ["driver", "executors", "count in the block"])
def test_stop_in_the_middle_of_a_batch_ends_foreach_batch_cleanly(slow, options, uncaught, tmp_path, way):
    writer = TransactionalWriter(options | {"appendMode": "driver" if way.startswith("count") else way})

    def count_first(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id) as transaction:
            batch_df.count()
            transaction.write(batch_df)

    stream = slow.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = stream.foreachBatch(count_first if way.startswith("count") else writer)

    query = stream.start()
    while not (tmp_path / "computing").exists():
        assert query.isActive, query.exception()
        time.sleep(0.02)
    query.stop()

    assert not uncaught, uncaught
    assert query.exception() is None
    assert not read_committed(options["kafka.bootstrap.servers"], options["topic"])

    (tmp_path / "go").touch()
    stream.trigger(availableNow=True).start().awaitTermination()

    written = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    assert sorted(int(message.value() or b"") for message in written) == list(range(ROWS))
