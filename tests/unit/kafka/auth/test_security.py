"""TLS and SASL under the Java clients' names, and the contradictions that are refused."""

import textwrap

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import Secret, Security, source_options

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3cret";'
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def secured(**kafka: str) -> Security:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | given).client.security


def refused(option: str, why: str, **kafka: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        secured(**kafka)
    assert caught.value.option == option
    assert "s3cret" not in str(caught.value)


@pytest.fixture
def pem(tmp_path):
    path = tmp_path / "all.pem"
    path.write_text(PEM)
    return str(path)


def test_the_default_is_plaintext():
    assert secured() == Security()
    assert secured().librdkafka() == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("jaas", "why"),
    [
        ("", "expected"),
        ("username=alice password=s3cret", "expected"),
        (PLAIN.rstrip(";"), "expected `;` after the last option"),
        ('a.PlainLoginModule required username="alice;', "expected `;` after the last option"),
        ("a.PlainLoginModule required username=alice;", "password missing"),
        ("a.PlainLoginModule required;", "password and username missing"),
        ('a.Krb5LoginModule required keyTab="s3cret";', "Krb5LoginModule does not match kafka.sasl.mechanism PLAIN"),
        ('a.OtherLoginModule required keyTab="s3cret";', "OtherLoginModule is not supported"),
        (SCRAM.replace(";", " tokenauth='TRUE';"), "delegation token, which is not supported"),
    ],
)
def test_any_other_jaas_configuration_is_refused_without_being_shown(jaas, why):
    refused("kafka.sasl.jaas.config", why, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)])
def test_a_user_comes_from_jaas_or_from_librdkafkas_names(mechanism, jaas):
    by_jaas = secured(security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=jaas)
    by_name = secured(
        security_protocol="sasl_ssl", sasl_mechanism=mechanism, sasl_username="alice", sasl_password="s3cret"
    )
    assert by_jaas == by_name
    assert by_jaas.mechanism == mechanism.upper()
    assert by_jaas.librdkafka()["sasl.password"] == "s3cret"


def test_a_user_of_scram_who_is_said_to_be_no_delegation_token_logs_in():
    """Kafka's own name for it, with Java's other values."""
    how = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"}
    for value in ("false", "yes"):
        jaas = SCRAM.replace(";", f' tokenauth="{value}";')
        assert secured(**how, sasl_jaas_config=jaas) == secured(**how, sasl_jaas_config=SCRAM)


def test_sasl_needs_a_mechanism_and_a_user():
    refused("kafka.sasl.mechanism", "PLAIN, SCRAM-SHA-256", security_protocol="SASL_SSL", sasl_jaas_config=PLAIN)
    refused("kafka.sasl.jaas.config", "is required with", security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    refused(
        "kafka.sasl.jaas.config",
        "is required with",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="u",
    )


def test_the_login_module_must_fit_the_mechanism():
    sasl = {"security_protocol": "SASL_SSL", "sasl_jaas_config": PLAIN}
    refused("kafka.sasl.jaas.config", "PlainLoginModule does not match", sasl_mechanism="SCRAM-SHA-256", **sasl)


def test_a_mechanism_that_is_not_supported_is_refused():
    refused("kafka.sasl.mechanism", "'DIGEST-MD5' is not one of", sasl_mechanism="DIGEST-MD5")


def test_jaas_and_a_password_beside_it_exclude_each_other():
    refused("kafka.sasl.jaas.config", "cannot be combined with", sasl_jaas_config=PLAIN, sasl_password="s3cret")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_user_that_would_not_log_in_is_refused(protocol):
    refused(
        "kafka.security.protocol",
        f"{protocol} does not authenticate",
        security_protocol=protocol,
        sasl_jaas_config=PLAIN,
    )
    why = "does not authenticate"
    refused("kafka.security.protocol", why, security_protocol=protocol, sasl_mechanism="AWS_MSK_IAM")
    provider = {"kafka.sasl.oauthbearer.token.provider": "a:b", "kafka.sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigurationError, match=why):
        source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | provider)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_certificates_that_would_not_encrypt_are_refused(protocol, pem):
    user = {"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN} if protocol.startswith("SASL") else {}
    refused(
        "kafka.security.protocol", "does not use TLS", security_protocol=protocol, ssl_truststore_location=pem, **user
    )


@pytest.mark.parametrize("name", ["ssl_truststore_location", "ssl_ca_location"])
def test_a_truststore_in_pem_is_used_in_place(name, pem):
    assert secured(security_protocol="SSL", **{name: pem}).ca_location == pem


@pytest.mark.parametrize("name", ["ssl_truststore_certificates", "ssl_ca_pem"])
def test_a_truststore_may_be_given_as_text(name):
    security = secured(security_protocol="SSL", **{name: PEM})
    assert (security.ca_pem, security.ca_location) == (PEM.strip(), None)
    assert security.librdkafka()["ssl.ca.pem"] == PEM.strip()


def test_a_keystore_in_pem_is_chain_and_key(pem):
    security = secured(
        security_protocol="SSL", ssl_keystore_location=pem, ssl_keystore_type="PEM", ssl_key_password="s3cret"
    )
    assert (security.certificate_location, security.key_location, security.key_password) == (pem, pem, Secret("s3cret"))


def test_a_pem_store_without_its_lines_is_read_as_text(tmp_path):
    path, key = tmp_path / "indented.pem", PEM.replace("CERTIFICATE", "PRIVATE KEY").strip()
    path.write_text(textwrap.indent(f"{key}\n{PEM}", "  "))
    security = secured(
        security_protocol="SSL",
        ssl_keystore_location=str(path),
        ssl_truststore_location=str(path),
        ssl_truststore_type="PEM",
    )
    assert (security.certificate_pem, security.key_pem) == (PEM.strip(), Secret(key))
    assert (security.ca_location, security.certificate_location, security.key_location) == (None, None, None)
    assert security.ca_pem == PEM.strip(), "without the key"


def test_chain_and_key_may_be_given_as_text():
    security = secured(security_protocol="SSL", ssl_keystore_certificate_chain=PEM, ssl_keystore_key="s3cret")
    assert (security.certificate_pem, security.key_pem) == (PEM.strip(), Secret("s3cret"))
    assert "s3cret" not in repr(security)


def test_chain_and_key_may_be_two_files(pem):
    security = secured(security_protocol="SSL", ssl_certificate_location=pem, ssl_key_location=pem)
    assert (security.certificate_location, security.key_location) == (pem, pem)


def test_a_chain_without_its_key_is_refused_and_the_other_way_round():
    refused(
        "kafka.ssl.keystore.certificate.chain",
        "requires the key",
        security_protocol="SSL",
        ssl_keystore_certificate_chain=PEM,
    )
    refused(
        "kafka.ssl.keystore.key", "requires the certificate chain", security_protocol="SSL", ssl_keystore_key="s3cret"
    )


def test_two_ways_to_say_whom_to_trust_exclude_each_other(pem):
    both = {"ssl_truststore_location": pem, "ssl_ca_pem": PEM}
    refused(
        "kafka.ssl.truststore.location", r"cannot be combined with kafka\.ssl\.ca\.pem", security_protocol="SSL", **both
    )


def test_a_key_beside_a_keystore_is_refused(pem):
    both = {"ssl_keystore_location": pem, "ssl_keystore_key": "s3cret"}
    refused("kafka.ssl.keystore.key", "which contains the key", security_protocol="SSL", **both)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    missing = str(tmp_path / "none.pem")
    refused(
        "kafka.ssl.truststore.location",
        r"none\.pem cannot be read",
        security_protocol="SSL",
        ssl_truststore_location=missing,
    )


@pytest.mark.parametrize(("value", "checks"), [("https", True), ("HTTPS", True), ("", False), ("none", False)])
def test_the_host_name_is_checked_unless_it_is_switched_off(value, checks):
    security = secured(security_protocol="SSL", ssl_endpoint_identification_algorithm=value)
    assert security.check_hostname is checks
    assert security.librdkafka()["ssl.endpoint.identification.algorithm"] == ("https" if checks else "none")


def test_librdkafka_knows_every_name_it_is_given(pem):
    def complain(**kafka: str) -> str:
        try:
            AdminClient(secured(**kafka).librdkafka() | {"bootstrap.servers": "a:1"})
        except KafkaException as error:
            return str(error)
        return ""

    sasl = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": SCRAM}
    assert complain(**sasl) == ""
    files = {"ssl_ca_location": pem, "ssl_certificate_location": pem, "ssl_key_location": pem, "ssl_key_password": "x"}
    texts = {"ssl_ca_pem": PEM, "ssl_certificate_pem": PEM, "ssl_key_pem": "x", "ssl_key_password": "x"}
    for material in (files, texts):  # it complains of what they hold, not of their names
        assert "No such configuration property" not in complain(security_protocol="SSL", **material)
