"""How to prove who we are and whom we talk to: Kafka's `security.*`, `sasl.*` and `ssl.*` properties as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import sasl, tls
from spark_kafka_eos.options.sasl import TokenEndpoint
from spark_kafka_eos.options.secret import Secret

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The checked outcome of the security properties.

    Trust and key material is either a path to a PEM file (`*_location`) or PEM text (`*_pem`), never both. Without
    `ca_*` the system's certificate authorities are trusted. `certificate_*` is the client's chain, for mutual TLS. A
    keystore in PEM holds chain and key in one file: both locations are then the same. With OAUTHBEARER `username` and
    `password` are the client's id and secret, with which `token_endpoint` gives out tokens.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    username: str | None = None
    password: Secret | None = None
    token_endpoint: TokenEndpoint | None = None
    ca_location: str | None = None
    ca_pem: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: Secret | None = None
    key_password: Secret | None = None
    check_hostname: bool = True

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """librdkafka's names for all this. Secrets are revealed: hand it to a client, never to a log."""
        config: dict[str, str | None] = {"security.protocol": self.protocol}
        if self.uses_sasl:
            config["sasl.mechanism"] = self.mechanism
            user, secret = ("sasl.username", "sasl.password")
            if self.token_endpoint is not None:
                config |= self.token_endpoint.librdkafka()
                user, secret = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret")
            config |= {user: self.username, secret: _revealed(self.password)}
        if self.uses_tls:
            config |= {
                "ssl.ca.location": self.ca_location,
                "ssl.ca.pem": self.ca_pem,
                "ssl.certificate.location": self.certificate_location,
                "ssl.certificate.pem": self.certificate_pem,
                "ssl.key.location": self.key_location,
                "ssl.key.pem": _revealed(self.key_pem),
                "ssl.key.password": _revealed(self.key_password),
                "ssl.endpoint.identification.algorithm": "https" if self.check_hostname else "none",
            }
        return {name: value for name, value in config.items() if value is not None}


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def security(given: Mapping[str, object]) -> Security:
    """The value behind the properties in `given` (field of the option table -> parsed value).

    Raises ConfigurationError where they contradict each other or where a part is missing; material that the protocol
    would leave unused is such a contradiction, because the connection would be less safe than its owner believes.
    """
    protocol = given.get("security_protocol", "PLAINTEXT")
    who, certificates = sasl.sasl(given), tls.trust(given) | tls.identity(given)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl.require(who, protocol)
    elif "password" in who:
        raise ConfigurationError("kafka.security.protocol", f"a user is given, but {protocol} does not log in")
    if certificates and protocol not in ("SSL", "SASL_SSL"):
        raise ConfigurationError("kafka.security.protocol", f"certificates are given, but {protocol} does not encrypt")
    check = given.get("ssl_endpoint_identification_algorithm", "https") == "https"
    return Security(protocol=protocol, check_hostname=check, **who, **certificates)  # type: ignore[arg-type]
