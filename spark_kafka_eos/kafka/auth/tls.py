"""Certificates for TLS: Kafka's `ssl.*` properties, under Java's and librdkafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spark_kafka_eos.kafka.auth import pem, stores
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.auth.stores import readable
from spark_kafka_eos.kafka.errors import ConfigurationError


def versions(properties: Mapping[str, object]) -> dict[str, object]:
    """The versions of TLS that may be used, if they are set."""
    return {"tls_versions": properties["ssl_enabled_protocols"]} if "ssl_enabled_protocols" in properties else {}


def trust(properties: Mapping[str, object]) -> dict[str, object]:
    """The trusted CAs: at most one of four ways to set them."""
    ways = _options_set(
        properties, "ssl_truststore_location", "ssl_truststore_certificates", "ssl_ca_location", "ssl_ca_pem"
    )
    match ways:
        case ["ssl_truststore_location"]:
            location = readable("kafka.ssl.truststore.location", properties["ssl_truststore_location"])
            kind = stores.kind("truststore", location, properties.get("ssl_truststore_type"))
            if kind == "PEM":
                text = Path(location).read_text("latin-1")
                if pem.is_in_lines(text):  # OpenSSL can read the file
                    return {"ca_location": location}
                return {"ca_pem": pem.blocks(text, "CERTIFICATE")}  # without a key, which this may be the keystore of
            password = properties.get("ssl_truststore_password")
            return {"ca_pem": stores.material("truststore", kind, location, password).certificates}
        case ["ssl_ca_location"]:
            return {"ca_location": readable("kafka.ssl.ca.location", properties["ssl_ca_location"])}
        case [way]:
            return {"ca_pem": _in_lines(properties[way])}
        case _:
            return {}


def token_endpoint_trust(properties: Mapping[str, object], jaas: Mapping[str, Secret]) -> dict[str, object]:
    """The trusted CAs for the OAuth server: librdkafka's `https.ca.*`, or `ssl.truststore.*` inside JAAS."""
    match _options_set(properties, "https_ca_location", "https_ca_pem"):
        case ["https_ca_location"]:
            return {"ca_location": readable("kafka.https.ca.location", properties["https_ca_location"])}
        case [_]:
            return {"ca_pem": _in_lines(properties["https_ca_pem"])}
        case _:
            store = "ssl.truststore."
            inside = ((name.replace(".", "_"), value) for name, value in jaas.items() if name.startswith(store))
            return trust({name: value if name.endswith("password") else value.reveal() for name, value in inside})


def identity(properties: Mapping[str, object]) -> dict[str, object]:
    """The client certificate, for mutual TLS: a keystore, or a certificate chain with its key."""
    store, chain = "ssl_keystore_location", "ssl_keystore_certificate_chain"
    chains = _options_set(properties, store, chain, "ssl_certificate_location", "ssl_certificate_pem")
    keys = _options_set(properties, "ssl_keystore_key", "ssl_key_location", "ssl_key_pem")
    password = {"key_password": properties["ssl_key_password"]} if "ssl_key_password" in properties else {}
    if chains == [store]:
        if keys:
            raise ConfigurationError(_name(keys[0]), f"cannot be combined with {_name(store)}, which contains the key")
        location = readable(_name(store), properties[store])
        what = stores.kind("keystore", location, properties.get("ssl_keystore_type"))
        if what == "PEM":
            text = stores.in_pem(location)
            if pem.is_in_lines(text):
                return {"certificate_location": location, "key_location": location} | password
            parts = {"certificate_pem": pem.blocks(text, "CERTIFICATE"), "key_pem": Secret(pem.blocks(text, "KEY"))}
            return parts | password
        opened = stores.material(
            "keystore", what, location, properties.get("ssl_keystore_password"), properties.get("ssl_key_password")
        )
        return {"certificate_pem": opened.certificates, "key_pem": opened.key}
    if bool(chains) != bool(keys):
        present = (chains or keys)[0]
        missing = "key" if chains else "certificate chain"
        raise ConfigurationError(_name(present), f"requires the {missing} that belongs to it")
    files: dict[str, object] = {}
    for kind, ways in (("certificate", chains), ("key", keys)):
        for way in ways:
            if way.endswith("_location"):
                files[f"{kind}_location"] = readable(_name(way), properties[way])
            else:
                files[f"{kind}_pem"] = _in_lines(properties[way])
    return files | password if files else {}


def _in_lines(text: object) -> str | Secret:
    return Secret(pem.in_lines(text.reveal())) if isinstance(text, Secret) else pem.in_lines(str(text))


def _name(field: str) -> str:
    return "kafka." + field.replace("_", ".")


def _options_set(properties: Mapping[str, object], *ways: str) -> list[str]:
    """Which of the equivalent options `ways` is set: one or none."""
    used = [way for way in ways if way in properties]
    if len(used) > 1:
        raise ConfigurationError(
            _name(used[0]), f"cannot be combined with {_name(used[1])}, which has the same meaning"
        )
    return used
