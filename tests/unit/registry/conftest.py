"""A registry on the loopback interface, and Confluent's own client of it."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from spark_kafka_eos.registry.client import close_sessions
from spark_kafka_eos.testing.registry import RegistryServer


@pytest.fixture
def server():
    with RegistryServer() as running:
        yield running
    close_sessions()


@pytest.fixture
def client(server):
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made
