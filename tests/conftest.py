"""The embedded brokers, started once for a whole test run and only when a test asks for them.

`--kafka-version 3.9.1` runs any selection of tests on brokers of that release, without those that are about newer ones
(`_SINCE`).
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests import jvm, kfakes
from tests.certificates import Certificates, issue
from tests.matrix import cell, pytest_terminal_summary  # pytest finds fixtures and hooks by their names here

__all__ = ["cell", "pytest_terminal_summary"]

TopicFactory = Callable[..., str]
_ALLOWED, _DENIED = ("alice", "alice-secret"), ("bob", "bob-secret")
KAFKA_39 = "3.9.1"
KAFKA_35 = "3.5.2"
KAFKA_OLDEST = "3.3.2"  # of the supported ones
# Nobody kills a shared broker, so it says as rarely as by default that it lives; and its controller appends no record
# twice a second to say that nothing happens. Else, idle, it takes 2.4 % of a core, so 1.1 %, and a run has up to 18.
_SHARED = {
    "metadata.max.idle.interval.ms": 0,
    "broker.heartbeat.interval.ms": 2_000,
    "broker.session.timeout.ms": 9_000,
    # Every five minutes, it would delete what tests have written with timestamps of more than a week ago.
    "log.retention.check.interval.ms": 86_400_000,
}
_topics = itertools.count(1)


# What a release is too old for: from which one on, the ids of the tests, why.
_SINCE = (
    ((4, 2), r"group_is_of_another_type", "share groups (KIP-932) and streams groups (KIP-1071)"),
    ((4, 0), r"KIP-848", "the consumer protocol"),
    ((4, 0), r"[\[-]TV2[\]-]", "transaction.version 2 (KIP-890)"),
    ((3, 9), r"test_a_log_that_an_unclean_election_truncates", "before, no KRaft controller elects uncleanly"),
    ((3, 6), r"test_a_timestamp_(out_of_range|that_the_topic)", "message.timestamp.before.max.ms (KIP-937)"),
    ((3, 6), r"test_the_model_answers_what_a_broker_answers", "the model verifies, as partitions do since KIP-890"),
    ((3, 6), r"test_an_append_under_the_given_up_epoch_is_refused", "partitions verify (KIP-890)"),
    ((3, 5), r"^tests/(broker|spark)/.*SCRAM-SHA", "before, KRaft brokers know no SCRAM passwords (KIP-900)"),
    (
        (3, 5),
        r"test_acls|test_secrets|test_what_the_query_may_not_do|this_principal_may_not_see|copied_over_tls_and_sasl",
        "their users have such",
    ),
    ((3, 4), r"test_oauth", "the broker's validator had another name"),
)


def release(version: str) -> tuple[int, int]:
    """A version's major and minor number, which compare as releases do."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka-version", default=jars.DEFAULT_VERSION, help="the brokers' release (%(default)s)")


def pytest_configure() -> None:
    os.environ |= jvm.environment(pyspark.__version__)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about newer releases than the one that is tested."""
    tested = release(str(config.getoption("--kafka-version")))
    too_new = [pattern for since, pattern, _ in _SINCE if tested < since]
    newer = [item for item in items if any(re.search(pattern, item.nodeid) for pattern in too_new)]
    config.hook.pytest_deselected(items=newer)
    items[:] = [item for item in items if item not in newer]


@pytest.fixture(autouse=True)
def level_of_our_log() -> Iterator[None]:
    """The option `logLevel` is of a process, which has other tests after that."""
    ours = logging.getLogger("spark_kafka_eos")
    before = ours.level
    yield
    ours.setLevel(before)


@pytest.fixture(scope="session")
def kafka_version(pytestconfig: pytest.Config) -> str:
    """The release of Kafka that is tested."""
    return str(pytestconfig.getoption("--kafka-version"))


@pytest.fixture(scope="session")
def kafka(kafka_version: str) -> Iterator[EmbeddedKafka]:
    """One broker, by default of transaction.version 2, shared by every test: don't kill or pause it, name topics and
    ids uniquely."""
    with EmbeddedKafka(kafka_version, config=_SHARED) as broker:
        yield broker


@pytest.fixture(scope="session")
def tv1_version(kafka_version: str) -> str:
    """A release with the transaction protocol before KIP-890: the one that is tested, where it is older than 4.0."""
    return kafka_version if release(kafka_version) < (4, 0) else KAFKA_39


@pytest.fixture(scope="session")
def kafka39(request: pytest.FixtureRequest, kafka_version: str, tv1_version: str) -> Iterator[EmbeddedKafka]:
    """One broker of `tv1_version`, by default Kafka 3.9; shared as `kafka` is."""
    yield from _shared(request, kafka_version, tv1_version)


@pytest.fixture(scope="module")
def kafka35(request: pytest.FixtureRequest, kafka_version: str) -> Iterator[EmbeddedKafka]:
    """One broker of Kafka 3.5, the last that lets a partition be appended to in no transaction (before KIP-890's
    verification); shared by a module's tests, because two modules need it, and a broker takes CPU time also when it is
    idle."""
    yield from _shared(request, kafka_version, KAFKA_35)


@pytest.fixture(scope="module")
def kafka_oldest(request: pytest.FixtureRequest, kafka_version: str) -> Iterator[EmbeddedKafka]:
    """One broker of the oldest supported release; shared as `kafka35` is."""
    yield from _shared(request, kafka_version, KAFKA_OLDEST)


def _shared(request: pytest.FixtureRequest, kafka_version: str, version: str) -> Iterator[EmbeddedKafka]:
    if version == kafka_version:
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedKafka(version, config=_SHARED) as broker:
        yield broker


@pytest.fixture(scope="session")
def kfake_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that runs kfake's brokers."""
    return kfakes.build(tmp_path_factory.mktemp("kfake"))


@pytest.fixture(scope="session")
def elsewhere(kafka: EmbeddedKafka, kafka39: EmbeddedKafka, kafka_version: str) -> Iterator[EmbeddedKafka]:
    """A cluster that is not `kafka`'s: `kafka39`, unless a run on one release makes both the same."""
    if kafka39 is not kafka:
        yield kafka39
        return
    with EmbeddedKafka(kafka_version, config=_SHARED) as broker:
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

    The SSL listener requires a client certificate. `allowed` may do everything, as may the client certificate of
    `certificates` and the plain listener, where nobody logs in; `denied` may log in and nothing else. Both are (user
    name, password).
    """

    kafka: EmbeddedKafka
    certificates: Certificates
    allowed: tuple[str, str] = _ALLOWED
    denied: tuple[str, str] = _DENIED

    def properties(self) -> str:
        """A `client.properties` file of `allowed`: TLS, and SCRAM as Kafka's own tools take it."""
        user, password = self.allowed
        return (
            f"bootstrap.servers={self.kafka.bootstrap_of('SASL_SSL')}\n"
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{password}";\n'
            f"ssl.truststore.location={self.certificates.ca}\n"
        )


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
        listeners={"SSL": tls | {"ssl.client.auth": "required"}, "SASL_PLAINTEXT": sasl, "SASL_SSL": tls | sasl},
        scram_users=users if release(kafka_version) >= (3, 5) else {},
        config={
            **_SHARED,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
        },
    ) as kafka:
        yield SecuredKafka(kafka=kafka, certificates=certificates)
