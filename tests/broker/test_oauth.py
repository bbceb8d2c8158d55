"""OAUTHBEARER on a real broker: Kafka's own validator reads the server's keys, tokens come over verified TLS."""

from __future__ import annotations

import itertools
import logging
import sys
import time

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable
from spark_kafka_eos.kafka.auth import oauth
from spark_kafka_eos.kafka.auth.oauth import Tokens
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.options import ClientOptions, source_options
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.tools.verify.follower import witness
from tests.copying import Copy
from tests.oauth import SECRET, guarded_kafka
from tests.producing import produce

pytestmark = pytest.mark.broker

SESSION_MS = 2_000


@pytest.fixture(scope="module")
def listening(tmp_path_factory, kafka_version):
    with guarded_kafka(tmp_path_factory.mktemp("oauth"), kafka_version, session_ms=SESSION_MS) as site:
        site.kafka.create_topic("guarded")
        yield site


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


def test_a_query_loses_nothing_while_tokens_and_sessions_end_among_its_batches(site, tmp_path):
    """Tokens of a function that live 2 s, so they and the sessions end several times, also within a transaction."""
    site.server.lifetime = 2.0
    source, target, calls = "renewed-in", "renewed-out", tmp_path / "calls"
    for topic in (source, target):
        site.kafka.create_topic(topic, 2)
    for partition in (0, 1):
        produce(site.kafka.bootstrap, source, [b"%d" % number for number in range(5_000)], partition=partition)
    given = site.provided(calls) | {"kafka.delivery.timeout.ms": "10000"}
    client = source_options({"subscribe": source} | given).client
    with Cluster(client) as cluster:
        query = Copy(given["kafka.bootstrap.servers"], cluster, source, target, options=given)
        query.write_as = lambda rows, _: rows
        at = number = renewed = 0
        while renewed < 4 or number < 10:
            assert query.run(number, at, at + 10, max_attempts=1).outcome == "committed"
            number, at, renewed = number + 1, at + 10, len(calls.read_text().splitlines())
    written = read_topic(site.kafka.bootstrap, target, "read_committed")
    values = sorted(int(message.value() or b"") for message in written)
    assert values == sorted(2 * [*range(at)])


def test_librdkafka_reads_with_the_same_token_provider(site, tmp_path):
    client = source_options({"subscribe": "any"} | site.provided(tmp_path / "calls")).client
    partition = TopicPartition("guarded", 0)
    with Cluster(client) as cluster:
        end = latest(cluster, [partition], isolation_level="read_committed")[partition]
    assert witness(client, [OffsetRange(partition=partition, start=0, end=end)])[partition].end == end


def test_a_provider_that_cannot_reach_its_source_is_asked_again(site, tmp_path, monkeypatch):
    """A function of a user's, whose source is away twice."""
    (tmp_path / "unsteady_tokens.py").write_text(
        "from tests.oauth import fetch\n\ncalls = []\n\ndef token(config):\n    calls.append(1)\n"
        "    if len(calls) < 3:\n        raise ConnectionError('away')\n    return fetch(config)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = site.provided(tmp_path / "calls") | {"kafka.sasl.oauthbearer.token.provider": "unsteady_tokens:token"}
    with Cluster(source_options({"subscribe": "any"} | given).client) as cluster:
        assert "guarded" in cluster.topic_names()
    assert len(sys.modules["unsteady_tokens"].calls) == 3
