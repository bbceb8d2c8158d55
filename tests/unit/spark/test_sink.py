"""When the sink runs the preflight, whose checkpoint it believes and which files it removes; what a commit does is
tested on a broker (tests/spark)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_eos.errors import ConfigurationError, InvalidRow, KafkaEosError
from spark_kafka_eos.model import SourceRange, TopicPartition
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark import encode_stage as encoding
from spark_kafka_eos.spark import sink as module
from spark_kafka_eos.spark.sink import KafkaEosBatchWriter, KafkaEosStreamWriter, StagedMessage
from spark_kafka_eos.writing import preflight
from spark_kafka_eos.writing.files import LocalFiles
from spark_kafka_eos.writing.report import EncodedBlock, EncodeReport

SCHEMA = StructType([StructField("value", BinaryType())])
QUERY = "11111111-1111-1111-1111-111111111111"


@pytest.fixture
def options(tmp_path):
    """Of a sink whose query has planned the batches 0 and 1."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    for number in range(2):
        offsets = json.dumps({"orders": {"0": 10 * number}})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offsets}")
    return sink_options(
        {
            "kafka.bootstrap.servers": "b:1",
            "kafka.transactional.id": "t",
            "topic": "a",
            "checkpointLocation": str(tmp_path),
        }
    )


@pytest.fixture
def steps(monkeypatch):
    """What a commit did, in order, with everything beyond the sink replaced."""
    taken = []
    monkeypatch.setattr(module, "show", lambda level: None)
    monkeypatch.setattr(module, "committer", lambda options, cluster, decide: "owner")
    monkeypatch.setattr(preflight, "preflight", lambda cluster, options: taken.append("preflight"))
    monkeypatch.setattr(preflight, "check_source_cluster", lambda cluster, options, batch: None)
    monkeypatch.setattr(
        module, "commit_batch", lambda owner, batch, write, **_: taken.append(f"batch {batch.batch_id}")
    )
    return taken


def test_only_batch_0_pays_for_the_preflight_since_each_batch_has_a_process_of_its_own(options, steps):
    for number in range(2):
        KafkaEosStreamWriter(options, SCHEMA).commit([], number)
    assert steps == ["preflight", "batch 0", "batch 1"]


def test_every_batch_write_is_its_processs_first(options, steps):
    for _ in range(2):
        KafkaEosBatchWriter(options, SCHEMA).commit([])
    assert steps == ["preflight", "batch 0"] * 2


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_first_batch_that_writes_nothing_starts_where_it_ends_in_each_source(options, steps, monkeypatch, blocks):
    """As that of a query with startingOffsets=committed, which the ledger lets go on where another one ended."""
    batches = []
    monkeypatch.setattr(module, "commit_batch", lambda owner, batch, write, **_: batches.append(batch))
    block = EncodedBlock(partition=TopicPartition("a", 0), records=1, offset=0, length=0, data=b"")
    report = EncodeReport(task=0, path=None, blocks=(block,) * blocks)
    KafkaEosStreamWriter(options, SCHEMA).commit([StagedMessage(report)], 0)
    end = {TopicPartition("orders", 0): 0}
    start = None if blocks else end
    (batch,) = batches
    assert (batch.start, batch.end, batch.sources) == (start, end, (SourceRange(start=start, end=end),))


@pytest.fixture
def write(options, monkeypatch):
    """`write(batch, query)`: what a write task of that batch and query tells, which has left a file."""

    def write(batch: int, query: str | None = QUERY, error: KafkaEosError | None = None) -> StagedMessage:
        properties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": query}
        monkeypatch.setattr(encoding, "task_context", lambda: SimpleNamespace(getLocalProperty=properties.get))
        writer = KafkaEosStreamWriter(options, SCHEMA)

        def stage(batches: object, folder: str) -> EncodeReport:
            place = staging_folder(options) / folder
            place.mkdir(parents=True)
            (place / "file").touch()
            block = EncodedBlock(partition=TopicPartition("a", 0), records=1, offset=0, length=0, data=None)
            path = None if error else f"{folder}/file"
            return EncodeReport(task=0, path=path, blocks=() if error else (block,), error=error)

        monkeypatch.setattr(writer, "_stage", stage)
        message = writer.write(iter(()))
        assert isinstance(message, StagedMessage)
        return message

    return write


def staging_folder(options) -> Path:
    return Path(options.checkpoint_location) / "kafka-eos-staging" / "t"


def left(options) -> list[str]:
    """The batches of the folders that are there."""
    return sorted(folder.name.split("-")[0] for folder in staging_folder(options).iterdir())


def test_a_commit_removes_its_tasks_files_and_those_of_earlier_batches(options, steps, write):
    write(0)
    KafkaEosStreamWriter(options, SCHEMA).commit([write(1)], 1)
    assert left(options) == []


def test_a_zombie_leaves_its_successors_files_alone(options, steps, write, monkeypatch):
    write(0)
    zombies = write(1)
    successors = write(1)

    def fenced(*args, **_):
        raise KafkaEosError("fenced")

    monkeypatch.setattr(module, "commit_batch", fenced)
    with pytest.raises(KafkaEosError, match="fenced"):
        KafkaEosStreamWriter(options, SCHEMA).commit([zombies], 1)
    KafkaEosStreamWriter(options, SCHEMA).abort([zombies, None], 1)
    assert (staging_folder(options) / successors.folder / "file").exists()
    assert left(options) == ["0", "1"]


def test_what_a_task_wrote_before_its_error_is_removed_too(options, write):
    KafkaEosStreamWriter(options, SCHEMA).abort([write(1, error=InvalidRow("no topic"))], 1)
    assert left(options) == []


def test_a_batch_that_is_committed_does_not_fail_because_files_stay_behind(options, steps, write, monkeypatch):
    def remove(files: LocalFiles, directory: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalFiles, "remove", remove)
    KafkaEosStreamWriter(options, SCHEMA).commit([write(1)], 1)
    assert steps == ["batch 1"]


def test_another_querys_checkpoint_at_that_path_is_not_believed(options, steps, write):
    another = "22222222-2222-2222-2222-222222222222"
    with pytest.raises(ConfigurationError, match=f"{QUERY}, but this is query {another}.*hdfs://") as raised:
        KafkaEosStreamWriter(options, SCHEMA).commit([write(1, another)], 1)
    assert raised.value.option == "checkpointLocation"
    assert steps == []


@pytest.mark.parametrize("missing", ["metadata", "offsets/1"])
def test_a_path_without_a_scheme_that_is_not_on_this_disk_asks_for_one(options, steps, write, missing):
    (Path(options.checkpoint_location) / missing).unlink()
    with pytest.raises(ConfigurationError, match="on the driver's local disk.*Add the scheme.*hdfs://"):
        KafkaEosStreamWriter(options, SCHEMA).commit([write(1)], 1)
    assert steps == []


def test_a_checkpoint_of_which_no_task_says_anything_is_believed(options, steps, write):
    KafkaEosStreamWriter(options, SCHEMA).commit([write(1, query=None)], 1)
    assert steps == ["batch 1"]
