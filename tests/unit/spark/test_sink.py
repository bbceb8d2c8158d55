"""When the sink runs the preflight; what a commit does is tested on a broker (tests/spark)."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_eos.eos import preflight
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark import sink as module
from spark_kafka_eos.spark.sink import KafkaEosBatchWriter, KafkaEosStreamWriter

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def options(tmp_path):
    """Of a sink whose query has planned the batches 0 and 1."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "11111111-1111-1111-1111-111111111111"}))
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
    monkeypatch.setattr(module, "owner", lambda options, cluster, decide: "owner")
    monkeypatch.setattr(preflight, "preflight", lambda cluster, options: taken.append("preflight"))
    monkeypatch.setattr(module, "settle", lambda owner, batch, write, **_: taken.append(f"batch {batch.batch_id}"))
    return taken


def test_only_batch_0_pays_for_the_preflight_since_each_batch_has_a_process_of_its_own(options, steps):
    for number in range(2):
        KafkaEosStreamWriter(options, SCHEMA).commit([], number)
    assert steps == ["preflight", "batch 0", "batch 1"]


def test_every_batch_write_is_its_processs_first(options, steps):
    for _ in range(2):
        KafkaEosBatchWriter(options, SCHEMA).commit([])
    assert steps == ["preflight", "batch 0"] * 2
