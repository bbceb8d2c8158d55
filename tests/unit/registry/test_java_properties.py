"""What a property file of Java's clients has for a schema registry is what Confluent's client for Python gets."""

from __future__ import annotations

import pytest

from spark_kafka_eos import confluent_decoder, registry_from_properties
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.registry.client import Registry, close_sessions
from spark_kafka_eos.testing.registry import RegistryServer
from tests.certificates import issue

JAAS = "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='reader' "
JAAS += r"password='a:b\\\\c';"
OWN = r"basic.auth.user.info=reader:a:b\\c"


@pytest.fixture
def read(tmp_path):
    def write_and_read(*lines):
        path = tmp_path / "client.properties"
        path.write_text("\n".join(lines))
        return registry_from_properties(path)

    return write_and_read


@pytest.mark.parametrize(
    "lines",
    [
        (OWN,),
        (OWN, "basic.auth.credentials.source=USER_INFO"),
        (f"schema.registry.{OWN}", "schema.registry.basic.auth.credentials.source=USER_INFO"),
        ("basic.auth.user.info=other:secret", f"schema.registry.{OWN}"),
        ("schema.registry.basic.auth.credentials.source=SASL_INHERIT", JAAS),
        ("basic.auth.credentials.source=sasl_inherit", JAAS, "basic.auth.user.info=other:secret"),
        ("basic.auth.credentials.source=URL", "basic.auth.user.info=other:secret"),
    ],
    ids=str,
)
def test_the_login_of_the_file_is_the_one_that_the_registry_gets(read, lines):
    with RegistryServer(user_info=r"reader:a:b\c") as server:
        server.register("orders-value", '"long"')
        url = server.url
        if "basic.auth.credentials.source=URL" in lines:
            url = url.replace("//", "//reader:a%3Ab%5Cc@")
        registry = read(f"schema.registry.url={url}", "bootstrap.servers=a:1", *lines)
        assert str(confluent_decoder(registry, topic="orders").type) == "int64"
    close_sessions()


def test_stores_in_pem_become_the_clients_files_and_others_are_refused_with_a_way_out(read):
    url = "schema.registry.url=https://registry.example"
    stores = [
        "schema.registry.ssl.truststore.location=/ca.pem", "schema.registry.ssl.truststore.type=PEM",
        "schema.registry.ssl.keystore.location=/me.pem", "schema.registry.ssl.keystore.type=pem",
        "schema.registry.ssl.key.password=secret", "schema.registry.ssl.endpoint.identification.algorithm=https",
        "ssl.truststore.location=/kafkas.jks",
    ]  # fmt: skip
    assert read(url, *stores) == {
        "url": "https://registry.example", "ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/me.pem",
        "ssl.key.password": "secret",
    }  # fmt: skip
    for lines in (stores[:1], [stores[2], "schema.registry.ssl.keystore.type=PKCS12"]):
        with pytest.raises(
            ConfigurationError, match=r"takes files in PEM, and schema\.registry\.ssl\.(key|trust)store\.type is not"
        ) as refused:
            read(url, *lines)
        assert "openssl pkcs12" in str(refused.value)
    with pytest.raises(ConfigurationError, match="host name is always verified"):
        read(url, "schema.registry.ssl.endpoint.identification.algorithm=")


@pytest.mark.parametrize(("store", "file"), [("truststore", "ca"), ("keystore", "client_keystore")])
def test_a_store_that_openssl_cannot_read_is_refused_with_its_file_and_property(read, tmp_path, store, file):
    def store_of(path):
        where = f"schema.registry.ssl.{store}.location={path}"
        return read("schema.registry.url=https://a", where, f"schema.registry.ssl.{store}.type=PEM")

    pem = getattr(issue(tmp_path), file)
    assert str(pem) in store_of(pem).values()
    pem.write_text(" ".join(pem.read_text().split("\n")))  # one line, which Java's client takes
    with pytest.raises(
        ConfigurationError, match=rf"schema\.registry\.ssl\.{store}\.location.*{pem.name}.*alone in a line"
    ):
        store_of(pem)


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("truststore.certificates", "truststore.location"),
        ("keystore.certificate.chain", "keystore.location"),
        ("keystore.key", "keystore.location"),
    ],
)
def test_a_store_in_the_property_file_itself_is_refused_with_a_way_out(read, name, location):
    with pytest.raises(ConfigurationError, match=rf"set schema\.registry\.ssl\.{location}") as refused:
        read("schema.registry.url=https://a", f"schema.registry.ssl.{name}=SECRET")
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("name", ["proxy.host", "ssl.protocol", "ssl.truststore.password", "of.a.later.release"])
def test_what_the_client_does_not_have_is_named_in_a_warning(read, caplog, name):
    assert read("schema.registry.url=http://a", f"schema.registry.{name}=SECRET") == {"url": "http://a"}
    assert f"schema.registry.{name} has no effect" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("basic.auth.user.info=a:SECRET",), "schema.registry.url"),
        (("schema.registry.url=http://a", "basic.auth.credentials.source=SECRET"), "USER_INFO, URL or SASL_INHERIT"),
        (("schema.registry.url=http://a", "basic.auth.credentials.source=SASL_INHERIT"), "needs sasl.jaas.config"),
        (
            (
                "schema.registry.url=http://a", "basic.auth.credentials.source=SASL_INHERIT",
                'sasl.jaas.config=a.Module required token="SECRET";',
            ),
            "a user name and a password",
        ),
        (
            (
                "schema.registry.url=http://a", "basic.auth.credentials.source=SASL_INHERIT",
                "sasl.jaas.config=SECRET",
            ),
            "expected",
        ),
        (("schema.registry.url=\\u12SECRET",), "line 1"),
    ],
)  # fmt: skip
def test_a_file_that_says_too_little_is_refused_without_its_content(read, lines, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        read(*lines)
    assert "SECRET" not in str(refused.value)


def test_the_login_is_not_shown_by_the_registry(read):
    registry = Registry.of(read("schema.registry.url=http://a:1", "basic.auth.user.info=a:SECRET"))
    assert "SECRET" not in repr(registry)
