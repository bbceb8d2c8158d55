"""Converts Java's truststores and keystores to PEM, which Python and OpenSSL can use."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark_kafka_eos.kafka.auth import jks, pem
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.errors import ConfigurationError

Store = Literal["truststore", "keystore"]
StoreType = Literal["PEM", "PKCS12", "JKS"]

_JCEKS = b"\xce\xce\xce\xce"
# The types of a PKCS12 file's keys, not encrypted and encrypted (RFC 7292, 1.2.840.113549.1.12.10.1.1 and .2). keytool
# and OpenSSL encrypt each key, but not what says that it is one.
_KEY_BAGS = [bytes.fromhex("060b2a864886f70d010c0a01") + kind for kind in (b"\1", b"\2")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The contents of a file as PEM: certificates (that of the key first) and the key, if there is one."""

    certificates: str
    key: Secret | None


def readable(option: str, location: object) -> str:
    """`location`, if the driver can open it; otherwise this error is clearer than a TLS error later."""
    try:
        with Path(str(location)).open("rb"):
            return str(location)
    except OSError as error:
        raise ConfigurationError(option, f"{location!s} cannot be read: {error.strerror}") from None


def kind(store: Store, location: str, declared: object) -> StoreType:
    """The file's type, by its first bytes. `declared` must match, but Java accepts PKCS12 as JKS and vice versa."""
    start = Path(location).read_bytes()[:4]
    if start == _JCEKS:
        raise ConfigurationError(
            f"kafka.ssl.{store}.location",
            f"{location} is a JCEKS file, which only Java can read",
            action=f"Convert it: keytool -importkeystore -srckeystore {location} -srcstoretype JCEKS "
            f"-destkeystore {store}.p12 -deststoretype PKCS12",
        )
    store_type: StoreType = "PEM"
    if start == jks.MAGIC:
        store_type = "JKS"
    elif start[:1] == b"\x30":  # DER begins with a sequence
        store_type = "PKCS12"
    if declared is not None and declared != store_type and "PEM" in (declared, store_type):
        raise ConfigurationError(f"kafka.ssl.{store}.type", f"{location} looks like {store_type}, not {declared}")
    return store_type


def material(
    store: Store, store_type: StoreType, location: str, password: object, key_password: object = None
) -> Material:
    """Open a PKCS12 or JKS file. `key_password` is for JKS only and defaults to the store's, as in Java."""
    if store_type == "PKCS12":
        return pkcs12(store, location, password)
    return java(store, location, password, key_password)


def java(store: Store, location: str, password: object, key_password: object = None) -> Material:
    """Open a JKS file. Without its password, a truststore is read without an integrity check, as in Java."""
    try:
        entries = jks.read(Path(location).read_bytes(), _revealed(password))
    except ValueError as error:
        raise ConfigurationError(f"kafka.ssl.{store}.password", f"{location} cannot be opened: {error}") from None
    if store == "truststore":
        trusted = [*entries.certificates, *(entry.chain[0] for entry in entries.keys if entry.chain)]
        if not trusted:
            raise ConfigurationError("kafka.ssl.truststore.location", f"{location} contains no certificate")
        return Material(certificates=_pem("CERTIFICATE", trusted), key=None)
    if len(entries.keys) != 1 or not entries.keys[0].chain:
        raise _wrong_number_of_keys(location, len(entries.keys))
    (entry,) = entries.keys
    try:
        key = jks.decrypt(entry, _revealed(key_password) or _revealed(password) or "")
    except ValueError as error:
        raise ConfigurationError("kafka.ssl.key.password", f"the key in {location} cannot be read: {error}") from None
    return Material(certificates=_pem("CERTIFICATE", entry.chain), key=Secret(_pem("PRIVATE KEY", [key])))


def in_pem(location: str) -> str:
    """The text of a PEM keystore. Raises ConfigurationError if it has several keys, as Kafka's client does."""
    text = Path(location).read_text("latin-1")
    if (keys := pem.private_keys(text)) > 1:
        raise _wrong_number_of_keys(location, keys)
    return text


def _wrong_number_of_keys(location: str, keys: int) -> ConfigurationError:
    return ConfigurationError(
        "kafka.ssl.keystore.location",
        f"{location} contains {keys or 'no'} private key{'s' if keys > 1 else ''}",
        action="Use a keystore with one key and its chain; keytool -importkeystore -srcalias … copies an entry.",
    )


def _revealed(password: object) -> str | None:
    return password.reveal() if isinstance(password, Secret) else None


def _pem(label: str, blocks: Iterable[bytes]) -> str:
    """RFC 7468."""
    texts = ("\n".join(textwrap.wrap(base64.b64encode(block).decode(), 64)) for block in blocks)
    return "".join(f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n" for text in texts)


def pkcs12(store: Store, location: str, password: object) -> Material:
    """Open a PKCS12 file. Needs the extra `pkcs12` (package cryptography), else raises ConfigurationError."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigurationError(
            f"kafka.ssl.{store}.location",
            f"{location} is a PKCS12 file, which needs the package cryptography",
            action="Install spark-kafka-eos[pkcs12], or convert the file: "
            f"openssl pkcs12 -in {location} -out {store}.pem",
        ) from None
    secret, content = _revealed(password), Path(location).read_bytes()
    try:
        opened = load_pkcs12(content, secret.encode() if secret is not None else None)
    except ValueError as error:
        raise ConfigurationError(f"kafka.ssl.{store}.password", f"{location} cannot be opened: {error}") from None
    if store == "keystore" and (keys := sum(map(content.count, _KEY_BAGS))) > 1:  # of which the package gives the first
        raise _wrong_number_of_keys(location, keys)
    entries = ([opened.cert] if opened.cert else []) + list(opened.additional_certs)
    if not entries or (store == "keystore" and opened.key is None):
        lacking = "certificate" if not entries else "private key"
        raise ConfigurationError(f"kafka.ssl.{store}.location", f"{location} contains no {lacking}")
    encoding = serialization.Encoding.PEM
    key = opened.key and opened.key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Material(
        certificates="".join(entry.certificate.public_bytes(encoding).decode() for entry in entries),
        key=Secret(key.decode()) if key else None,
    )
