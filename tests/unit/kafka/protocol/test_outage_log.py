"""How much is logged while no broker answers, with a simulated clock: an outage of an hour is seen, and is no storm."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import retry
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.log_pace import LogPace
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.options import ClientOptions
from tests.coordinating import TransactionCoordinator

HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry, "_paces", defaultdict(lambda: LogPace(clock)))
    return clock


def refused(host: str, port: int, _: ClientOptions) -> Any:
    raise BrokerUnreachable(f"no connection to {host}:{port}: [Errno 111] Connection refused")


def write(cluster: Cluster) -> None:
    TransactionCoordinator(cluster, "orders", 60_000).init_producer_id(None)


def read(cluster: Cluster) -> None:
    latest(cluster, [TopicPartition("orders", 0)])


@pytest.mark.parametrize("ask", [write, read], ids=["sink", "source"])
def test_an_hour_without_a_broker_is_two_lines_a_minute_at_most(
    ask: Callable[[Cluster], None], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_kafka_eos")
    options = ClientOptions(
        bootstrap_servers=(("broker-1", 9092), ("broker-2", 9092)),
        request_timeout_ms=HOUR_MS,  # the limit until the cluster has been reached
        delivery_timeout_ms=HOUR_MS,
    )
    cluster = Cluster(options, connect=refused, clock=clock, sleep=clock.sleep, jitter=lambda: 0.5)

    with pytest.raises(BrokerUnreachable, match="It was retried for 3600000 ms"):
        ask(cluster)

    levels = Counter(record.levelno for record in caplog.records)
    assert 60 <= levels[logging.WARNING] <= 62
    assert levels[logging.INFO] <= 10
    assert levels.total() <= 70
