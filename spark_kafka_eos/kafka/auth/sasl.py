"""SASL credentials: a user with a password, a client with tokens, a Kerberos principal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from spark_kafka_eos.kafka.auth import jaas, kerberos, msk_iam, tls
from spark_kafka_eos.kafka.auth.extensions import camel_case, sasl_extension
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.auth.security import MECHANISMS, MSK_IAM
from spark_kafka_eos.kafka.auth.tokens import TokenEndpoint, TokenProvider
from spark_kafka_eos.kafka.errors import ConfigurationError

_JAAS = "kafka.sasl.jaas.config"
_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
_PROVIDER = "kafka.sasl.oauthbearer.token.provider"
_OAUTH_MODULE, _IAM_MODULE = "OAuthBearerLoginModule", "IAMLoginModule"
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
# Login module -> the start of its mechanism's name.
_MODULES = {
    "PlainLoginModule": "PLAIN",
    "ScramLoginModule": "SCRAM",
    _OAUTH_MODULE: "OAUTHBEARER",
    kerberos.MODULE: "GSSAPI",
    _IAM_MODULE: MSK_IAM,
}
_ONLY_WITH = {
    ("PLAIN", "SCRAM"): tuple((field, option) for field, option, _ in _USER),
    ("OAUTHBEARER",): (
        ("sasl_oauthbearer_token_endpoint_url", _URL),
        ("sasl_oauthbearer_token_provider", _PROVIDER),
        *((field, option) for field, option, _ in _CLIENT),
    ),
}
_ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "url",
    "sasl_oauthbearer_scope": "scope",
    "sasl_oauthbearer_extensions": "extensions",
    "sasl_oauthbearer_header_urlencode": "header_urlencode",
}
_EXTENSION = "extension_"  # JAAS: extension_logicalCluster="lkc-1"
# Strimzi's names of a client's options, which its handler reads.
_STRIMZI_URL = "oauth.token.endpoint.uri"
_OF_STRIMZI = {"oauth.client.id": "clientId", "oauth.client.secret": "clientSecret", "oauth.scope": "scope"} | {
    f"oauth.{name}": name for name in (f"ssl.truststore.{what}" for what in ("location", "password", "type"))
}
_OAUTH_NAMES = ("clientId", "clientSecret", "scope", *_OF_STRIMZI)
_STRIMZIS = re.compile(r"oauth(\.[a-z]+)+")
_OF_CLIENT = re.compile(rf"clientId|clientSecret|scope|{_EXTENSION}.*|ssl\..*")


class _Login(NamedTuple):
    """The login module and its options; without JAAS "" and none."""

    module: str
    options: Mapping[str, Secret]


def sasl(properties: Mapping[str, object]) -> dict[str, object]:
    """The fields of Security for SASL, as far as they are set; `mechanism` is the one that brokers are asked for."""
    mechanism = properties.get("sasl_mechanism")
    login = _login(properties, mechanism)
    iam = mechanism == MSK_IAM or _iam_tokens(properties)
    _refuse_without_effect(properties, MSK_IAM if iam else mechanism)
    if iam:
        hosts = (host for host, _ in properties.get("bootstrap_servers", ()))  # type: ignore[attr-defined]
        return {"mechanism": "OAUTHBEARER", "token_source": _iam(login, hosts)}
    chosen = {"mechanism": mechanism} if mechanism else {}
    if mechanism == "GSSAPI":
        return chosen | {"kerberos": kerberos.kerberos(properties, login.options)}
    if "sasl_oauthbearer_token_provider" in properties:
        return chosen | {"token_source": _provider(properties, login)}
    bearer = "OAUTHBEARER" in (mechanism, _MODULES.get(login.module))
    credentials = _credentials(properties, login, _CLIENT if bearer else _USER)
    return chosen | credentials | (_endpoint(properties, login) if bearer else {})


def require(credentials: Mapping[str, object], protocol: object) -> None:
    """Raise ConfigurationError unless `credentials` contains complete credentials."""
    if "mechanism" not in credentials:
        raise ConfigurationError("kafka.sasl.mechanism", f"is required with {protocol}: one of {', '.join(MECHANISMS)}")
    if "kerberos" in credentials or isinstance(credentials.get("token_source"), TokenProvider):
        return
    complete = "username" in credentials and "password" in credentials
    if credentials["mechanism"] != "OAUTHBEARER":
        if not complete:
            either = "Set it, or set kafka.sasl.username and kafka.sasl.password."
            raise ConfigurationError(_JAAS, f"is required with {protocol}", action=either)
        return
    if not complete:
        _, option, in_jaas = _CLIENT["username" in credentials]
        raise ConfigurationError(
            option,
            f"is required with OAUTHBEARER, unless kafka.sasl.jaas.config has {in_jaas}",
            action=f"Set it, or set {_PROVIDER}.",
        )
    if "token_source" not in credentials:
        raise ConfigurationError(
            _URL, "is required with OAUTHBEARER", action="Set it to the OAuth server's https:// URL."
        )


def _login(properties: Mapping[str, object], mechanism: object) -> _Login:
    text = properties.get("sasl_jaas_config")
    if not isinstance(text, Secret):
        return _Login("", {})
    try:
        module, options = jaas.login(text)
        if module not in _MODULES:
            named = f" {module}" if module.endswith("LoginModule") else ""  # another word may be a secret
            raise ValueError(f"the login module{named} is not supported; use one of {', '.join(_MODULES)}")
        # A client's id and secret may have properties of their own (Kafka 4.1), a user's name and password may not.
        missing = sorted({name for _, _, name in _USER} - options.keys())
        if missing and _MODULES[module] in ("PLAIN", "SCRAM"):
            raise ValueError(f"{' and '.join(missing)} missing in {module}")
        if _MODULES[module] == "SCRAM" and options.get("tokenauth", Secret("")).reveal().lower() == "true":
            raise ValueError(f"with tokenauth=true, {module} logs in with a delegation token, which is not supported")
        if module == _OAUTH_MODULE and _handler(properties).endswith("jaasclientoauthlogincallbackhandler"):
            options = {_OF_STRIMZI.get(name, name): value for name, value in options.items()}
            _refuse_unknown(name for name in options if name != _STRIMZI_URL)
        elif module == _OAUTH_MODULE and not _iam_tokens(properties):
            _refuse_unknown(options)
    except ValueError as error:
        raise ConfigurationError(_JAAS, str(error)) from None
    fits = mechanism == _MODULES[module] or str(mechanism).startswith(f"{_MODULES[module]}-")
    if mechanism and not fits:
        raise ConfigurationError(_JAAS, f"{module} does not match kafka.sasl.mechanism {mechanism}")
    return _Login(module, options)


def _refuse_unknown(options: Iterable[str]) -> None:
    """Java would ignore `identityPoolId` without `extension_`, and the broker would then refuse the token.

    A quote within a secret makes options of its parts. So a name is shown only if it is much like an option's.
    """
    for number, name in enumerate(options, 1):
        if not _OF_CLIENT.fullmatch(name):
            meant = camel_case(name)
            hint = f"; did you mean {_EXTENSION}{meant}?" if meant in ("identityPoolId", "logicalCluster") else ""
            if hint or get_close_matches(name, _OAUTH_NAMES, cutoff=0.8) or _STRIMZIS.fullmatch(name):
                raise ValueError(f"{name} is not an option of {_OAUTH_MODULE}{hint}")
            raise ValueError(
                f"option {number} is not one of {_OAUTH_MODULE}'s; its name, which may be a part of a secret, is not "
                "shown: put a backslash before a quote in a value"
            )


def _refuse_without_effect(properties: Mapping[str, object], method: object) -> None:
    """Credentials that `method`, a mechanism, would not use: the user believes that somebody else logs in."""
    for mechanisms, options in _ONLY_WITH.items():
        for field, option in options:
            if field in properties and method and not str(method).startswith(mechanisms):
                raise ConfigurationError(option, f"has no effect with {method}")
    if "sasl_oauthbearer_config" in properties and "sasl_oauthbearer_token_provider" not in properties:
        raise ConfigurationError("kafka.sasl.oauthbearer.config", f"requires {_PROVIDER}")


def _credentials(
    properties: Mapping[str, object], login: _Login, names: Iterable[tuple[str, str, str]]
) -> dict[str, object]:
    credentials: dict[str, object] = {}
    for target, (field, option, in_jaas) in zip(("username", "password"), names, strict=True):
        if field in properties and in_jaas in login.options:
            raise ConfigurationError(_JAAS, f"cannot be combined with {option}")
        if in_jaas in login.options:
            value = login.options[in_jaas]
            credentials[target] = value if target == "password" else value.reveal()
        elif field in properties:
            credentials[target] = properties[field]
    return credentials


def _iam_tokens(properties: Mapping[str, object]) -> bool:
    """Whether OAUTHBEARER's tokens are AWS's, as Java names their handler."""
    return _handler(properties).endswith("iamoauthbearerlogincallbackhandler")


def _handler(properties: Mapping[str, object]) -> str:
    return str(properties.get("sasl_login_callback_handler_class", "")).lower()


def _iam(login: _Login, hosts: Iterable[str]) -> TokenProvider:
    try:
        return msk_iam.provider(login.module, login.options, hosts)
    except ValueError as error:
        raise ConfigurationError(_JAAS, str(error)) from None


def _provider(properties: Mapping[str, object], login: _Login) -> TokenProvider:
    others = [option for field, option, _ in _CLIENT if field in properties]
    others += [_URL] if "sasl_oauthbearer_token_endpoint_url" in properties else []
    others += ["kafka.sasl.oauthbearer.scope"] if "sasl_oauthbearer_scope" in properties else []
    others += [f"{name} in {_JAAS}" for name in ("clientId", "clientSecret", "scope") if name in login.options]
    if others:
        raise ConfigurationError(_PROVIDER, f"cannot be combined with {others[0]}")
    return TokenProvider(
        function=str(properties["sasl_oauthbearer_token_provider"]),
        config=properties.get("sasl_oauthbearer_config", Secret("")),  # type: ignore[arg-type]
        extensions=properties.get("sasl_oauthbearer_extensions", _extensions(login)),  # type: ignore[arg-type]
    )


def _endpoint(properties: Mapping[str, object], login: _Login) -> dict[str, object]:
    in_jaas = login.options.get(_STRIMZI_URL)
    url = properties.get("sasl_oauthbearer_token_endpoint_url", in_jaas and in_jaas.reveal())
    if url is None:
        return {}
    allowed = properties.get("sasl_oauthbearer_allowed_urls", ())
    if not str(url).lower().startswith("https:") and url not in allowed:  # type: ignore[operator]
        raise ConfigurationError(
            _URL,
            "an http:// URL would send the client secret and the token unencrypted",
            action="Use an https:// URL. To accept this, set kafka.sasl.oauthbearer.allowed.urls to the same URL.",
        )
    scope = login.options.get("scope")
    inside: dict[str, object] = {
        "url": url,
        "scope": None if scope is None else scope.reveal(),
        "extensions": _extensions(login),
    }
    options = {name: properties[option] for option, name in _ENDPOINT.items() if option in properties}
    trusted = tls.token_endpoint_trust(properties, login.options)
    return {"token_source": TokenEndpoint(**(inside | options | trusted))}  # type: ignore[arg-type]


def _extensions(login: _Login) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(
            sasl_extension(name.removeprefix(_EXTENSION), value.reveal())
            for name, value in login.options.items()
            if name.startswith(_EXTENSION)
        )
    except ValueError as error:
        raise ConfigurationError(_JAAS, str(error)) from None
