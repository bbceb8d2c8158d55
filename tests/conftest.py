"""The embedded brokers, started once for a whole test run and only when a test asks for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import pytest

from spark_kafka_eos.tools.embedded import EmbeddedKafka

TopicFactory = Callable[..., str]


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One broker, transaction.version 2, shared by every test: don't kill or pause it, name topics and ids uniquely."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka39() -> Iterator[EmbeddedKafka]:
    """One broker of Kafka 3.9, with the transaction protocol before KIP-890; shared as `kafka` is."""
    with EmbeddedKafka("3.9.1") as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(kafka: EmbeddedKafka) -> str:
    """`bootstrap.servers` of `kafka`."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def topic(kafka: EmbeddedKafka) -> TopicFactory:
    """`topic(prefix="t", partitions=1, config=None)`: create a topic on `kafka`, return its unique name."""
    numbers = itertools.count(1)

    def create(prefix: str = "t", partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        return kafka.create_topic(f"{prefix}-{next(numbers)}", partitions, config)

    return create
