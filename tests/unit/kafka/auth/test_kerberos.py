"""Kerberos under Java's names, in JAAS or beside it, and under librdkafka's."""

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.kerberos import Kerberos
from spark_kafka_eos.options import Security, source_options

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
GIVEN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}
PRINCIPAL = "orders@EXAMPLE.COM"


def secured(given: dict[str, str]) -> Security:
    properties = {f"kafka.{name}": value for name, value in given.items()}
    return source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | properties).client.security


@pytest.fixture
def keytab(tmp_path):
    path = tmp_path / "orders.keytab"
    path.touch()
    return str(path)


def test_a_keytab_comes_from_jaas_or_from_librdkafkas_names(keytab):
    expected = Kerberos(service="kafka", principal=PRINCIPAL, keytab=keytab)
    inside = f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{PRINCIPAL}" doNotPrompt=true;'
    assert secured(GIVEN | {"sasl.jaas.config": inside}).kerberos == expected
    beside = {"sasl.kerberos.keytab": keytab, "sasl.kerberos.principal": PRINCIPAL}
    assert secured(GIVEN | beside).kerberos == expected
    assert secured(GIVEN | beside).librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": PRINCIPAL,
        "sasl.kerberos.keytab": keytab,
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_without_a_keytab_the_ticket_cache_is_used():
    assert secured(GIVEN).kerberos == Kerberos(service="kafka")
    inside = f'{MODULE} useTicketCache=true renewTGT=true ticketCache="/tmp/krb5cc_7" serviceName=kafka;'
    expected = Kerberos(service="kafka", ticket_cache="/tmp/krb5cc_7")
    assert secured(GIVEN | {"sasl.jaas.config": inside}).kerberos == expected


@pytest.mark.parametrize(
    ("changed", "option", "why"),
    [
        ({"sasl.kerberos.service.name": None}, "sasl.kerberos.service.name", "is required with GSSAPI"),
        ({"sasl.jaas.config": f"{MODULE} serviceName=hdfs;"}, "sasl.kerberos.service.name", "contradicts serviceName"),
        ({"sasl.jaas.config": f'{MODULE} keyTab="/x";'}, "sasl.jaas.config", "needs useKeyTab=true with a keyTab"),
        ({"sasl.jaas.config": f"{MODULE} useKeyTab=true;"}, "sasl.jaas.config", "requires keyTab"),
        ({"sasl.jaas.config": f"{MODULE} useKeyTab=true keyTab='/none';"}, "sasl.jaas.config", "/none cannot be read"),
        ({"sasl.jaas.config": f"{MODULE} useTicketCache=true tryFirstPass=true;"}, "sasl.jaas.config", "tryFirstPass"),
        ({"sasl.kerberos.keytab": "/none"}, "sasl.kerberos.keytab", "/none cannot be read"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{MODULE};"}, "sasl.jaas.config", "does not match .* PLAIN"),
    ],
)
def test_what_is_missing_or_contradictory_is_named(changed, option, why):
    given = {name: value for name, value in (GIVEN | changed).items() if value is not None}
    with pytest.raises(ConfigurationError, match=why) as caught:
        secured(given)
    assert caught.value.option == f"kafka.{option}"
