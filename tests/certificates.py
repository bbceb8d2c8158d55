"""A certificate authority for one test run: a broker's and a client's certificate, all in PEM."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Without `localhost`, which leads to the broker, too: its certificate is one of another name there.
_BROKER_NAMES: Sequence[x509.GeneralName] = [
    x509.DNSName("broker.test"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files in PEM. A keystore holds the key (PKCS #8, not encrypted) and its chain, as Kafka and clients take it."""

    ca: Path
    broker_keystore: Path
    client_keystore: Path


def issue(directory: Path, names: Sequence[x509.GeneralName] = _BROKER_NAMES) -> Certificates:
    """Make all of them in `directory`; good for a day. The broker has these names."""
    ca_key, client_key, broker_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    ca_name = _name("test authority")
    only_sign = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    ca = (
        _builder(ca_name, ca_name, ca_key, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(only_sign, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    broker = (
        _builder(_name("broker"), ca_name, broker_key, ca_key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    client = (
        _builder(_name("client"), ca_name, client_key, ca_key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Certificates(
        ca=_write(directory / "ca.pem", ca),
        broker_keystore=_write(directory / "broker.pem", broker, broker_key),
        client_keystore=_write(directory / "client.pem", client, client_key),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Three certificates, in PEM, and the broker's keystore, which holds the key and all but the root."""

    root: Path
    intermediate: Path
    leaf: Path
    keystore: Path


def issue_chain(directory: Path) -> Chain:
    """A broker's certificate that an intermediate authority has signed. The authorities do not say what their keys are
    for, like those that keytool makes.
    """
    root_key, middle_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root_name, middle_name = _name("root authority"), _name("intermediate authority")
    authority = x509.BasicConstraints(ca=True, path_length=None)
    root = _builder(root_name, root_name, root_key, root_key).add_extension(authority, critical=False)
    middle = _builder(middle_name, root_name, middle_key, root_key).add_extension(authority, critical=False)
    leaf = _builder(_name("broker"), middle_name, leaf_key, middle_key).add_extension(
        x509.SubjectAlternativeName(_BROKER_NAMES), critical=False
    )
    made = Chain(
        root=_write(directory / "root.pem", root.sign(root_key, hashes.SHA256())),
        intermediate=_write(directory / "intermediate.pem", middle.sign(root_key, hashes.SHA256())),
        leaf=_write(directory / "leaf.pem", signed := leaf.sign(middle_key, hashes.SHA256())),
        keystore=_write(directory / "chain.pem", signed, leaf_key),
    )
    made.keystore.write_bytes(made.keystore.read_bytes() + made.intermediate.read_bytes())
    return made


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _write(file: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | None = None) -> Path:
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    if key is not None:
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ) + pem  # fmt: skip
    file.write_bytes(pem)
    file.chmod(0o600)
    return file
