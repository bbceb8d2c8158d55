"""TLS, SASL and ACLs on a real broker: what gets in, and what the errors name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.errors import AuthenticationFailed, AuthorizationFailed, BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import TransactionCoordinator
from spark_kafka_eos.options import ClientOptions, Secret, Security
from tests.certificates import issue

pytestmark = pytest.mark.broker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
WRONG = "this is not the password"


@pytest.fixture
def client(secured):
    """`client(protocol, **security)`: options for that listener; `login` is (user, password)."""

    def options(protocol, *, login=None, listener=None, **security):
        if "SSL" in protocol:
            security = {"ca_location": str(secured.certificates.ca)} | security
        if login is not None:
            security |= {"username": login[0], "password": Secret(login[1])}
        host, port = secured.kafka.bootstrap_of(listener or protocol).rsplit(":", 1)
        return ClientOptions(
            bootstrap_servers=((host, int(port)),),
            security=Security(protocol=protocol, **security),
            request_timeout_ms=5_000,
            delivery_timeout_ms=5_000,
        )

    return options


@pytest.fixture(scope="module")
def topic(secured):
    return secured.kafka.create_topic("guarded", 1)


def reach(options):
    """Connect and ask something."""
    with Cluster(options) as cluster:
        cluster.topic_names()


def append(options, record_batch, topic):
    with Cluster(options) as cluster, Appender(cluster, None) as appender:
        appender.append(TopicPartition(topic, 0), record_batch(None, 0, [b"x" * 100_000]), 1, 0)
        appender.flush()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_logs_in_by_every_mechanism_and_moves_data(client, secured, topic, record_batch, protocol, mechanism):
    options = client(protocol, mechanism=mechanism, login=secured.allowed)
    append(options, record_batch, topic)
    with Cluster(options) as cluster:
        ranges = [OffsetRange(partition=TopicPartition(topic, 0), start=0, end=1)]
        assert [f.next_offset for f in Fetcher(cluster, max_partition_fetch_bytes=1).fetch(ranges)] == [1]


@pytest.fixture
def identity(secured):
    """The client's certificate, which the SSL listener requires."""
    keystore = str(secured.certificates.client_keystore)
    return {"certificate_location": keystore, "key_location": keystore}


def test_a_client_certificate_comes_from_a_file_or_as_text(client, secured, identity):
    reach(client("SSL", **identity))
    text = secured.certificates.client_keystore.read_text()
    reach(client("SSL", certificate_pem=text, key_pem=Secret(text)))


def test_a_client_without_a_certificate_or_with_another_authoritys_is_refused(client, tmp_path):
    stranger = str(issue(tmp_path).client_keystore)
    for wrong in ({}, {"certificate_location": stranger, "key_location": stranger}):
        # The broker hangs up; its reason may come too late to be read.
        with pytest.raises((AuthenticationFailed, BrokerUnreachable), match="127.0.0.1"):
            reach(client("SSL", **wrong))


def elsewhere(options):
    """The same broker under a name that its certificate does not have."""
    [(_, port)] = options.bootstrap_servers
    return replace(options, bootstrap_servers=(("localhost", port),))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_certificate_for_another_name_is_not_trusted(client, secured, identity, protocol):
    """Else anybody with a certificate of the same authority can be the broker."""
    login = {"mechanism": "PLAIN", "login": secured.allowed} if protocol == "SASL_SSL" else identity
    with pytest.raises(AuthenticationFailed, match="handshake with localhost:.*host name") as caught:
        reach(elsewhere(client(protocol, **login)))
    assert "localhost" in str(caught.value.__cause__)
    reach(elsewhere(client(protocol, check_hostname=False, **login)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_names_the_user_and_shows_no_password(client, secured, mechanism):
    options = client("SASL_SSL", mechanism=mechanism, login=(secured.allowed[0], WRONG))
    with pytest.raises(AuthenticationFailed, match=f"rejected user '{secured.allowed[0]}'") as caught:
        reach(options)
    assert WRONG not in f"{caught.value}{caught.value!r}{caught.value.__cause__}"


def test_an_authority_that_did_not_sign_the_broker_is_not_trusted(client, identity, tmp_path):
    with pytest.raises(AuthenticationFailed, match="the TLS handshake with 127.0.0.1:.* failed"):
        reach(client("SSL", ca_location=str(issue(tmp_path).ca), **identity))
    with pytest.raises(AuthenticationFailed, match="the TLS handshake with 127.0.0.1:.* failed"):
        reach(client("SSL", ca_location=str(issue(tmp_path).ca), check_hostname=False, **identity))


def test_tls_to_a_plain_listener_says_so(client):
    with pytest.raises((AuthenticationFailed, BrokerUnreachable), match="127.0.0.1"):
        reach(client("SSL", listener="PLAINTEXT"))


def test_plain_text_to_a_tls_listener_says_so(client):
    with pytest.raises(BrokerUnreachable, match="TLS listener|closed the connection"):
        reach(client("PLAINTEXT", listener="SSL"))


def test_a_topic_one_may_not_see_is_unknown_and_one_may_not_write_is_named(client, secured, topic, record_batch):
    options = client("SASL_PLAINTEXT", mechanism="PLAIN", login=secured.denied)
    with pytest.raises((AuthorizationFailed, UnknownTopic), match=topic):
        append(options, record_batch, topic)


def test_a_transactional_id_and_a_group_one_may_not_use_are_named(client, secured):
    options = client("SASL_PLAINTEXT", mechanism="PLAIN", login=secured.denied)
    with Cluster(options) as cluster:
        with pytest.raises(AuthorizationFailed, match="transactional id 'forbidden'"):
            TransactionCoordinator(cluster, "forbidden", 1_000).init_producer_id()
        with pytest.raises(AuthorizationFailed, match="group 'forbidden'"):
            GroupCoordinator(cluster, "forbidden").fetch_offsets([TopicPartition("guarded", 0)])
