"""Signs dead letters with the option `ledgerKey`, so that a replay believes what their headers say. Pure.

The signature is the last header, an HMAC with SHA-256 (RFC 2104) of the key, the value and all headers before it: it
cannot be moved to another record, and nothing of it can be changed. The number of replays has one of its own, because
it travels with the record through topics that others write to.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from spark_kafka_eos.dead_letters.headers import PREFIX, Header

MAC = f"{PREFIX}mac"


def signature(secret: str, key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> bytes:
    """The signature of these parts of a record, in hexadecimal."""
    mac = hmac.new(secret.encode(), b"dead letter\n", hashlib.sha256)
    parts = [key, value, *(part for name, content in headers for part in (name.encode(), content))]
    for part in parts:  # each with its length, so that no two records have the same text
        mac.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return mac.hexdigest().encode()


def claims(headers: Sequence[Header]) -> bool:
    """Whether the last header is a signature, of whoever."""
    return bool(headers) and headers[-1][0] == MAC


def is_signed(secrets: Iterable[str], key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bool:
    """Whether the last header is the signature of the record with one of these secrets."""
    return claims(headers) and matches(secrets, key, value, headers[:-1], headers[-1][1])


def fingerprint(secret: str) -> str:
    """A name of the secret that does not reveal it."""
    return hmac.new(secret.encode(), b"name of the key", hashlib.sha256).hexdigest()[:16]


def matches(
    secrets: Iterable[str], key: bytes | None, value: bytes | None, headers: Sequence[Header], mac: bytes | None
) -> bool:
    """Whether `mac` is a signature of these parts with one of the secrets."""
    return any(hmac.compare_digest(mac or b"", signature(secret, key, value, headers)) for secret in secrets)
