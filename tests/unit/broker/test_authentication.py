"""SASL exchanges with a scripted broker, and TLS material that cannot be used; secrets stay out of messages."""

from __future__ import annotations

import pytest

from spark_kafka_eos.broker.authentication import sasl_exchange, tls_context
from spark_kafka_eos.errors import AuthenticationFailed, ConfigurationError
from spark_kafka_eos.options import Secret, Security

PASSWORD = "hunter2,with=signs"


def security(mechanism, username="ann"):
    return Security(
        protocol="SASL_PLAINTEXT",
        mechanism=mechanism,
        username=username,
        password=Secret(PASSWORD),
        check_hostname=True,
    )


def test_plain_sends_user_and_password_once():
    sent = []

    def accept(data):
        sent.append(data)
        return b""

    sasl_exchange(security("PLAIN"), "broker:9092", accept)
    assert sent == [f"ann\0ann\0{PASSWORD}".encode()]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_escapes_the_user_name_and_never_sends_the_password(mechanism):
    sent = []

    def refuse(data):
        sent.append(data)
        raise AuthenticationFailed("refused")

    with pytest.raises(AuthenticationFailed):
        sasl_exchange(security(mechanism, username="a=n,n"), "broker:9092", refuse)
    assert sent[0].startswith(b"n,,n=a=3Dn=2Cn,r=")


@pytest.mark.parametrize("answer", [b"nonsense", b"r=stolen,s=c2FsdA==,i=4096", b"r=x", b"\xff"])
def test_a_broker_that_answers_scram_wrongly_is_not_trusted(answer):
    with pytest.raises(AuthenticationFailed, match="broker:9092 .* user 'ann'") as caught:
        sasl_exchange(security("SCRAM-SHA-256"), "broker:9092", lambda _: answer)
    assert PASSWORD not in f"{caught.value}{caught.value!r}"
    assert caught.value.__cause__ is None


def test_an_authority_that_is_no_certificate_names_the_option(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("not a certificate")
    with pytest.raises(ConfigurationError, match="ssl"):
        tls_context(Security(protocol="SSL", ca_location=str(path)))


def test_a_certificate_that_is_none_names_the_option_and_not_the_key():
    with pytest.raises(ConfigurationError, match="ssl") as caught:
        tls_context(Security(protocol="SSL", certificate_pem="nothing", key_pem=Secret("private nothing")))
    assert "private nothing" not in str(caught.value)
