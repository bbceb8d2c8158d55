"""Reads Java's keystore format, JKS, with the standard library: certificates, and private keys with their password.

The format is that of `sun.security.provider.JavaKeyStore`. Keys are encrypted as in `KeyProtector`: with a stream that
SHA-1 derives from password and salt, which is old and weak, but common. JCEKS and BKS are not supported.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

MAGIC = b"\xfe\xed\xfe\xed"

_KEY, _CERTIFICATE = 1, 2
_DIGEST = 20  # SHA-1
_WHITENER = b"Mighty Aphrodite"
_PROTECTED = bytes.fromhex("060a2b060104012a02110101")  # the OID of KeyProtector's algorithm, in DER
_SEQUENCE, _OCTETS = 0x30, 0x04


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """An encrypted private key (PKCS #8 EncryptedPrivateKeyInfo) and its chain, which starts with its own
    certificate.
    """

    encrypted: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The entries of a file, DER-encoded."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...]


def read(data: bytes, password: str | None) -> Entries:
    """All entries. A password also verifies the file's integrity, as in Java. Raises ValueError if it is damaged."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise ValueError("the password is wrong, or the file is damaged")
    reader = _StoreReader(body)
    if reader.take(4) != MAGIC or (version := reader.number(4)) not in (1, 2):
        raise ValueError("it is not a JKS file")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(reader.number(4)):
        tag = reader.number(4)
        reader.sized(2)  # alias
        reader.take(8)  # creation date
        if tag == _KEY:
            encrypted = reader.sized(4)
            chain = tuple(reader.certificate(version) for _ in range(reader.number(4)))
            keys.append(KeyEntry(encrypted=encrypted, chain=chain))
        elif tag == _CERTIFICATE:
            certificates.append(reader.certificate(version))
        else:
            raise ValueError(f"it is damaged: unknown entry type {tag}")
    return Entries(keys=tuple(keys), certificates=tuple(certificates))


def decrypt(entry: KeyEntry, password: str) -> bytes:
    """The private key as PKCS #8 in DER. Raises ValueError if the password is wrong."""
    info, _ = _element(entry.encrypted, _SEQUENCE)
    algorithm, rest = _element(info, _SEQUENCE)
    if not algorithm.startswith(_PROTECTED):
        raise ValueError("its key is encrypted with an algorithm that is not supported")
    protected, _ = _element(rest, _OCTETS)
    salt, hidden, check = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    secret, stream, block = _utf16(password), b"", salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(byte ^ mask for byte, mask in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise ValueError("the key's password is wrong")
    return plain


class _StoreReader:
    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError("it is damaged: unexpected end of file")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def rest(self) -> bytes:
        return self._data[self._position :]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def sized(self, size: int) -> bytes:
        return self.take(self.number(size))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.sized(2)  # type: X.509
        return self.sized(4)


def _element(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first DER element in `data`, and the remaining bytes."""
    reader = _StoreReader(data)
    actual, length = reader.number(1), reader.number(1)
    if length >= 0x80:
        length = reader.number(length - 0x80)
    if actual != tag:
        raise ValueError("it is damaged: its key is not in PKCS #8 format")
    return reader.take(length), reader.rest()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
