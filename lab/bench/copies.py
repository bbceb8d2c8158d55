"""Copies of a topic that run until they are ended, each in a process of its own, as `bench real-time` compares them.

Usage: python -m lab.bench.copies WAY BOOTSTRAP SOURCE TARGET FOLDER LONG_BATCH. It ends when its standard input does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from lab.jars import streams_class_path
from spark_kafka_eos.testing.java import java

_END_SECONDS = 60


class Copy(StrEnum):
    """Ours in real time and in micro-batches, Spark's connector in micro-batches and in Spark's real-time mode (both
    at-least-once), and Kafka Streams, exactly once, with its default commit interval and with 10 ms.
    """

    REAL_TIME = "real-time"
    STREAMS = "streams-100"
    STREAMS_10 = "streams-10"
    MICRO_BATCHES = "micro-batches"
    BUILT_IN = "builtin"
    SPARK_REAL_TIME = "spark-real-time"


TITLES: Mapping[Copy, str] = {
    Copy.REAL_TIME: "kafka-eos, real_time",
    Copy.STREAMS: "Kafka Streams, commit.interval.ms=100",
    Copy.STREAMS_10: "Kafka Streams, commit.interval.ms=10",
    Copy.MICRO_BATCHES: "kafka-eos, micro-batches",
    Copy.BUILT_IN: "built-in, micro-batches, at-least-once",
    Copy.SPARK_REAL_TIME: "built-in, Spark's real-time mode, at-least-once",
}
_COMMIT_MS = {Copy.STREAMS: 100, Copy.STREAMS_10: 10}


@contextmanager
def running(copy: Copy, bootstrap: str, source: str, target: str, folder: Path, long_batch: str) -> Iterator[None]:
    """Run the copy until the block ends; its log is in `folder`."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            _command(copy, bootstrap, source, target, folder, long_batch),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if copy in _COMMIT_MS:
                process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _command(copy: Copy, bootstrap: str, source: str, target: str, folder: Path, long_batch: str) -> list[str]:
    if copy in _COMMIT_MS:
        program = Path(__file__).with_name("StreamsCopy.java")
        arguments = [bootstrap, source, target, f"copy-{target}", str(_COMMIT_MS[copy]), str(folder)]
        return [str(java()), "-cp", streams_class_path(), str(program), *arguments]
    return [sys.executable, "-m", "lab.bench.copies", copy, bootstrap, source, target, str(folder), long_batch]


def main(way: str, bootstrap: str, source: str, target: str, folder: str, long_batch: str) -> None:
    from lab.bench.lab import PLAIN, Settings, session
    from spark_kafka_eos import TransactionalWriter, arrow_stream

    copy, servers = Copy(way), {"kafka.bootstrap.servers": bootstrap}
    read = servers | {"subscribe": source, "startingOffsets": "earliest"}
    # Spark's real-time mode needs a slot for each partition.
    with session(Settings(master="local[4]") if copy is Copy.SPARK_REAL_TIME else PLAIN) as spark:
        if copy in (Copy.REAL_TIME, Copy.MICRO_BATCHES):
            sink = TransactionalWriter(servers | {"topic": target, "kafka.transactional.id": f"copy-{target}"})
            real_time = long_batch if copy is Copy.REAL_TIME else None
            writer = arrow_stream(spark, read, sink, real_time=real_time)
        else:
            rows = spark.readStream.format("kafka").options(**read).load().select("key", "value")
            writer = rows.writeStream.format("kafka").options(**servers, topic=target)
            if copy is Copy.SPARK_REAL_TIME:
                # PySpark's types do not have it.
                writer = writer.outputMode("update").trigger(realTime=long_batch)  # type: ignore[call-overload]
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        sys.stdin.read()
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
