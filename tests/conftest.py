"""The embedded brokers, started once for a whole test run and only when a test asks for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from spark_kafka_eos.tools.embedded import EmbeddedKafka
from tests.certificates import Certificates, issue
from tests.matrix import cell, pytest_terminal_summary  # pytest finds fixtures and hooks by their names here

__all__ = ["cell", "pytest_terminal_summary"]

TopicFactory = Callable[..., str]
_ALLOWED, _DENIED = ("alice", "alice-secret"), ("bob", "bob-secret")


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
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
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
        listeners={"SSL": tls, "SASL_PLAINTEXT": sasl, "SASL_SSL": tls | sasl},
        scram_users=users,
        config={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
        },
    ) as kafka:
        yield SecuredKafka(kafka=kafka, certificates=certificates)
