"""How to prove who we are and whom we talk to: Kafka's `security.*`, `sasl.*` and `ssl.*` properties as one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import stores
from spark_kafka_eos.options.secret import Secret
from spark_kafka_eos.options.stores import readable

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LOGIN_MODULE = re.compile(
    r"\s*[\w.$]*\.(?P<module>\w+)\s+(?:required|requisite|sufficient|optional)\b(?P<rest>.*)", re.DOTALL
)
_LOGIN_OPTION = re.compile(r'(?P<key>\w+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))\s*', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The checked outcome of the security properties.

    Trust and key material is either a path to a PEM file (`*_location`) or PEM text (`*_pem`), never both. Without
    `ca_*` the system's certificate authorities are trusted. `certificate_*` is the client's chain, for mutual TLS. A
    keystore in PEM holds chain and key in one file: both locations are then the same.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password: Secret | None = None
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
            config |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": _revealed(self.password),
            }
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


def login(jaas: Secret) -> tuple[str, str, Secret]:
    """(module, username, password) of a `sasl.jaas.config`; ValueError, without the text, for any other."""
    match = _LOGIN_MODULE.fullmatch(jaas.reveal())
    if match is None:
        raise ValueError('expected `<login module> required username="…" password="…";`')
    module, rest = match["module"], match["rest"].strip()
    if module not in ("PlainLoginModule", "ScramLoginModule"):
        raise ValueError(f"login module {module} is not supported, only PlainLoginModule and ScramLoginModule are")
    found: dict[str, str] = {}
    while option := _LOGIN_OPTION.match(rest):
        quoted = option["quoted"]
        found[option["key"]] = option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        rest = rest[option.end() :]
    if rest.strip() != ";":
        raise ValueError("it does not end with `;` after its last option")
    if missing := {"username", "password"} - found.keys():
        raise ValueError(f"{' and '.join(sorted(missing))} missing")
    return module, found["username"], Secret(found["password"])


def security(given: Mapping[str, object]) -> Security:
    """The value behind the properties in `given` (field of the option table -> parsed value).

    Raises ConfigurationError where they contradict each other or where a part is missing; material that the protocol
    would leave unused is such a contradiction, because the connection would be less safe than its owner believes.
    """
    protocol = given.get("security_protocol", "PLAINTEXT")
    sasl, tls = _sasl(given), _trust(given) | _identity(given)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        if "mechanism" not in sasl:
            raise ConfigurationError("kafka.sasl.mechanism", f"{protocol} needs one of {', '.join(MECHANISMS)}")
        if "username" not in sasl or "password" not in sasl:
            either = "Set it, or kafka.sasl.username and kafka.sasl.password."
            raise ConfigurationError("kafka.sasl.jaas.config", f"{protocol} needs a user", action=either)
    elif "password" in sasl:
        raise ConfigurationError("kafka.security.protocol", f"a user is given, but {protocol} does not log in")
    if tls and protocol not in ("SSL", "SASL_SSL"):
        raise ConfigurationError("kafka.security.protocol", f"certificates are given, but {protocol} does not encrypt")
    check = given.get("ssl_endpoint_identification_algorithm", "https") == "https"
    return Security(protocol=protocol, check_hostname=check, **sasl, **tls)  # type: ignore[arg-type]


def _sasl(given: Mapping[str, object]) -> dict[str, object]:
    sasl = {
        field: given[f"sasl_{field}"] for field in ("mechanism", "username", "password") if f"sasl_{field}" in given
    }
    jaas = given.get("sasl_jaas_config")
    if not isinstance(jaas, Secret):
        return sasl
    if "username" in sasl or "password" in sasl:
        raise ConfigurationError("kafka.sasl.jaas.config", "given beside kafka.sasl.username or kafka.sasl.password")
    try:
        module, sasl["username"], sasl["password"] = login(jaas)
    except ValueError as error:
        raise ConfigurationError("kafka.sasl.jaas.config", str(error)) from None
    if (mechanism := sasl.get("mechanism")) and (mechanism == "PLAIN") != (module == "PlainLoginModule"):
        raise ConfigurationError("kafka.sasl.jaas.config", f"{module} does not fit kafka.sasl.mechanism {mechanism}")
    return sasl


def _trust(given: Mapping[str, object]) -> dict[str, object]:
    """Whom we trust: at most one of the four ways to say it."""
    ways = _given(given, "ssl_truststore_location", "ssl_truststore_certificates", "ssl_ca_location", "ssl_ca_pem")
    match ways:
        case ["ssl_truststore_location"]:
            location = readable("kafka.ssl.truststore.location", given["ssl_truststore_location"])
            if stores.kind("truststore", location, given.get("ssl_truststore_type")) == "PEM":
                return {"ca_location": location}
            return {"ca_pem": stores.pkcs12("truststore", location, given.get("ssl_truststore_password")).certificates}
        case ["ssl_ca_location"]:
            return {"ca_location": readable("kafka.ssl.ca.location", given["ssl_ca_location"])}
        case [way]:
            return {"ca_pem": given[way]}
        case _:
            return {}


def _identity(given: Mapping[str, object]) -> dict[str, object]:
    """Who we are, for mutual TLS: a keystore, or a certificate chain with its key."""
    store, chain = "ssl_keystore_location", "ssl_keystore_certificate_chain"
    chains = _given(given, store, chain, "ssl_certificate_location", "ssl_certificate_pem")
    keys = _given(given, "ssl_keystore_key", "ssl_key_location", "ssl_key_pem")
    password = {"key_password": given["ssl_key_password"]} if "ssl_key_password" in given else {}
    if chains == [store]:
        if keys:
            raise ConfigurationError(_name(keys[0]), f"given beside {_name(store)}, which holds a key itself")
        location = readable(_name(store), given[store])
        if stores.kind("keystore", location, given.get("ssl_keystore_type")) == "PEM":
            return {"certificate_location": location, "key_location": location} | password
        opened = stores.pkcs12("keystore", location, given.get("ssl_keystore_password"))
        return {"certificate_pem": opened.certificates, "key_pem": opened.key}
    if bool(chains) != bool(keys):
        present = (chains or keys)[0]
        missing = "key" if chains else "certificate chain"
        raise ConfigurationError(_name(present), f"given without the {missing} that belongs to it")
    found: dict[str, object] = {}
    for kind, ways in (("certificate", chains), ("key", keys)):
        for way in ways:
            if way.endswith("_location"):
                found[f"{kind}_location"] = readable(_name(way), given[way])
            else:
                found[f"{kind}_pem"] = given[way]
    return found | password if found else {}


def _name(field: str) -> str:
    return "kafka." + field.replace("_", ".")


def _given(given: Mapping[str, object], *ways: str) -> list[str]:
    """Which of several `ways` to say the same thing is used: one or none."""
    used = [way for way in ways if way in given]
    if len(used) > 1:
        raise ConfigurationError(_name(used[0]), f"given beside {_name(used[1])}, which says the same thing")
    return used
