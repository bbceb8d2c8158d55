"""Text that must not show itself, and text that Spark would show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from spark_kafka_eos.errors import ConfigurationError

_PLAIN_KEY = re.compile(r"-----BEGIN (?!ENCRYPTED )[A-Z ]*PRIVATE KEY-----(?!\s*Proc-Type: *4, *ENCRYPTED)")


class Secret:
    """Text that never shows itself: `***` in repr, str and format. Pickles, since executors need it.

    `reveal()` is the only way to the text.
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


def refuse_plain_keys(options: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a private key as text among options that pass through Spark.

    A stream's `explain` shows them, but for what `spark.redaction.regex` finds in name or value. That is true of
    passwords, JAAS and client secrets by default, not of a key.
    """
    for name, value in options.items():
        if _PLAIN_KEY.search(value or ""):
            raise ConfigurationError(
                name,
                "holds a private key that is not encrypted, and Spark shows it in query plans",
                action="Encrypt it (openssl pkcs8 -topk8) and set kafka.ssl.key.password, which Spark hides; or put it "
                "into a file (kafka.ssl.keystore.location).",
            )
