"""Keeps secrets out of logs, error messages and query plans."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_kafka_eos.kafka.errors import ConfigurationError

_PLAIN_KEY = re.compile(r"-----BEGIN (?!ENCRYPTED )[A-Z ]*PRIVATE KEY-----(?!\s*Proc-Type: *4, *ENCRYPTED)")


_SHORTEST_KEY = 16


class Secret:
    """Text that is shown as `***` in repr, str and format; only `reveal()` returns it. It pickles, for the
    executors.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text: Final = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


def keys(text: str) -> tuple[Secret, ...]:
    """Keys separated by commas, each as text, as `env:NAME` of an environment variable, or as `file:PATH`.

    Raises ValueError, which never contains a key.
    """
    secrets = []
    for entry in text.split(","):
        kind, _, name = entry.strip().partition(":")
        if kind == "env":
            key = os.environ.get(name, "")
        elif kind == "file":
            try:
                key = Path(name).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ValueError(f"the file {name!r} cannot be read: {error.strerror}") from None
            except UnicodeDecodeError:
                raise ValueError(f"the file {name!r} contains no text in UTF-8") from None
        else:
            key, name = entry.strip(), "the text"
        if len(key) < _SHORTEST_KEY:
            raise ValueError(f"a key has at least {_SHORTEST_KEY} characters, but {name} has {len(key)}")
        secrets.append(Secret(key))
    return tuple(secrets)


def refuse_plain_keys(options: Mapping[str, str]) -> None:
    """Raise ConfigurationError if an option that passes through Spark contains an unencrypted private key.

    A stream's `explain` shows options, except where `spark.redaction.regex` matches name or value. By default it
    matches passwords, JAAS and client secrets, but not keys.
    """
    for name, value in options.items():
        if _PLAIN_KEY.search(value or ""):
            raise ConfigurationError(
                name,
                "contains an unencrypted private key, which Spark would show in query plans",
                action="Encrypt it (openssl pkcs8 -topk8) and set kafka.ssl.key.password, which Spark redacts, or "
                "store it in a file (kafka.ssl.keystore.location).",
            )
