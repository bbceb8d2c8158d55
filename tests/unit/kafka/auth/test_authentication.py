"""SASL exchanges with a scripted broker, and TLS material that cannot be used; secrets stay out of messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from spark_kafka_eos.errors import AuthenticationFailed, ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import handshake, sasl_exchange, tls_context
from spark_kafka_eos.options import Secret, Security
from tests.certificates import issue

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


def descriptors():
    return {path.name for path in Path("/dev/fd").iterdir()}


class Scram:
    """A broker's side of RFC 5802 that knows the password; `iterations` as it demands, `v` as it signs."""

    def __init__(self, iterations=4096, signature=None):
        self.iterations, self.signature = iterations, signature
        self.sent = []

    def __call__(self, data):
        self.sent.append(data)
        if len(self.sent) == 1:
            self.bare = data.removeprefix(b"n,,")
            nonce = self.bare.rpartition(b"r=")[2].decode()
            self.first = f"r={nonce}more,s={base64.b64encode(b'salt').decode()},i={self.iterations}".encode()
            return self.first
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"salt", self.iterations)
        said = b",".join([self.bare, self.first, data.rpartition(b",p=")[0]])
        right = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256")
        return b"v=" + base64.b64encode(right if self.signature is None else self.signature)


@pytest.mark.parametrize("iterations", [4096, 16_384, 1_000_000])
def test_a_broker_that_knows_the_password_is_trusted(iterations):
    sasl_exchange(security("SCRAM-SHA-256"), "broker:9092", Scram(iterations))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("iterations", [-1, 0, 1, 4095, 1_000_001, 2**31])
def test_a_broker_that_demands_few_or_very_many_iterations_gets_no_proof(iterations, mechanism):
    """From the proof of one iteration, the password can be guessed; those of 2^31 would take half an hour."""
    broker = Scram(iterations)
    started = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="between 4,096 and 1,000,000") as caught:
        sasl_exchange(security(mechanism), "broker:9092", broker)
    assert f"{iterations:,} iterations" in str(caught.value)
    assert len(broker.sent) == 1
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("signature", [b"", b"x" * 32])
def test_a_broker_that_signs_wrongly_does_not_know_the_password_and_is_not_trusted(signature):
    broker = Scram(signature=signature)
    with pytest.raises(AuthenticationFailed, match="sent an invalid response in the SCRAM-SHA-256 exchange"):
        sasl_exchange(security("SCRAM-SHA-256"), "broker:9092", broker)
    assert [PASSWORD.encode() in sent for sent in broker.sent] == [False, False], "it has a proof, and no password"


@pytest.mark.parametrize("chain", [1, 500], ids=["short", "longer than a pipe holds"])
@pytest.mark.parametrize("password", [None, "hunter2"])
def test_a_key_as_text_is_loaded_and_no_file_is_written(tmp_path, chain, password):
    keystore = issue(tmp_path).client_keystore.read_text()
    certificate = keystore[keystore.index("-----BEGIN CERTIFICATE") :] * chain
    key = keystore.removesuffix(certificate)
    if password is not None:
        loaded = serialization.load_pem_private_key(key.encode(), None)
        encryption = serialization.BestAvailableEncryption(password.encode())
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        key = loaded.private_bytes(pem, pkcs8, encryption).decode()

    def refuse(event, arguments):
        if watching and event == "open" and arguments[1] is not None and set(arguments[1]) & set("wax+"):
            assert isinstance(arguments[0], int), f"{arguments[0]} was opened to write"
        assert not (watching and event.startswith("tempfile.")), event

    watching = True
    sys.addaudithook(refuse)
    before, threads = descriptors(), set(threading.enumerate())  # other tests' brokers and sessions have some
    try:
        context = tls_context(
            Security(
                protocol="SSL",
                certificate_pem=certificate,
                key_pem=Secret(key),
                key_password=Secret(password) if password else None,
            )
        )
    finally:
        watching = False
    assert isinstance(context, ssl.SSLContext)
    assert descriptors() == before
    assert set(threading.enumerate()) <= threads


def test_a_key_that_does_not_belong_to_the_certificate_is_refused_and_leaves_nothing(tmp_path):
    one, other = (issue(tmp_path).client_keystore.read_text() for _ in range(2))
    before = descriptors()
    with pytest.raises(ConfigurationError, match=r"ssl\.keystore"):
        tls_context(Security(protocol="SSL", certificate_pem=one, key_pem=Secret(other)))
    assert descriptors() == before


def test_an_authority_that_is_not_a_certificate_names_the_option(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("not a certificate")
    with pytest.raises(ConfigurationError, match="ssl"):
        tls_context(Security(protocol="SSL", ca_location=str(path)))


def test_an_invalid_certificate_names_the_option_and_not_the_key():
    with pytest.raises(ConfigurationError, match="ssl") as caught:
        tls_context(Security(protocol="SSL", certificate_pem="nothing", key_pem=Secret("private nothing")))
    assert "private nothing" not in str(caught.value)


class Failing(ssl.SSLContext):
    """Every handshake ends with `error`."""

    error: OSError

    def wrap_socket(self, *_, **__):
        raise self.error


@pytest.fixture
def failed():
    """`failed(error)`: what a handshake that ends with `error` raises; its connection is closed."""

    def handshake_with(error):
        context = Failing(ssl.PROTOCOL_TLS_CLIENT)
        context.error = error
        one, other = socket.socketpair()
        with other, pytest.raises((AuthenticationFailed, OSError)) as caught:
            handshake(context, one, "broker", "broker:9093")
        assert one.fileno() == -1
        return caught.value

    return handshake_with


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "TLSV1_ALERT_UNKNOWN_CA", None])
def test_why_a_tls_handshake_failed_is_said(failed, reason):
    error = ssl.SSLError(1, "it broke")
    error.reason = reason
    said = failed(error)
    assert isinstance(said, AuthenticationFailed)
    assert f"the TLS handshake with broker:9093 failed: {reason or error}" in str(said)


def test_why_a_certificate_is_not_trusted_is_said(failed):
    error = ssl.SSLCertVerificationError(1, "verify failed")
    error.reason, error.verify_message = "CERTIFICATE_VERIFY_FAILED", "certificate has expired."
    assert "the TLS handshake with broker:9093 failed: certificate has expired. Nothing" in str(failed(error))


@pytest.mark.parametrize(
    "error",
    [
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed"),
        ssl.SSLSyscallError(5, "Some I/O error occurred"),
        ConnectionResetError(104, "Connection reset by peer"),
        BrokenPipeError(32, "Broken pipe"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_is_lost_during_the_tls_handshake_refuses_nothing(failed, error):
    """So stops a broker, and so answers one that expects no TLS."""
    lost = failed(error)
    assert isinstance(lost, OSError)
    assert str(lost) == "closed during the TLS handshake (is it a TLS listener?)"
