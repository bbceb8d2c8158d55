"""SASL extensions, which a client sends to the broker with its token (KIP-342)."""

from __future__ import annotations

import re

Extensions = tuple[tuple[str, str], ...]


def sasl_extension(name: str, value: str) -> tuple[str, str]:
    """One SASL extension (KIP-342, RFC 7628 section 3.1): letters as the name, printable text as the value."""
    if not re.fullmatch("[A-Za-z]+", name) or name == "auth" or not value.isprintable():
        meant = camel_case(name)
        hint = f"; did you mean {meant}?" if meant != name and meant.isalpha() else ""
        raise ValueError(
            f"SASL extension {name!r} needs a name of letters, other than auth, and a printable value{hint}"
        )
    return name, value


def camel_case(name: str) -> str:
    """`identity_pool_id` -> `identityPoolId`, as Confluent Cloud's extensions are named; also from `-` and `.`."""
    first, *others = re.split("[_.-]", name)
    return first + "".join(word.title() for word in others)


def sasl_extensions(value: str) -> tuple[tuple[str, str], ...]:
    """Comma-separated `name=value` pairs."""
    pairs = (pair.strip().partition("=") for pair in value.split(","))
    return tuple(sasl_extension(name, content) for name, _, content in pairs)
