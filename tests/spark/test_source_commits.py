"""`commitOffsets` on a real broker: the group follows what Spark has noted as done, up to a query's last batch."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

from lab.jars import built_in_connector
from spark_kafka_eos.testing.driver import Driver, python_environment
from spark_kafka_eos.testing.jars import files
from spark_kafka_eos.testing.read_offsets import group_offsets
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def consumed(bootstrap, topic):
    """A topic of 30 records in one of two partitions, and a group of the same name."""
    name = topic("consumed", partitions=2)
    produce(bootstrap, name, [b"%d" % number for number in range(30)])
    return name


@pytest.fixture
def source(spark, bootstrap, consumed):
    """A stream over that topic, ten records at a time."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": consumed, "startingOffsets": "earliest"}
    group = {"kafka.group.id": consumed, "commitOffsets": "true", "maxOffsetsPerTrigger": "10"}
    return spark.readStream.format("kafka-eos").options(**given | group).load()


def test_the_group_is_where_spark_is_and_never_ahead(bootstrap, consumed, source, tmp_path):
    seen = []

    def process(frame, batch_id):
        seen.append(group_offsets(bootstrap, consumed, consumed).get(0))
        if len(seen) == 3:
            raise RuntimeError("the sink fails")
        frame.collect()

    def run():
        written = source.writeStream.foreachBatch(process).option("checkpointLocation", str(tmp_path / "c"))
        written.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run()
    assert seen == [None, 10, 20]
    assert group_offsets(bootstrap, consumed, consumed) == {0: 20, 1: 0}
    run()
    assert seen == [None, 10, 20, 20], "the batch that failed runs again"
    assert group_offsets(bootstrap, consumed, consumed) == {0: 30, 1: 0}, "its last batch counts as well"


def test_a_group_that_the_querys_own_sink_commits_to_is_refused(bootstrap, topic, consumed, source, tmp_path):
    output = topic("consumed-out")
    query = (
        source.select("key", "value")
        .writeStream.format("kafka-eos")
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": output})
        .options(**{"kafka.transactional.id": output, "kafka.group.id": consumed})
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match=f"commitOffsets.*transactions of '{output}'"):
        query.awaitTermination()
    assert group_offsets(bootstrap, consumed, consumed) == {0: 10, 1: 0}, "as the sink's first batch left it"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_under_asynchronous_progress_tracking_a_query_that_is_killed_goes_on_and_loses_nothing(
    bootstrap, topic, tmp_path
):
    """Spark's own Kafka sink, which is at-least-once, repeats what the checkpoint does not have yet."""
    source, target, numbers = topic("tracked", partitions=2), topic("tracked-out"), set(range(2_000))
    produce(bootstrap, source, [b"%d" % number for number in sorted(numbers)])

    def driver(name: str) -> Driver:
        return Driver(
            Path(__file__).parent / "jobs" / "track_asynchronously.py",
            [bootstrap, source, target, str(tmp_path / "checkpoint")],
            conf=[
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
                *("--jars", ",".join(map(str, files(built_in_connector(pyspark.__version__))))),
            ],
            env=python_environment(),
            log=tmp_path / name,
        )

    def written() -> set[int]:
        return {int(message.value() or b"") for message in read_committed(bootstrap, target)}

    with driver("killed") as killed:
        killed.wait_until(lambda: len(written()) > 200, timeout=120)
        killed.kill()
    assert written() < numbers
    with driver("last") as last:
        last.wait(timeout=240)
    assert written() == numbers
