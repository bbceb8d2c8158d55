"""The embedded brokers, started once for a whole test run and only when a test asks for them.

`--kafka-version 3.9.1` runs any selection of tests on brokers of that release, without those that are about a newer
one's protocol (TV2 in their names).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from spark_kafka_eos.tools import jars
from spark_kafka_eos.tools.embedded import EmbeddedKafka
from tests.certificates import Certificates, issue
from tests.matrix import cell, pytest_terminal_summary  # pytest finds fixtures and hooks by their names here

__all__ = ["cell", "pytest_terminal_summary"]

TopicFactory = Callable[..., str]
_ALLOWED, _DENIED = ("alice", "alice-secret"), ("bob", "bob-secret")
KAFKA_39 = "3.9.1"
_topics = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka-version", default=jars.DEFAULT_VERSION, help="the brokers' release (%(default)s)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before Kafka 4.0 there is no transaction.version 2 to test."""
    if int(str(config.getoption("--kafka-version")).split(".")[0]) < 4:
        newer = [item for item in items if re.search(r"[\[-]TV2[\]-]", item.name)]
        config.hook.pytest_deselected(items=newer)
        items[:] = [item for item in items if item not in newer]


@pytest.fixture(scope="session")
def kafka_version(pytestconfig: pytest.Config) -> str:
    """The release of Kafka that is tested."""
    return str(pytestconfig.getoption("--kafka-version"))


@pytest.fixture(scope="session")
def kafka(kafka_version: str) -> Iterator[EmbeddedKafka]:
    """One broker, by default of transaction.version 2, shared by every test: don't kill or pause it, name topics and
    ids uniquely."""
    with EmbeddedKafka(kafka_version) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka39(request: pytest.FixtureRequest, kafka_version: str) -> Iterator[EmbeddedKafka]:
    """One broker of Kafka 3.9, with the transaction protocol before KIP-890; shared as `kafka` is."""
    if kafka_version == KAFKA_39:
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedKafka(KAFKA_39) as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(kafka: EmbeddedKafka) -> str:
    """`bootstrap.servers` of `kafka`."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def topic(kafka: EmbeddedKafka) -> TopicFactory:
    """`topic(prefix="t", partitions=1, config=None)`: create a topic on `kafka`, return its unique name."""
    return topic_factory(kafka)


def topic_factory(kafka: EmbeddedKafka) -> TopicFactory:
    """What the fixture `topic` is, for another broker."""

    def create(prefix: str = "t", partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        return kafka.create_topic(f"{prefix}-{next(_topics)}", partitions, config)

    return create


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredKafka:
    """A broker that also listens on SSL, SASL_PLAINTEXT and SASL_SSL, with PLAIN and SCRAM, and checks ACLs.

    `allowed` may do everything (as may the plain listener and every client certificate of `certificates`); `denied` may
    log in and nothing else. Both are (user name, password).
    """

    kafka: EmbeddedKafka
    certificates: Certificates
    allowed: tuple[str, str] = _ALLOWED
    denied: tuple[str, str] = _DENIED


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, kafka_version: str) -> Iterator[SecuredKafka]:
    """TLS, SASL and ACLs on one broker, shared as `kafka` is."""
    users = dict([_ALLOWED, _DENIED])
    certificates = issue(tmp_path_factory.mktemp("certificates"))
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.broker_keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "ssl.client.auth": "requested",
    }
    login = "required " + " ".join(f'user_{name}="{password}"' for name, password in users.items()) + ";"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule {login}",
        "scram-sha-256.sasl.jaas.config": scram,
        "scram-sha-512.sasl.jaas.config": scram,
    }
    with EmbeddedKafka(
        kafka_version,
        listeners={"SSL": tls, "SASL_PLAINTEXT": sasl, "SASL_SSL": tls | sasl},
        scram_users=users,
        config={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
        },
    ) as kafka:
        yield SecuredKafka(kafka=kafka, certificates=certificates)
