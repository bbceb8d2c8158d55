"""A disk that takes no more of a batch while its tasks stage it: nothing of it is visible, and the next run writes it
once. The tasks' processes may only write small files, which is an error of the file system like a full disk's."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from confluent_kafka import Producer

from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.process_tree import process_tree
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

VALUES = [b"%01000d" % number for number in range(1_000)]
LIMIT = 500_000  # bytes: more than a task may send inline, less than the batch


@contextmanager
def small_files() -> Iterator[None]:
    """Spark's Python workers, also those that start meanwhile, may write files of `LIMIT` only."""
    limit_files(LIMIT)
    try:
        yield
    finally:
        limit_files(resource.RLIM_INFINITY)


def limit_files(size: int) -> None:
    for process in workers():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # a worker that ends just then
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def workers() -> Iterator[psutil.Process]:
    """The Python processes of this process's Spark: those that it has started, and those that were forked for it."""
    for process in process_tree(os.getpid()):
        with suppress(psutil.NoSuchProcess):
            if {"pyspark.daemon", "kafka_eos_python.server"} & {*process.cmdline()}:
                yield process


@pytest.mark.parametrize("way", ["driver", "sink"])
def test_a_batch_that_the_disk_does_not_take_is_invisible_and_written_once_by_the_next_run(
    spark, bootstrap, topic, tmp_path, way
):
    source, target = topic("full-in"), topic("full-out")
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": target, "topic": target}

    def send(values):
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in values:
            producer.produce(source, value)
        assert producer.flush(30) == 0

    def run():
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
        stream = spark.readStream.format("kafka-eos").options(**options).load().writeStream
        if way == "sink":
            stream = stream.format("kafka-eos").options(**given)
        else:
            stream = stream.foreachBatch(TransactionalWriter(given | {"appendMode": "driver"}))
        stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    def written():
        return [message.value() for message in read_committed(bootstrap, target)]

    send([b"first"])
    run()
    send(VALUES)
    with (
        small_files(),
        pytest.raises(Exception, match=r"StagingFull: cannot write .*\. Nothing was committed\. Make room"),
    ):
        run()
    assert written() == [b"first"]
    assert list((tmp_path / "kafka-eos-staging" / target).iterdir()) == []
    run()
    assert written() == [b"first", *VALUES]
