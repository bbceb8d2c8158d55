"""Upgrade and rollback of a whole query: a checkpoint that goes from an older release to this one and back, as Spark
runs it. tests/broker/test_rollback.py has the cases.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from lab.jars import built_in_connector
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.source_offset import Origin, SinkIdentity, SourceOffset
from spark_kafka_eos.testing.driver import Driver, committed_batches
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.jars import files
from tests.producing import produce
from tests.reading import read_committed
from tests.releases import OLDER, THIS, Release
from tests.spark.jobs.drain import drain
from tests.stepped import group_offsets

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

JOBS = Path(__file__).parent / "jobs"
COPY, DRAIN = JOBS / "copy_on_any_release.py", JOBS / "drain.py"
REFUSES = {1: "the ledger entry has format version 3", 2: "it has format version 3"}
BATCH = 10  # records
FORM_1, RELEASE_0_2, BEFORE_FORM_3 = OLDER


class Scene:
    """A topic of numbers, its copy, and a checkpoint that several releases share."""

    def __init__(self, kafka: EmbeddedKafka, topic: Callable[..., str], folder: Path) -> None:
        self.kafka, self.source, self.target = kafka, topic("in"), topic("out")
        self.checkpoint, self._folder, self._fed, self._runs = folder / "checkpoint", folder, 0, 0

    def feed(self, batches: int) -> None:
        """Add the next numbers."""
        numbers = range(self._fed, self._fed + batches * BATCH)
        produce(self.kafka.bootstrap, self.source, [b"%d" % number for number in numbers])
        self._fed = numbers.stop

    def submit(self, release: Release, job: Path, *arguments: str) -> str:
        """Run the job with this release until it ends. Raises ToolFailed if it fails; `log` then says why."""
        self._runs += 1
        connector = ",".join(map(str, files(built_in_connector(pyspark.__version__))))
        with Driver(
            job,
            [self.kafka.bootstrap, self.source, *arguments],
            conf=["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", f"spark.jars={connector}"],
            env=release.variables(),
            log=self.log,
        ) as driver:
            driver.wait(timeout=240)
        return self.log.read_text()

    @property
    def log(self) -> Path:
        """What the last run printed."""
        return self._folder / f"run-{self._runs}.log"

    def copy(self, release: Release, source: str, way: str) -> None:
        self.submit(release, COPY, self.target, str(self.checkpoint), source, way, str(BATCH))

    def forget_last_commit(self) -> None:
        """As if the driver had died after the transaction, before Spark recorded the batch."""
        last = committed_batches(self.checkpoint) - 1
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)

    def form(self) -> int:
        """Of the ledger's pointers, which is that of the release that committed last."""
        pointers = group_offsets(self.kafka.bootstrap, f"copy-{self.target}.ledger").values()
        (form,) = {json.loads(metadata)["v"] for _, metadata in pointers}
        return int(form)

    def written(self) -> list[int]:
        return sorted(int(message.value() or b"") for message in read_committed(self.kafka.bootstrap, self.target))

    def mark_origin(self) -> None:
        """Add to the offsets of each planned batch which records they mean, where a stream ends, and by whose commits
        the source goes, as this release's source does.
        """
        origin = Origin(
            cluster="P8KkG85FSOGUoccCtWzLdg",
            topic_ids={self.source: uuid.UUID(int=7)},
            leader_epochs={TopicPartition(self.source, 0): 3},
        )
        bounds = {1_700_000_000_000: {TopicPartition(self.source, 0): 7}}
        sink = SinkIdentity(
            transactional_id=f"copy-{self.target}", ledger_topic="kafka-eos-ledger", cluster=origin.cluster
        )
        for file in (self.checkpoint / "offsets").glob("[0-9]*"):
            version, metadata, offsets = file.read_text().strip().split("\n")
            source_offset = SourceOffset.from_json(json.loads(offsets))
            marked = replace(source_offset, bounds=bounds, sinks=(sink,), origin=origin).to_json()
            file.write_text(f"{version}\n{metadata}\n{json.dumps(marked, separators=(',', ':'))}")
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def scene(kafka: EmbeddedKafka, topic: Callable[..., str], tmp_path: Path) -> Scene:
    return Scene(kafka, topic, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "source", "way"),
    [
        (FORM_1, "kafka-eos", "sink"),
        (FORM_1, "kafka", "driver"),
        (RELEASE_0_2, "kafka-eos", "sink"),
        (RELEASE_0_2, "kafka-eos", "executors"),
        (BEFORE_FORM_3, "kafka", "driver"),
    ],
    ids=lambda each: each.name if isinstance(each, Release) else each,
)
def test_a_query_goes_to_this_release_and_back_and_forth_and_every_record_is_there_once(scene, old, source, way):
    scene.feed(2)
    scene.copy(old, source, way)
    assert scene.form() == old.form
    scene.forget_last_commit()
    scene.feed(1)
    scene.copy(THIS, source, way)
    assert scene.form() == THIS.form
    assert scene.written() == list(range(30))
    scene.forget_last_commit()
    with pytest.raises(ToolFailed):
        scene.copy(old, source, way)
    assert REFUSES[old.form] in scene.log.read_text()
    assert scene.written() == list(range(30))
    scene.feed(1)
    scene.copy(THIS, source, way)
    assert scene.written() == list(range(40))
    assert committed_batches(scene.checkpoint) == 4


def test_the_built_in_source_goes_on_from_offsets_that_say_which_records_they_mean(scene, spark):
    def read(form: str) -> dict[str, list[int]]:
        return drain(spark, scene.kafka.bootstrap, scene.source, str(scene.checkpoint), form)

    scene.feed(2)
    assert read("kafka-eos") == {"0": [*range(10)], "1": [*range(10, 20)]}
    scene.mark_origin()
    scene.forget_last_commit()
    scene.feed(1)
    assert read("kafka") == {"1": [*range(10, 20)], "2": [*range(20, 30)]}
    scene.feed(1)
    assert read("kafka-eos") == {"3": [*range(30, 40)]}


@pytest.mark.slow
@pytest.mark.parametrize("old", OLDER, ids=lambda old: old.name)
def test_an_older_release_goes_on_from_offsets_that_say_which_records_they_mean(scene, spark, old):
    def read() -> dict[str, list[int]]:
        return drain(spark, scene.kafka.bootstrap, scene.source, str(scene.checkpoint), "kafka-eos")

    scene.feed(2)
    assert read() == {"0": [*range(10)], "1": [*range(10, 20)]}
    scene.mark_origin()
    scene.forget_last_commit()
    scene.feed(1)
    result = scene.checkpoint.with_name("read.json")
    scene.submit(old, DRAIN, str(scene.checkpoint), "kafka-eos", str(result))
    assert json.loads(result.read_text()) == {"1": [*range(10, 20)], "2": [*range(20, 30)]}
    scene.feed(1)
    assert read() == {"3": [*range(30, 40)]}
