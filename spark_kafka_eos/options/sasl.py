"""SASL credentials: a user with a password, or a client with tokens from an OAuth server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import jaas, parsers, tls
from spark_kafka_eos.options.secret import Secret

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_JAAS = "kafka.sasl.jaas.config"
_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
# Credentials: field of the option table, name of the option, name in JAAS.
_USER = (("sasl_username", "kafka.sasl.username", "username"), ("sasl_password", "kafka.sasl.password", "password"))
_CLIENT = tuple(
    (
        f"sasl_oauthbearer_client_credentials_client_{what}",
        f"kafka.sasl.oauthbearer.client.credentials.client.{what}",
        f"client{what.title()}",
    )
    for what in ("id", "secret")
)
_MODULES = {"PlainLoginModule": _USER, "ScramLoginModule": _USER, "OAuthBearerLoginModule": _CLIENT}
_ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "url",
    "sasl_oauthbearer_scope": "scope",
    "sasl_oauthbearer_extensions": "extensions",
    "sasl_oauthbearer_header_urlencode": "header_urlencode",
}
_EXTENSION = "extension_"  # JAAS: extension_logicalCluster="lkc-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """Where a client gets its tokens: the client credentials grant (RFC 6749, 4.4; KIP-768 for the options' names).

    `scope` is the requested scope. `extensions` are sent to the broker with each token (KIP-342). The server at `url`
    is verified against `ca_location` or `ca_pem` (PEM), else against the system's CAs. With `header_urlencode`, id and
    secret are form-encoded in the Authorization header, as the RFC requires but many servers do not expect.
    """

    url: str
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    header_urlencode: bool = False
    ca_location: str | None = None
    ca_pem: str | None = None

    def librdkafka(self) -> dict[str, str | None]:
        """The librdkafka configuration, without client id and secret."""
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.scope": self.scope,
            "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in self.extensions) or None,
            "https.ca.location": self.ca_location,
            "https.ca.pem": self.ca_pem,
        }


def sasl(given: Mapping[str, object]) -> dict[str, object]:
    """The fields `mechanism`, `username`, `password` and `token_endpoint` of Security, as far as they are set."""
    mechanism = given.get("sasl_mechanism")
    credentials = {"mechanism": mechanism} if mechanism else {}
    module, login = _login(given, mechanism)
    bearer = "OAUTHBEARER" in (mechanism, _mechanism_of(module))
    for target, (field, option, in_jaas) in zip(("username", "password"), _CLIENT if bearer else _USER, strict=True):
        if field in given and in_jaas in login:
            raise ConfigurationError(_JAAS, f"cannot be combined with {option}")
        if in_jaas in login:
            credentials[target] = login[in_jaas] if target == "password" else login[in_jaas].reveal()
        elif field in given:
            credentials[target] = given[field]
    if "sasl_oauthbearer_token_endpoint_url" in given and mechanism and not bearer:
        raise ConfigurationError(_URL, f"has no effect with {mechanism}")
    return credentials | (_token_endpoint(given, login) if bearer else {})


def require(credentials: Mapping[str, object], protocol: object) -> None:
    """Raise ConfigurationError unless `credentials` contains complete credentials."""
    if "mechanism" not in credentials:
        raise ConfigurationError("kafka.sasl.mechanism", f"is required with {protocol}: one of {', '.join(MECHANISMS)}")
    complete = "username" in credentials and "password" in credentials
    if credentials["mechanism"] != "OAUTHBEARER":
        if not complete:
            either = "Set it, or set kafka.sasl.username and kafka.sasl.password."
            raise ConfigurationError(_JAAS, f"is required with {protocol}", action=either)
        return
    if not complete:
        _, option, in_jaas = _CLIENT["username" in credentials]
        raise ConfigurationError(option, f"is required with OAUTHBEARER, unless kafka.sasl.jaas.config has {in_jaas}")
    if "token_endpoint" not in credentials:
        raise ConfigurationError(
            _URL, "is required with OAUTHBEARER", action="Set it to the OAuth server's https:// URL."
        )


def _login(given: Mapping[str, object], mechanism: object) -> tuple[str, Mapping[str, Secret]]:
    """The login module and its options; ("", {}) without JAAS."""
    text = given.get("sasl_jaas_config")
    if not isinstance(text, Secret):
        return "", {}
    try:
        module, options = jaas.login(text)
        if module not in _MODULES:
            raise ValueError(f"login module {module} is not supported; use one of {', '.join(_MODULES)}")
        # A client's id and secret may have properties of their own (Kafka 4.1), a user's name and password may not.
        missing = sorted({name for _, _, name in _MODULES[module]} - options.keys())
        if missing and _MODULES[module] is _USER:
            raise ValueError(f"{' and '.join(missing)} missing in {module}")
    except ValueError as error:
        raise ConfigurationError(_JAAS, str(error)) from None
    if mechanism and _mechanism_of(module) != str(mechanism).split("-", 1)[0]:
        raise ConfigurationError(_JAAS, f"{module} does not match kafka.sasl.mechanism {mechanism}")
    return module, options


def _mechanism_of(module: str) -> str:
    """`PlainLoginModule` -> `PLAIN`, with which the mechanism's name starts."""
    return module.removesuffix("LoginModule").upper()


def _token_endpoint(given: Mapping[str, object], login: Mapping[str, Secret]) -> dict[str, object]:
    if "sasl_oauthbearer_token_endpoint_url" not in given:
        return {}
    url, allowed = given["sasl_oauthbearer_token_endpoint_url"], given.get("sasl_oauthbearer_allowed_urls", ())
    if not str(url).lower().startswith("https:") and url not in allowed:  # type: ignore[operator]
        raise ConfigurationError(
            _URL,
            "an http:// URL would send the client secret and the token unencrypted",
            action="Use an https:// URL. To accept this, set kafka.sasl.oauthbearer.allowed.urls to the same URL.",
        )
    try:
        inside: dict[str, object] = {
            "scope": login["scope"].reveal() if "scope" in login else None,
            "extensions": tuple(
                parsers.sasl_extension(name.removeprefix(_EXTENSION), value.reveal())
                for name, value in login.items()
                if name.startswith(_EXTENSION)
            ),
        }
    except ValueError as error:
        raise ConfigurationError(_JAAS, str(error)) from None
    said = {name: given[option] for option, name in _ENDPOINT.items() if option in given}
    trusted = tls.token_endpoint_trust(given, login)
    return {"token_endpoint": TokenEndpoint(**(inside | said | trusted))}  # type: ignore[arg-type]
