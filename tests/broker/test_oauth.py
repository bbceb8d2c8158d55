"""OAUTHBEARER on a real broker: Kafka's own validator reads the server's keys, tokens come over verified TLS."""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.broker import oauth
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.connection import Connection
from spark_kafka_eos.broker.oauth import Tokens
from spark_kafka_eos.broker.produce import Appender
from spark_kafka_eos.broker.transactions import idempotent_identity
from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options import ClientOptions, source_options
from spark_kafka_eos.testing.embedded import JVM_OPTIONS, EmbeddedKafka
from tests.certificates import Certificates, issue
from tests.oauth import ISSUER, OAuthServer, serve

pytestmark = pytest.mark.broker

CLIENT, SECRET = "spark", "hunter2"
SESSION_MS = 2_000
_KAFKA = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True)
class Site:
    kafka: EmbeddedKafka
    server: OAuthServer
    certificates: Certificates

    def options(self, secret: str = SECRET, **changes: str) -> ClientOptions:
        """As a user gives them; `changes` are Kafka's properties with `_` for `.`."""
        properties = {
            "bootstrap.servers": self.kafka.bootstrap_of("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{_KAFKA}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.server.token_url,
            "sasl.jaas.config": f'{_KAFKA}.OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{secret}" '
            f'scope="kafka" ssl.truststore.location="{self.certificates.ca}";',
            "request.timeout.ms": "5000",
            "delivery.timeout.ms": "5000",
        }
        properties |= {name.replace("_", "."): value for name, value in changes.items()}
        given = {f"kafka.{name}": value for name, value in properties.items()}
        return source_options({"subscribe": "any"} | given).client


@pytest.fixture(scope="module")
def listening(tmp_path_factory, kafka_version):
    certificates = issue(tmp_path_factory.mktemp("oauth"))
    with serve(OAuthServer({CLIENT: SECRET}), certificates) as server:
        sasl = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f"{_KAFKA}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": f"{_KAFKA}.OAuthBearerValidatorCallbackHandler",
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
            "oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,  # from 4.4 on it must be said
            "oauthbearer.connections.max.reauth.ms": SESSION_MS,
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.keys_url}"
        options = (*JVM_OPTIONS, allowed)
        with EmbeddedKafka(kafka_version, listeners={"SASL_PLAINTEXT": sasl}, jvm_options=options) as kafka:
            kafka.create_topic("guarded")
            yield Site(kafka=kafka, server=server, certificates=certificates)


@pytest.fixture
def site(listening, monkeypatch):
    monkeypatch.setattr(oauth, "shared_tokens", Tokens())
    listening.server.requests.clear()
    listening.server.lifetime, listening.server.audience, listening.server.answer = 3600.0, "kafka", None
    return listening


def connect(options: ClientOptions) -> Connection:
    return Connection(*options.bootstrap_servers[0], options)


def test_one_token_serves_every_connection_of_the_process_and_is_not_logged(site, caplog):
    caplog.set_level(logging.DEBUG)
    options = site.options()
    for _ in range(3):
        connect(options).close()
    token = oauth.shared_tokens.get(options.security, 5).reveal()
    for secret in (SECRET, token, token[-20:]):
        assert secret not in caplog.text + repr(options)
    assert site.server.requests == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


def test_librdkafka_logs_in_with_the_same_options(site):
    config = site.options().librdkafka()
    assert "guarded" in AdminClient(config | {"log_level": 0}).list_topics(timeout=20).topics


def test_a_wrong_secret_stops_at_the_token_endpoint(site):
    with pytest.raises(AuthenticationFailed, match="rejected client 'spark': HTTP 401 invalid_client") as caught:
        connect(site.options("not the secret"))
    assert "not the secret" not in f"{caught.value}{caught.value.__cause__}"


def test_a_token_for_somebody_else_is_refused_by_the_broker(site):
    site.server.audience = "elsewhere"
    with pytest.raises(AuthenticationFailed, match=r"rejected user 'spark' \(OAUTHBEARER\).*Check the broker's log"):
        connect(site.options())
    site.server.audience = "kafka"
    connect(site.options()).close()  # the refused token was not kept


def test_a_token_endpoint_that_does_not_answer_is_asked_again_and_named(site):
    options = site.options(sasl_oauthbearer_token_endpoint_url="https://127.0.0.1:1/token", request_timeout_ms="500")
    with (
        Cluster(options) as cluster,
        pytest.raises(BrokerUnreachable, match="token endpoint https://127.0.0.1:1/token"),
    ):
        cluster.topic_names()


def test_a_connection_is_replaced_before_its_session_ends(site):
    options = site.options()
    opened = []

    def counted(*arguments):
        opened.append(time.monotonic())
        return Connection(*arguments)

    with Cluster(options, connect=counted) as cluster:
        end = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < end:
            assert "guarded" in cluster.topic_names()
    assert len(opened) >= 3
    assert max(later - earlier for earlier, later in itertools.pairwise(opened)) < SESSION_MS / 1000


def test_appends_continue_when_the_session_ends_among_them(site, record_batch):
    # Always something in flight, so that the connection cannot be replaced in time: the broker closes it.
    partition = TopicPartition("guarded", 0)
    with Cluster(site.options()) as cluster:
        identity = idempotent_identity(cluster)
        sequence = 0
        with Appender(cluster, identity) as appender:
            end = time.monotonic() + 1.5 * SESSION_MS / 1000
            while time.monotonic() < end:
                appender.append(partition, record_batch(identity, sequence, [b"x" * 1000]), 1, sequence)
                sequence += 1
            acks = appender.flush()
    assert sum(ack.records for ack in acks) == sequence
