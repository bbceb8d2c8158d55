"""What is refused before Spark is asked for anything."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import traceback

import pytest
from pyspark.sql import functions

from spark_kafka_eos.errors import ConfigurationError, RegistryError
from spark_kafka_eos.registry import from_confluent, to_confluent
from spark_kafka_eos.registry.client import Registry, _sessions
from spark_kafka_eos.testing.registry import RegistryServer
from tests.certificates import issue


def test_a_spark_without_functions_of_arrow_columns_is_named(server, monkeypatch):
    server.register("t-value", '"string"')
    monkeypatch.delattr(functions, "arrow_udf")
    with pytest.raises(ImportError, match=r"arrow_udf.*came with PySpark 4\.1, but this is"):
        from_confluent("value", server.url, topic="t")


@pytest.mark.parametrize("registry", ["localhost:8081", {}, {"basic.auth.user.info": "a:secret"}])
def test_a_registry_needs_a_url(registry):
    with pytest.raises(ConfigurationError, match="needs a URL") as raised:
        from_confluent("value", registry, topic="t")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@one:8081, me:s3cret@two:8081",
        "http://me:s3,cret@one:8081",
        "http://one,,ftp://me:s3cret@two",
        "https://me:s3/cret@one",
        "https://me:s3#cret@one",
        "https://me:s3?cret@one",
        "https://one,https://me:12/s3cret@two",
        "https://me:s3cret@[one",
        "https://me:s3cret\u2100@one",
        "https://me:s3cret@",
        "https://me:s3cret@one:s3cret",
        "https://me:s3cret@one,https://you:s3cret@two",
        "https://one,https://me:s3cret@two",
    ],
)
def test_an_address_that_cannot_be_one_is_refused_and_not_shown(url):
    """A password with a sign that ends it makes the rest a host, a path or an address."""
    for registry in (url, {"url": url, "ssl.key.password": "s3cret"}):
        with pytest.raises(ConfigurationError, match="url") as raised:
            Registry.of(registry)
        shown = "".join(traceback.format_exception(raised.value))
        assert "s3" not in shown and "cret" not in shown


@pytest.mark.parametrize("proxy", ["http://me:s3/cret@one", "ftp://me:s3cret@one", "me:s3cret@one:80"])
def test_a_proxy_that_the_client_refuses_is_not_shown(proxy):
    with pytest.raises(ConfigurationError, match="refuses its options") as raised:
        _ = Registry.of({"url": "http://one", "proxy": proxy}).session
    shown = "".join(traceback.format_exception(raised.value))
    assert "s3" not in shown and "cret" not in shown


@pytest.mark.parametrize("addresses", ["http://{login}@{host}", "http://{login}@{host}, http://{host}/"])
def test_a_login_in_the_url_is_used_and_not_logged(addresses, caplog):
    with RegistryServer(user_info="me:s3/cr:et") as server, caplog.at_level(logging.DEBUG):
        server.register("t-value", '"string"')
        host = server.url.removeprefix("http://")
        registry = Registry.of(addresses.format(login="me:s3%2Fcr%3Aet", host=host))
        assert registry.session.latest("t-value").schema.text == '"string"'
        assert registry.hosts.split(",")[0] == host
    assert f"GET {server.url}/subjects/t-value" in caplog.text
    assert "cr%3Aet" not in caplog.text and "cr:et" not in caplog.text and "me" not in repr(registry)


def test_a_login_in_the_url_may_lack_the_password():
    with RegistryServer(user_info="token:") as server:
        server.register("t-value", '"string"')
        registry = Registry.of(server.url.replace("//", "//token@"))
        assert registry.session.latest("t-value").schema.text == '"string"'


def test_a_login_in_the_url_and_another_one_are_refused():
    with pytest.raises(ConfigurationError, match=r"basic\.auth\.user\.info.*the URL has a login, too") as raised:
        Registry.of({"url": "http://me:s3cret@one", "basic.auth.user.info": "you:s3cret"})
    assert "s3cret" not in str(raised.value)


def test_an_option_that_the_client_does_not_know_is_named_without_its_value():
    with pytest.raises(ConfigurationError, match="pass.word") as raised:
        from_confluent("value", {"url": "http://127.0.0.1:1", "pass.word": "secret"}, topic="t")
    assert "secret" not in str(raised.value)


def test_options_that_are_mappings_and_functions_are_handed_to_the_client(server):
    server.register("t-value", '"string"')
    for _ in range(40):
        options = {
            "url": server.url,
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": lambda config: config,
            "bearer.auth.custom.provider.config": {
                "bearer.auth.token": "secret", "bearer.auth.logical.cluster": "c", "bearer.auth.identity.pool.id": "p",
            },
        }  # fmt: skip
        registry = Registry.of(options)
        assert registry.session.latest("t-value").schema.text == '"string"'
        assert registry.session is registry.session
    assert len(_sessions) <= 16


def test_a_session_that_is_used_goes_on_when_many_others_begin(server):
    """As where each call has another token: one thread's query must not end another one's."""
    server.register("t-value", '"string"')
    used = Registry.of({"url": server.url, "max.retries": 0}).session
    failed: list[Exception] = []

    def begin(number: int) -> None:
        try:
            for step in range(20):
                registry = Registry.of({"url": server.url, "timeout": 30 + number + step / 100})
                assert registry.session.latest("t-value").schema.text == '"string"'
        except Exception as error:  # noqa: BLE001 - it is what the test is about
            failed.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used.latest("t-value").schema.text == '"string"'
    assert not failed
    assert len(_sessions) == 16


def test_a_registry_whose_certificate_is_not_trusted_gets_no_credentials(tmp_path):
    issued = issue(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.broker_keystore)
    with RegistryServer() as server:
        server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
        server.register("t-value", '"string"')
        given = {"url": server.url.replace("http:", "https:"), "basic.auth.user.info": "me:secret"}
        with pytest.raises(RegistryError, match="did not answer") as raised:
            Registry.of(given).session.latest("t-value")
        trusting = given | {"ssl.ca.location": str(issued.ca)}
        of_another_name = given["url"].replace("127.0.0.1", "localhost")
        socket.create_connection(("localhost", server._http.server_port)).close()  # it is there under that name
        with pytest.raises(RegistryError, match="did not answer"):
            Registry.of(trusting | {"url": of_another_name}).session.latest("t-value")
        assert "secret" not in str(raised.value) and server.requests == []
        assert Registry.of(trusting).session.latest("t-value").schema.text == '"string"'


def test_a_registry_shows_its_hosts_and_nothing_else():
    registry = Registry.of({"url": "https://me:secret@one:8081,https://two", "ssl.key.password": "secret"})
    assert repr(registry) == "Registry(one:8081,two)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"strategy": "record"}, "the subject follows from the schema"),
        ({"strategy": "topic-record", "schema": '"string"'}, "needs it"),
        ({"strategy": "other", "topic": "t"}, "must be 'topic', 'record' or 'topic-record'"),
        ({"schema": '"string"'}, "give subject or topic"),
        ({"schema": "{}", "schema_type": "XML", "topic": "t"}, "must be AVRO, PROTOBUF or JSON"),
    ],
)
def test_arguments_that_name_no_subject_are_refused(server, arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        to_confluent("value", server.url, **arguments)
