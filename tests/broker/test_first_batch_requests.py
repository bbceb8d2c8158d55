"""The requests for which a query's first batch waits, one after another, in each of Spark's processes: their number."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.recorder import sending
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.spark import sink_commit
from spark_kafka_eos.spark.sink import KafkaEosStreamWriter
from spark_kafka_eos.spark.source import KafkaEosStreamReader
from spark_kafka_eos.spark.staged_message import StagedMessage
from tests.producing import produce

pytestmark = pytest.mark.broker

QUERY = "11111111-1111-1111-1111-111111111111"
SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def requests(monkeypatch):
    """The APIs of the requests of this process, in order."""
    apis = []

    def noted(request, node):
        apis.append(request.name.removesuffix("Request"))
        return sending(request, node)

    monkeypatch.setattr("spark_kafka_eos.kafka.protocol.connection.sending", noted)
    yield apis
    end_commits()


def end_commits():
    """Close what a process that commits keeps."""
    for cluster, _ in sink_commit._kept.values():
        cluster.close()
    sink_commit._kept.clear()


def first_batch(kafka, folder, name, topics, requests):
    """The requests of the processes that plan the read, plan the write and commit, of a new query with these topics."""
    source, target = topics
    brokers, checkpoint = {"kafka.bootstrap.servers": kafka.bootstrap}, folder / name
    (checkpoint / "offsets").mkdir(parents=True)
    requests.clear()
    reader = KafkaEosStreamReader(source_options({**brokers, "subscribe": source, "startingOffsets": "earliest"}))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    reader.stop()
    read = [*requests]
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")
    options = sink_options(
        {
            **brokers,
            "kafka.transactional.id": name,
            "topic": target,
            "checkpointLocation": str(checkpoint),
            "ledgerTopic": f"{target}-ledger",  # of which a new query reads all: other tests fill the usual one
        }
    )
    requests.clear()
    KafkaEosStreamWriter(options, SCHEMA).check()
    planned = [*requests]
    record = bytes(encode(pa.nulls(1, pa.binary()), pa.array([b"v"]), int(time.time() * 1e3)))
    block = EncodedBlock(partition=TopicPartition(target, 0), records=1, offset=0, length=len(record), data=record)
    message = StagedMessage(EncodeReport(task=0, path=None, blocks=(block,), error=None), "0-tasks", QUERY)
    end_commits()  # as in a process of its own
    requests.clear()
    KafkaEosStreamWriter(options, SCHEMA).commit([message], 0)
    return read, planned, [*requests]


def test_a_first_batch_waits_for_so_many_requests_in_each_process(kafka, topic, tmp_path, requests):
    topics = topic("orders", partitions=2), topic("orders-copy", partitions=2)
    produce(kafka.bootstrap, topics[0], [b"1", b"2"])
    first_batch(
        kafka, tmp_path, f"{topics[1]}-before", topics, requests
    )  # creates what a cluster's first query creates
    read, planned, committed = first_batch(kafka, tmp_path, topics[1], topics, requests)
    assert read == ["ApiVersions", "Metadata", "ListOffsets", "ListOffsets", "Metadata", "ListOffsets"]
    assert (planned.count("ApiVersions"), planned.count("Metadata"), len(planned)) == (1, 4, 16)
    assert (committed.count("ApiVersions"), committed.count("Metadata"), len(committed)) == (1, 6, 34)
