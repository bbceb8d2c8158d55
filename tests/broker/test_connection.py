"""TLS, SASL and ACLs on a real broker: what gets in, and what the errors name."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import AuthenticationFailed, AuthorizationFailed, BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.auth.authentication import handshake, tls_context
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.options import ClientOptions, Secret, Security, from_properties, source_options
from tests.certificates import issue
from tests.coordinating import TransactionCoordinator

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


def continued(pem: str) -> str:
    """PEM text as Kafka's documentation has it in a .properties file: a backslash at each line's end."""
    return " \\\n  ".join(pem.strip().splitlines())


@pytest.fixture
def by_file(secured, tmp_path):
    """`by_file(protocol, text)`: the options of a property file with this text, for that listener."""

    def options(protocol, text):
        path = tmp_path / "client.properties"
        host = secured.kafka.bootstrap_of(protocol)
        path.write_text(f"bootstrap.servers={host}\nsecurity.protocol={protocol}\nrequest.timeout.ms=5000\n{text}")
        return source_options({"subscribe": "t", **from_properties(path), "kafka.delivery.timeout.ms": "5000"}).client

    return options


def test_a_file_as_confluent_cloud_writes_it_logs_in(by_file, secured):
    name, password = secured.allowed
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required username='{name}' password='{password}';"
    text = f"""sasl.mechanism=PLAIN
sasl.jaas.config={login}
ssl.truststore.type=PEM
ssl.truststore.certificates={continued(secured.certificates.ca.read_text())}
ssl.protocol=TLSv1.2
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
schema.registry.url=https://registry.example
basic.auth.user.info=key:secret
"""
    reach(by_file("SASL_SSL", text))
    with pytest.raises(AuthenticationFailed) as refused:
        reach(by_file("SASL_SSL", text.replace(password, WRONG)))
    assert WRONG not in str(refused.value)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3", "TLSv1.3,TLSv1.2,TLSv1.1"])
def test_a_file_with_a_certificate_and_a_key_in_continued_lines_logs_in(by_file, secured, version):
    key, end, certificate = secured.certificates.client_keystore.read_text().partition("-----END PRIVATE KEY-----")
    text = f"""ssl.enabled.protocols={version}
ssl.truststore.type=PEM
ssl.truststore.certificates={continued(secured.certificates.ca.read_text())}
ssl.keystore.type=PEM
ssl.keystore.key={continued(key + end)}
ssl.keystore.certificate.chain={continued(certificate)}
"""
    options = by_file("SSL", text)
    reach(options)
    ((host, port),) = options.bootstrap_servers
    plain = socket.create_connection((host, port), 5)
    with handshake(tls_context(options.security), plain, host, f"{host}:{port}") as connected:
        assert connected.version() == version.partition(",")[0]


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
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:.*is it a TLS listener\?"):
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
