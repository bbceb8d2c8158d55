"""What KIP-31's relative offsets save a broker: with absolute ones (v0) it compresses each wrapper again.

Kafka 2.8 is the last one that takes all three formats as they are. Its CPU time per record is a table at the end of the
run, and in docs/performance-scale.md.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from kafka.protocol.producer import ProduceRequest

from lab.bench.old_formats import CODECS, record_sets
from spark_kafka_eos.kafka.protocol.connection import Connection
from tests.broker.conftest import options_of
from tests.broker.test_old_formats import configure, magics
from tests.zookeeper import serve

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(540)]

LAST_WITH_ALL = "2.8.2"
IN_A_BATCH, REQUESTS, ROUNDS = 500, 250, 5


class Side(NamedTuple):
    """A format, as a producer of its time sends it with this version of Produce."""

    magic: int
    message_format: str
    version: int
    step: int = 1  # between offsets


SIDES = {
    "v0": Side(0, "0.9.0", 1),
    "v1, offsets with gaps": Side(1, "0.10.0", 2, 2),
    "v1": Side(1, "0.10.0", 2),
    "v2": Side(2, "0.11.0", 3),
}


class Cost(NamedTuple):
    """Of a record: the broker's CPU time, and the bytes in its log."""

    microseconds: float
    bytes: float


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Cost]:
    """By name of the side and codec; rounds of all in turn, medians, the first round not counted."""
    folder = tmp_path_factory.mktemp("zookeeper")
    with serve(folder, LAST_WITH_ALL, ["-Xmx512m"]) as bootstrap:
        broker = next(
            each for each in psutil.process_iter(["cmdline"]) if str(folder / "broker") in (each.info["cmdline"] or ())
        )
        client = options_of(bootstrap)
        ((host, port),) = client.bootstrap_servers
        connection = Connection(host, port, client)
        used: dict[tuple[str, str], list[float]] = {}
        for number in range(ROUNDS + 1):
            for name, side in SIDES.items():
                for codec in CODECS:
                    topic = f"v{side.magic}-{side.step}-{codec}"
                    if not number:
                        configure(bootstrap, topic, {"message.format.version": side.message_format})
                    (records,) = record_sets(IN_A_BATCH, side.magic, codec, in_a_batch=IN_A_BATCH, step=side.step)
                    before = sum(broker.cpu_times()[:2])
                    for _ in range(REQUESTS):
                        send(connection, topic, records, side.version)
                    used.setdefault((name, codec), []).append(sum(broker.cpu_times()[:2]) - before)
        connection.close()
        sent = IN_A_BATCH * REQUESTS
        return {
            (name, codec): Cost(
                statistics.median(seconds[1:]) / sent * 1e6, log_bytes(folder, SIDES[name], codec) / sent / len(seconds)
            )
            for (name, codec), seconds in used.items()
        }


def send(connection: Connection, topic: str, records: bytes, version: int) -> None:
    of: Any = ProduceRequest.TopicProduceData
    data = of(name=topic, partition_data=[of.PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=[data])
    answer: Any = connection.receive(connection._send(request, version))
    assert answer.responses[0].partition_responses[0].error_code == 0


def log_bytes(folder: Path, side: Side, codec: str) -> int:
    """The size of the segments, all of whose messages have the side's format."""
    (log,) = (folder / "log" / f"v{side.magic}-{side.step}-{codec}-0").glob("*.log")
    assert set(magics([log])) == {side.magic}
    return log.stat().st_size


@pytest.mark.parametrize("codec", CODECS)
def test_relative_offsets_spare_the_broker_another_compression(costs, cell, codec):
    for name in SIDES:
        cost = costs[name, codec]
        cell("Broker CPU per record, µs", codec, name, f"{cost.microseconds:.2f}")
        cell("Bytes per record in the log", codec, name, f"{cost.bytes:.0f}")
    if codec != "none":
        assert costs["v1", codec].microseconds < costs["v0", codec].microseconds
        assert costs["v1", codec].microseconds < costs["v1, offsets with gaps", codec].microseconds
