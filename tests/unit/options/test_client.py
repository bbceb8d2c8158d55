"""The settings of connections, and librdkafka's names for them."""

import pickle

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import ClientOptions, source_options


def client(**kafka: str) -> ClientOptions:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return source_options({"kafka.bootstrap.servers": "a:1,[::1]:2", "subscribe": "t"} | given).client


def test_brokers_are_required():
    with pytest.raises(ConfigurationError, match=r"option 'kafka\.bootstrap\.servers': is required"):
        source_options({"subscribe": "t"})


def test_defaults_are_those_of_the_java_clients():
    assert client() == ClientOptions(bootstrap_servers=(("a", 1), ("::1", 2)))
    assert (client().request_timeout_ms, client().delivery_timeout_ms, client().retry_backoff_ms) == (
        30_000,
        120_000,
        100,
    )


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "ssl"])
def test_a_protocol_by_itself_is_what_is_used(protocol):
    """SSL needs no other option: the system's authorities are trusted."""
    security = client(security_protocol=protocol).security
    assert security.uses_tls == (protocol.upper() == "SSL")
    assert security.check_hostname


def test_kafkas_names_set_the_fields():
    set_ = client(client_id="me", request_timeout_ms="1000", retry_backoff_ms="10", retry_backoff_max_ms="20")
    assert (set_.client_id, set_.request_timeout_ms, set_.retry_backoff_ms, set_.retry_backoff_max_ms) == (
        "me",
        1000,
        10,
        20,
    )


def test_an_empty_name_of_the_client_is_javas_default_as_files_have_it():
    assert [client(client_id=empty).client_id for empty in ("", " ")] == [client().client_id] * 2


def test_librdkafka_accepts_every_name_and_value_it_is_given():
    config = client(
        request_timeout_ms="10", socket_connection_setup_timeout_ms="1000", retry_backoff_ms="300000"
    ).librdkafka()
    assert config["bootstrap.servers"] == "a:1,[::1]:2"
    AdminClient(config)  # raises KafkaException for an unknown name or a value out of range


def test_the_longest_pause_is_never_shorter_than_the_first():
    assert client(retry_backoff_ms="5000").librdkafka()["retry.backoff.max.ms"] == 5000


def test_values_pickle_since_they_travel_to_the_executors():
    assert pickle.loads(pickle.dumps(client())) == client()
