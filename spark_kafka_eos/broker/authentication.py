"""TLS contexts and SASL exchanges (KIP-43, KIP-84, KIP-152, KIP-368). Error messages never contain secrets."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_kafka_eos.errors import AuthenticationFailed, ConfigurationError
from spark_kafka_eos.options.security import Security

if TYPE_CHECKING:
    from spark_kafka_eos.broker.oauth import Tokens


def tls_context(security: Security) -> ssl.SSLContext:
    """The TLS context with trusted CAs and client certificate. Raises ConfigurationError if they are unusable."""
    try:
        context = ssl.create_default_context(cafile=security.ca_location, cadata=security.ca_pem)
    except (OSError, ValueError) as error:
        raise ConfigurationError("kafka.ssl.ca.location", f"contains no readable CA certificate: {error}") from None
    context.check_hostname = security.check_hostname
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


def handshake(tls: ssl.SSLContext, plain: socket.socket, host: str, where: str) -> ssl.SSLSocket:
    """The TLS connection over `plain` to a server whose certificate is valid for `host`.

    Raises AuthenticationFailed, or OSError if the network fails, after closing `plain`.
    """
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except ssl.SSLError as error:
        plain.close()
        raise AuthenticationFailed(
            f"the TLS handshake with {where} failed: {error.reason or error}",
            action="Check the port (is it a TLS listener?), the trusted CA, and the host name in the certificate.",
        ) from error


@contextmanager
def _file(location: str | None, pem: str | None) -> Iterator[str | None]:
    """The path of a PEM file. The ssl module only reads files, so text is written to a private temporary file."""
    if pem is None:
        yield location
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        yield path
    finally:
        Path(path).unlink()


def sasl_exchange(
    security: Security,
    where: str,
    exchange: Callable[[bytes], bytes],
    *,
    token_timeout: float = 30.0,
    tokens: Tokens | None = None,
) -> None:
    """Authenticate: `exchange` sends one SaslAuthenticate and returns the broker's bytes, or raises
    AuthenticationFailed.

    `where` is host:port, for messages. `token_timeout` limits the wait for a token endpoint, in seconds. `tokens`
    is for tests.
    """
    from kafka.net.sasl import get_sasl_mechanism  # on demand: loads all of kafka-python's network code

    name, username = str(security.mechanism), security.username or ""
    if name == "OAUTHBEARER":
        from spark_kafka_eos.broker.oauth import exchange_token

        if not exchange_token(security, token_timeout, exchange, tokens):
            raise AuthenticationFailed(f"{where} rejected the token of client {username!r}")
        return
    if name.startswith("SCRAM"):
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802, "saslname"
    mechanism: Any = get_sasl_mechanism(name)(
        security_protocol=security.protocol,
        sasl_mechanism=name,
        sasl_plain_username=username,
        sasl_plain_password=security.password.reveal() if security.password else "",
    )
    try:
        while not mechanism.is_done():
            mechanism.receive(exchange(mechanism.auth_bytes()))
    except (ValueError, KeyError):
        # Without the cause, because it may quote the exchange.
        raise AuthenticationFailed(
            f"{where} sent an invalid response in the {name} exchange of user {security.username!r}"
        ) from None
    if not mechanism.is_authenticated():
        raise AuthenticationFailed(f"{where} rejected user {security.username!r} ({name})")
