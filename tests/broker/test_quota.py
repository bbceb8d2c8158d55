"""A client that reads faster than its quota (`consumer_byte_rate`) is throttled, and reads everything."""

from __future__ import annotations

import os
import re

import pytest

from tests.kafka_tools import admin_tool
from tests.producing import produce
from tests.reading import table

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RATE = 100_000  # bytes per second
VALUES = [os.urandom(1_000) for _ in range(2_000)]


@pytest.fixture
def limited(kafka):
    """A client id with this quota."""
    name = "limited"
    command = ["ConfigCommand", "--bootstrap-server", kafka.bootstrap, "--alter"]
    admin_tool(
        *command, "--add-config", f"consumer_byte_rate={RATE}", "--entity-type", "clients", "--entity-name", name
    )
    yield name
    admin_tool(*command, "--delete-config", "consumer_byte_rate", "--entity-type", "clients", "--entity-name", name)


def test_a_throttled_client_waits_as_it_is_told_and_reads_everything(bootstrap, topic, limited, caplog):
    name = topic("quota")
    produce(bootstrap, name, VALUES)
    # Less patience than it is throttled for: that time does not count.
    impatient = {"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "3000"}
    small = {"kafka.max.partition.fetch.bytes": "200000", "kafka.client.id": limited}
    with caplog.at_level("INFO", logger="spark_kafka_eos"):
        assert table(bootstrap, name, **small, **impatient)["value"].to_pylist() == VALUES
    waited = [int(found[1]) for found in re.finditer(r"waiting (\d+) ms for brokers that throttle", caplog.text)]
    print(f"{sum(map(len, VALUES)):,} bytes at {RATE:,} a second: waited {waited} ms")
    assert sum(waited) > 3_000
