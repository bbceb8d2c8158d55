"""What the broker tests share: both protocols, an independent reader, a second process that appends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.options import ClientOptions, sink_options
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.broker.table_scene import Scene
from tests.reading import await_ended

_APPEND = Path(__file__).with_name("append_elsewhere.py")


def options_of(bootstrap, **changes):
    servers = (address.rsplit(":", 1) for address in bootstrap.split(","))
    return ClientOptions(bootstrap_servers=tuple((host, int(port)) for host, port in servers), **changes)


def batch_of(identity, base_sequence, values, *, timestamp=None):
    timestamp = int(time.time() * 1000) if timestamp is None else timestamp
    batch = encode(pa.array([None] * len(values), pa.binary()), pa.array(values, pa.binary()), timestamp)
    if identity is not None:
        stamp(
            batch,
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            base_sequence=base_sequence,
            transactional=bool(identity.transactional_id),
        )
    return batch


def expire(bootstrap, *groups):
    """What `offsets.retention.minutes` does to groups that nobody commits to."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its answers come only as long as it lives
    for deleted in admin.delete_consumer_groups([*groups]).values():
        deleted.result()


@pytest.fixture(params=["kafka", "kafka39"], ids=["TV2", "TV1"])
def either_kafka(request):
    """An embedded broker of the protocol after KIP-890, and one of the protocol before."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def cluster(either_kafka):
    with Cluster(options_of(either_kafka.bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def owner(either_kafka, cluster, topic):
    """`owner()`: a driver that writes to the module's `topic` under always the same transactional.id."""
    options = sink_options(
        {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
    )
    return lambda: SharedTransaction(options, cluster, decide_micro_batch(options))


@pytest.fixture
def await_state(cluster):
    """`await_state(transactional_id, state)`: until its coordinator has it in this state."""

    def await_state(transactional_id, state):
        deadline = time.monotonic() + 60
        while True:
            found = describe.transaction(cluster, transactional_id, now_ms=0)
            if isinstance(found, TransactionFacts) and found.state == state:
                return
            assert time.monotonic() < deadline, f"still {found}"
            time.sleep(0.05)

    return await_state


@pytest.fixture
def options():
    """`options(bootstrap, **changes)`: client options for an embedded broker."""
    return options_of


@pytest.fixture
def record_batch():
    """`record_batch(identity, base_sequence, values)`: stamped bytes to append; unstamped without an identity."""

    return batch_of


@pytest.fixture
def consumed(either_kafka):
    """`consumed(topic, partition=0, isolation_level="read_committed")`: all values that librdkafka sees, in order, once
    transactions that have ended have their markers.
    """

    def consume(topic, partition=0, isolation_level="read_committed"):
        if isolation_level == "read_committed":
            await_ended(either_kafka.bootstrap)
        consumer = Consumer(
            {
                "bootstrap.servers": either_kafka.bootstrap,
                "group.id": "nobody",
                "isolation.level": isolation_level,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,  # default: 500 ms until the end is reported
            }
        )
        try:
            consumer.assign([RdTopicPartition(topic, partition, 0)])
            values: list[bytes] = []
            while True:
                message = consumer.poll(20)
                assert message is not None, "neither a message nor the end of the partition"
                if message.error() is not None:
                    return values
                values.append(bytes(message.value() or b""))
        finally:
            consumer.close()

    return consume


@pytest.fixture
def append_elsewhere(either_kafka):
    """`append_elsewhere(identity, partition, base_sequence, values)`: by another process; returns what it printed."""

    def append(identity, partition, base_sequence, values):
        job = {
            "bootstrap": either_kafka.bootstrap,
            "identity": [identity.transactional_id, identity.producer_id, identity.epoch],
            "partition": list(partition),
            "base_sequence": base_sequence,
            "values": [value.decode() for value in values],
        }
        done = subprocess.run(
            [sys.executable, _APPEND, json.dumps(job)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return append


@pytest.fixture
def scene(either_kafka, cluster, tmp_path, consumed):
    scene = Scene(either_kafka, cluster, tmp_path, consumed)
    yield scene
    for process in scene.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
