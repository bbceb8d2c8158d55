"""TLS contexts and SASL exchanges (KIP-43, KIP-84, KIP-152, KIP-368). Error messages never contain secrets."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from spark_kafka_eos.kafka.auth.security import TLS_VERSIONS, Security
from spark_kafka_eos.kafka.auth.trust import trusting
from spark_kafka_eos.kafka.errors import AuthenticationFailed, ConfigurationError

if TYPE_CHECKING:
    from spark_kafka_eos.kafka.auth.oauth import Tokens

# RFC 7677, section 4; as the Java client. The maximum is far above that of Kafka's brokers (16,384) and takes half a
# second.
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 4_096, 1_000_000

# What a handshake ends with if only the connection was lost.
_LOST = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

_ANY = ssl.TLSVersion.MAXIMUM_SUPPORTED
_VERSIONS = {
    ("TLSv1.2",): (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
    ("TLSv1.3",): (ssl.TLSVersion.TLSv1_3, _ANY),
    TLS_VERSIONS: (ssl.TLSVersion.TLSv1_2, _ANY),
}


def tls_context(security: Security) -> ssl.SSLContext:
    """The TLS context with trusted CAs and client certificate. Raises ConfigurationError if they are unusable."""
    context = trusting("kafka.ssl.ca.location", security.ca_location, security.ca_pem)
    context.check_hostname = security.check_hostname
    context.minimum_version, context.maximum_version = _VERSIONS[security.tls_versions]
    password = security.key_password.reveal() if security.key_password else None
    try:
        with (
            _file(security.certificate_location, security.certificate_pem) as certificate,
            _file(security.key_location, security.key_pem.reveal() if security.key_pem else None) as key,
        ):
            if certificate is not None:
                # A callback even without a password, because OpenSSL would otherwise prompt for it on the terminal.
                context.load_cert_chain(certificate, key, lambda: password or "")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            "kafka.ssl.keystore.location", f"cannot load the certificate and key (wrong key password?): {error}"
        ) from None
    return context


def handshake(tls: ssl.SSLContext, plain: socket.socket, host: str, address: str) -> ssl.SSLSocket:
    """The TLS connection over `plain` to a server whose certificate is valid for `host`.

    Raises AuthenticationFailed, or OSError if the network fails, after closing `plain`.
    """
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except _LOST as error:
        plain.close()
        # A broker that stops does this as well as one that expects no TLS, so it is no refusal.
        raise ConnectionError("closed during the TLS handshake (is it a TLS listener?)") from error
    except ssl.SSLError as error:
        plain.close()
        why = getattr(error, "verify_message", "").rstrip(".") or error.reason or error
        raise AuthenticationFailed(
            f"the TLS handshake with {address} failed: {why}",
            action="Check the port (is it a TLS listener?), the trusted CA, and the host name in the certificate.",
        ) from error


def rejected(error: BaseException | None) -> bool:
    """Whether the server ended the TLS connection with an alert, as it does if it does not accept our certificate."""
    return isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")


@contextmanager
def _file(location: str | None, pem: str | None) -> Iterator[str | None]:
    """The path of a PEM file. The ssl module only reads files, so text is passed through a pipe, which has a path in
    /dev/fd and never touches a disk. Such a path can be read once.
    """
    if pem is None:
        yield location
        return
    reading, writing = os.pipe()
    # On a thread, because a long chain does not fit into the pipe.
    writer = threading.Thread(target=_write_all, args=(writing, pem.encode()))
    writer.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)  # ends the writer, if nobody has read everything
        writer.join()


def _write_all(descriptor: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(descriptor, "wb") as pipe:
        pipe.write(data)


def sasl_exchange(
    security: Security,
    address: str,
    exchange: Callable[[bytes], bytes],
    *,
    token_timeout: float = 30.0,
    tokens: Tokens | None = None,
) -> None:
    """Authenticate: `exchange` sends one SaslAuthenticate and returns the broker's bytes, or raises
    AuthenticationFailed.

    `address` is the broker's host:port. `token_timeout` limits the wait for a token endpoint, in seconds. `tokens`
    is for tests.
    """
    name, username = str(security.mechanism), security.username or ""
    if name == "OAUTHBEARER":
        from spark_kafka_eos.kafka.auth.oauth import exchange_token

        if not exchange_token(security, token_timeout, exchange, tokens):
            raise AuthenticationFailed(f"{address} rejected {security.who} ({name})", action=security.advice)
        return
    if security.kerberos is not None:
        from spark_kafka_eos.kafka.auth.gssapi import exchange_tickets

        exchange_tickets(security.kerberos, address, exchange)
        return
    from kafka.net.sasl import get_sasl_mechanism  # on demand: loads all of kafka-python's network code

    if name.startswith("SCRAM"):
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802, "saslname"
    mechanism: Any = get_sasl_mechanism(name)(
        security_protocol=security.protocol,
        sasl_mechanism=name,
        sasl_plain_username=username,
        sasl_plain_password=security.password.reveal() if security.password else "",
    )
    iterations = 0
    try:
        while not mechanism.is_done():
            answer = exchange(mechanism.auth_bytes())
            if name.startswith("SCRAM") and not iterations:
                iterations = _iterations(answer, address, name)
            mechanism.receive(answer)
    except (ValueError, KeyError):
        # Without the cause, because it may quote the exchange.
        raise AuthenticationFailed(
            f"{address} sent an invalid response in the {name} exchange of user {security.username!r}"
        ) from None
    if not mechanism.is_authenticated():
        raise AuthenticationFailed(f"{address} rejected user {security.username!r} ({name})")


def _iterations(first: bytes, address: str, name: str) -> int:
    """The iteration count in the server's first message. Raises AuthenticationFailed if it is too low or too high,
    ValueError or KeyError if there is none.

    With few iterations, who pretends to be the broker could guess the password from our proof. Many cost CPU time.
    """
    count = int(dict(pair.split("=", 1) for pair in first.decode().split(","))["i"])
    if not _FEWEST_ITERATIONS <= count <= _MOST_ITERATIONS:
        raise AuthenticationFailed(
            f"{address} requests {count:,} iterations of {name}, which is not between {_FEWEST_ITERATIONS:,} and "
            f"{_MOST_ITERATIONS:,}",
            action="Create the user's credentials again with a number in this range (Kafka's default is "
            f"{_FEWEST_ITERATIONS:,}), if this is your broker.",
        )
    return count
