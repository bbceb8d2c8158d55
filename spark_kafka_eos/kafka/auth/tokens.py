"""Where OAUTHBEARER's tokens come from: an OAuth server's token endpoint, or a function."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_eos.kafka.auth.extensions import Extensions
from spark_kafka_eos.kafka.auth.secret import Secret

_NO_TEXT = Secret("")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """Where a client gets its tokens: the client credentials grant (RFC 6749, 4.4; KIP-768 for the options' names).

    `scope` is the requested scope. `extensions` are sent to the broker with each token (KIP-342). The server at `url`
    is verified against `ca_location` or `ca_pem` (PEM), else against the system's CAs. With `header_urlencode`, id and
    secret are form-encoded in the Authorization header, as the RFC requires but many servers do not expect.
    """

    url: str
    scope: str | None = None
    extensions: Extensions = ()
    header_urlencode: bool = False
    ca_location: str | None = None
    ca_pem: str | None = None

    def librdkafka(self) -> dict[str, str | None]:
        """The librdkafka configuration, without client id and secret."""
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.scope": self.scope,
            "sasl.oauthbearer.extensions": _joined(self.extensions),
            "https.ca.location": self.ca_location,
            "https.ca.pem": self.ca_pem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenProvider:
    """`function`, as `module:function`, is called with the text `config` and returns `(token, expiry)`: a str, and
    seconds since 1970. This is the contract of confluent-kafka's `oauth_cb`. `extensions` as in TokenEndpoint.
    """

    function: str
    config: Secret = _NO_TEXT
    extensions: Extensions = ()

    def librdkafka(self) -> dict[str, str | None]:
        """The librdkafka configuration, without the callback (`auth.oauth.librdkafka_callback`)."""
        return {"sasl.oauthbearer.extensions": _joined(self.extensions)}


def _joined(extensions: Extensions) -> str | None:
    return ",".join(f"{name}={value}" for name, value in extensions) or None
