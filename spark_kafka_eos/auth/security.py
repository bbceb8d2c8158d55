"""Authentication and encryption: Kafka's `security.*`, `sasl.*` and `ssl.*` properties as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.auth import msk_iam, sasl, tls
from spark_kafka_eos.auth.kerberos import Kerberos
from spark_kafka_eos.auth.secret import Secret
from spark_kafka_eos.auth.tokens import TokenEndpoint, TokenProvider
from spark_kafka_eos.errors import ConfigurationError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The validated security properties.

    Certificates and keys are either a path to a PEM file (`*_location`) or PEM text (`*_pem`), never both. Without
    `ca_*`, the system's CAs are trusted. `certificate_*` is the client's certificate chain, for mutual TLS. A PEM
    keystore contains chain and key in one file, so both locations are the same. With a token endpoint, `username`
    and `password` are the client id and secret.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None = None
    username: str | None = None
    password: Secret | None = None
    token_source: TokenEndpoint | TokenProvider | None = None
    kerberos: Kerberos | None = None
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

    @property
    def who(self) -> str:
        """Who logs in, for messages."""
        if self.kerberos is not None:
            return (
                f"principal {self.kerberos.principal!r}" if self.kerberos.principal else "the Kerberos ticket's owner"
            )
        if isinstance(self.token_source, TokenProvider):
            aws = self.token_source.function == msk_iam.FUNCTION
            return "the AWS credentials" if aws else f"the token of {self.token_source.function}"
        return f"user {self.username!r}"

    @property
    def advice(self) -> str:
        """What to check if a broker rejects it."""
        if self.kerberos is not None:
            return "Check kafka.sasl.kerberos.service.name, and the broker's log for the reason."
        if isinstance(self.token_source, TokenProvider) and self.token_source.function == msk_iam.FUNCTION:
            return "Check that the IAM policy allows kafka-cluster:Connect, and that the region is the cluster's."
        if self.token_source is not None:
            return "Check the broker's log for the reason (issuer, audience, scope, signature)."
        return "Check the user name and the password."

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """The librdkafka configuration. It contains secrets in plain text: never log it."""
        config: dict[str, str | None] = {"security.protocol": self.protocol}
        if self.uses_sasl:
            config["sasl.mechanism"] = self.mechanism
            user, secret = ("sasl.username", "sasl.password")
            for source in (self.token_source, self.kerberos):
                config |= {} if source is None else source.librdkafka()
            if isinstance(self.token_source, TokenEndpoint):
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
    """Build from the properties in `given` (field of the option table -> parsed value).

    Raises ConfigurationError if they conflict or are incomplete. Credentials or certificates that the protocol would
    not use count as a conflict, because the connection would be less secure than the user believes.
    """
    protocol = given.get("security_protocol", "PLAINTEXT")
    who, certificates = sasl.sasl(given), tls.trust(given) | tls.identity(given)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl.require(who, protocol)
    elif who.keys() & {"password", "token_source", "kerberos"}:
        raise ConfigurationError(
            "kafka.security.protocol", f"credentials are set, but {protocol} does not authenticate"
        )
    if certificates and protocol not in ("SSL", "SASL_SSL"):
        raise ConfigurationError("kafka.security.protocol", f"certificates are set, but {protocol} does not use TLS")
    check = given.get("ssl_endpoint_identification_algorithm", "https") == "https"
    return Security(protocol=protocol, check_hostname=check, **who, **certificates)  # type: ignore[arg-type]
