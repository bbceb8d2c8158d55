"""Java's truststores and keystores as Python's and OpenSSL's clients can use them: PEM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.secret import Secret

Store = Literal["truststore", "keystore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pkcs12:
    """What a PKCS12 file holds, as PEM: its certificates (the key's own first) and the key, if there is one."""

    certificates: str
    key: Secret | None


def readable(option: str, location: object) -> str:
    """`location`, if the driver can open it: better said here than by a TLS error later."""
    try:
        with Path(str(location)).open("rb"):
            return str(location)
    except OSError as error:
        raise ConfigurationError(option, f"{location!s} cannot be read: {error.strerror}") from None


def kind(store: Store, location: str, declared: object) -> Literal["PEM", "PKCS12"]:
    """What the file is, by how it begins. `declared` must agree, save that Java takes PKCS12 for JKS too."""
    start = Path(location).read_bytes()[:4]
    if start in (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"):  # JKS, JCEKS
        raise ConfigurationError(
            f"kafka.ssl.{store}.location",
            f"{location} is a JKS file, which only Java reads",
            action=f"Convert it: keytool -importkeystore -srckeystore {location} -destkeystore {store}.p12 "
            f"-deststoretype PKCS12, then openssl pkcs12 -in {store}.p12 -out {store}.pem, and use {store}.pem.",
        )
    found: Literal["PEM", "PKCS12"] = "PKCS12" if start[:1] == b"\x30" else "PEM"  # DER begins with a sequence
    if declared is not None and declared != found and (declared, found) != ("JKS", "PKCS12"):
        raise ConfigurationError(f"kafka.ssl.{store}.type", f"{location} looks like {found}, not {declared}")
    return found


def pkcs12(store: Store, location: str, password: object) -> Pkcs12:
    """Open a PKCS12 file. Needs the extra `pkcs12` (the package cryptography); ConfigurationError without it."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigurationError(
            f"kafka.ssl.{store}.location",
            f"{location} is a PKCS12 file, and the package cryptography, which opens it, is missing",
            action="Install spark-kafka-eos[pkcs12], or convert the file: "
            f"openssl pkcs12 -in {location} -out {store}.pem",
        ) from None
    secret = password.reveal().encode() if isinstance(password, Secret) else None
    try:
        opened = load_pkcs12(Path(location).read_bytes(), secret)
    except ValueError as error:
        raise ConfigurationError(f"kafka.ssl.{store}.password", f"{location} cannot be opened: {error}") from None
    held = ([opened.cert] if opened.cert else []) + list(opened.additional_certs)
    if not held or (store == "keystore" and opened.key is None):
        lacking = "certificate" if not held else "private key"
        raise ConfigurationError(f"kafka.ssl.{store}.location", f"{location} holds no {lacking}")
    pem = serialization.Encoding.PEM
    key = opened.key and opened.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pkcs12(
        certificates="".join(entry.certificate.public_bytes(pem).decode() for entry in held),
        key=Secret(key.decode()) if key else None,
    )
