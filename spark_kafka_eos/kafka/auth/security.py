"""Authentication and encryption as one value, which each connection has. Most need nothing else of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_kafka_eos.kafka.auth.secret import Secret

if TYPE_CHECKING:
    from spark_kafka_eos.kafka.auth.kerberos import Kerberos
    from spark_kafka_eos.kafka.auth.tokens import TokenEndpoint, TokenProvider

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MSK_IAM = "AWS_MSK_IAM"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", MSK_IAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The validated security properties.

    Certificates and keys are either a path to a PEM file (`*_location`) or PEM text (`*_pem`), never both. Without
    `ca_*`, the system's CAs are trusted. `certificate_*` is the client's certificate chain, for mutual TLS. A PEM
    keystore contains chain and key in one file, so both locations are the same. With a token endpoint, `username`
    and `password` are the client id and secret. `tls_versions` has one version of TLS, or both.
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
    tls_versions: tuple[str, ...] = TLS_VERSIONS

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
        if self._function is not None:
            return "the AWS credentials" if self._is_aws else f"the token of {self._function}"
        return f"user {self.username!r}"

    @property
    def advice(self) -> str:
        """What to check if a broker rejects it."""
        if self.kerberos is not None:
            return "Check kafka.sasl.kerberos.service.name, and the broker's log for the reason."
        if self._is_aws:
            return "Check that the IAM policy allows kafka-cluster:Connect, and that the region is the cluster's."
        if self.token_source is not None:
            return "Check the broker's log for the reason (issuer, audience, scope, signature)."
        return "Check the user name and the password."

    @property
    def _function(self) -> str | None:
        """The function that provides tokens, if one does."""
        from spark_kafka_eos.kafka.auth.tokens import TokenProvider  # of few connections

        return self.token_source.function if isinstance(self.token_source, TokenProvider) else None

    @property
    def _is_aws(self) -> bool:
        from spark_kafka_eos.kafka.auth.msk_iam import FUNCTION  # of few connections

        return self._function == FUNCTION

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """The librdkafka configuration. It contains secrets in plain text: never log it."""
        config: dict[str, str | None] = {"security.protocol": self.protocol}
        if self.uses_sasl:
            config["sasl.mechanism"] = self.mechanism
            user, secret = ("sasl.username", "sasl.password")
            for source in (self.token_source, self.kerberos):
                config |= {} if source is None else source.librdkafka()
            if self.token_source is not None and self._function is None:
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
