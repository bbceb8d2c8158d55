"""The options of a schema registry's client, from the property file of Java's clients.

Java's serializers take what begins with `schema.registry.`, and for the login also the same names without that.

Source: Confluent Schema Registry, "Configure clients"; its class `SchemaRegistryClientConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.jaas import login
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.options.properties import entries
from spark_kafka_eos.options.table import say_without_effect

_PREFIX = "schema.registry."
_LOGIN = ("basic.auth.", "bearer.auth.")  # the client has these names, too
_IN_PEM = {"truststore.location": "ssl.ca.location", "keystore.location": "ssl.certificate.location"}
_BEGIN = re.compile("-----BEGIN [A-Z0-9 ]+-----")
_INLINE = {
    "truststore.certificates": "truststore.location",
    "keystore.certificate.chain": "keystore.location",
    "keystore.key": "keystore.location",
}


def registry_from_properties(path: str | PathLike[str]) -> dict[str, str]:
    """What a `client.properties` file has for the schema registry, as the argument `registry` of `from_confluent`.

    The names are those of Java's clients: `schema.registry.url`, `basic.auth.…` and `bearer.auth.…` with or without
    `schema.registry.`, `schema.registry.ssl.…` with stores in PEM. With `basic.auth.credentials.source=SASL_INHERIT`,
    the login is that of `sasl.jaas.config`. Other names of the registry have no effect and are named in a warning. The
    login is a secret: do not show it. Raises OSError; ConfigurationError for what is not Java's syntax, and for stores
    in another form.
    """
    try:
        return options_of(entries(path))
    except ValueError as error:
        raise ConfigurationError("properties", f"{path}, {error}") from None


def options_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Raises ConfigurationError."""
    given = {name: value for name, value in properties.items() if name.startswith(_LOGIN)}
    given |= {name.removeprefix(_PREFIX): value for name, value in properties.items() if name.startswith(_PREFIX)}
    if "url" not in given:
        raise ConfigurationError(f"{_PREFIX}url", "the file does not have it")
    source = given.pop("basic.auth.credentials.source", "USER_INFO").upper()
    if source == "SASL_INHERIT":
        given["basic.auth.user.info"] = _inherited(properties)
    elif source == "URL":
        given.pop("basic.auth.user.info", None)
    elif source != "USER_INFO":
        raise ConfigurationError("basic.auth.credentials.source", "must be USER_INFO, URL or SASL_INHERIT")
    options = {}
    for name, value in given.items():
        if name == "url" or name.startswith(_LOGIN):
            options[name] = value
        elif name.startswith("ssl."):
            options |= _of_tls(name.removeprefix("ssl."), value, given)
        else:
            say_without_effect(_PREFIX + name, "Confluent's client for Python does not have it")
    return options


def _inherited(properties: Mapping[str, str]) -> str:
    if "sasl.jaas.config" not in properties:
        raise ConfigurationError("basic.auth.credentials.source", "SASL_INHERIT needs sasl.jaas.config")
    try:
        inherited = login(Secret(properties["sasl.jaas.config"])).options
    except ValueError as error:
        raise ConfigurationError("sasl.jaas.config", str(error)) from None
    if not {"username", "password"} <= inherited.keys():
        raise ConfigurationError(
            "basic.auth.credentials.source", "SASL_INHERIT needs a user name and a password in sasl.jaas.config"
        )
    return f"{inherited['username'].reveal()}:{inherited['password'].reveal()}"


def _of_tls(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """A setting of TLS for the client, which takes files in PEM."""
    if name in _IN_PEM:
        kind = f"ssl.{name.partition('.')[0]}.type"
        if given.get(kind, "").upper() != "PEM":
            raise ConfigurationError(
                f"{_PREFIX}ssl.{name}",
                f"the registry's client takes files in PEM, and {_PREFIX}{kind} is not PEM",
                action="Export it: `openssl pkcs12 -in FILE -out FILE.pem`, of JKS `keytool -importkeystore` first.",
            )
        _require_lines(name, value)
        return {_IN_PEM[name]: value}
    if name in _INLINE:
        raise ConfigurationError(
            f"{_PREFIX}ssl.{name}",
            "the registry's client takes files in PEM, and no text",
            action=f"Write it to a file that driver and executors have, and set {_PREFIX}ssl.{_INLINE[name]}.",
        )
    if name == "key.password":
        return {"ssl.key.password": value}
    if name == "endpoint.identification.algorithm" and not value:
        raise ConfigurationError(f"{_PREFIX}ssl.{name}", "the registry's host name is always verified")
    if not name.endswith(("store.type", "identification.algorithm")):
        say_without_effect(f"{_PREFIX}ssl.{name}", "TLS of the registry's client is OpenSSL's, with files in PEM")
    return {}


def _require_lines(name: str, path: str) -> None:
    """Raise ConfigurationError for a file that OpenSSL does not take; Java reads PEM with any white space. One that is
    not here may be where the query runs.
    """
    try:
        content = Path(path).read_text("latin-1")
    except OSError:
        return
    begins = [(line, begin) for line in content.splitlines() for begin in _BEGIN.findall(line)]
    if not begins or any(line.rstrip() != begin for line, begin in begins):
        raise ConfigurationError(
            f"{_PREFIX}ssl.{name}",
            f"{path} is not PEM as OpenSSL writes it, and the registry's client needs that",
            action="Write each BEGIN and END alone in a line, and what is between them in lines of 64 characters.",
        )
