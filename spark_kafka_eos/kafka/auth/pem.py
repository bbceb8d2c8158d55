"""PEM text as Kafka's clients take it, in the lines that OpenSSL needs (RFC 7468).

Java's white space is any: Kafka's documentation continues each line of a .properties file with a backslash, which makes
one line with spaces of them, and YAML indents. An escape `\\n` that nobody has replaced is a line feed here.
"""

from __future__ import annotations

import re
import textwrap

_BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*(?:-(?!----)[^-]*)*)-----END (?P=label)-----")


def in_lines(text: str) -> str:
    """The blocks of a PEM text, without what is around them; the text itself if there are none."""
    return "\n".join(map(_block, _BLOCK.finditer(_unescaped(text)))) or text


def is_in_lines(text: str) -> bool:
    """Whether OpenSSL can read it: its blocks have lines of 64 characters, or there are none."""
    lines = set(text.splitlines())
    return all(line in lines for line in in_lines(text).splitlines())


def blocks(text: str, kind: str) -> str:
    """Those blocks whose label ends with `kind`, "CERTIFICATE" or "KEY"."""
    matches = (match for match in _BLOCK.finditer(_unescaped(text)) if match["label"].endswith(kind))
    return "\n".join(map(_block, matches))


def private_keys(text: str) -> int:
    """How many there are."""
    return sum(match["label"].endswith("PRIVATE KEY") for match in _BLOCK.finditer(_unescaped(text)))


def _unescaped(text: str) -> str:
    return text.replace("\\r", "").replace("\\n", "\n")


def _block(match: re.Match[str]) -> str:
    label, body = match["label"], match["body"]
    if ":" in body:  # an encrypted key of OpenSSL's own form has headers, each in its line, and an empty line
        lines = [line.strip() for line in body.strip().splitlines()]
    else:
        lines = textwrap.wrap("".join(body.split()), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])
