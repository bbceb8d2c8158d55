"""Reads Kafka's client property files (`client.properties`) as options."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)


def from_properties(path: str | PathLike[str]) -> dict[str, str]:
    """The entries of a Java .properties file, with the prefix `kafka.`: `.options(**from_properties(path))`.

    Names that already start with `kafka.` are left as they are. The syntax is that of `java.util.Properties.load`: `=`,
    `:` or a space between name and value, `#` and `!` comments, backslash for escapes and line continuations. Raises
    OSError.
    """
    return {name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in entries(path).items()}


def entries(path: str | PathLike[str]) -> dict[str, str]:
    """The entries of a Java .properties file, under their own names. Raises OSError."""
    lines = _logical_lines(Path(path).read_text(encoding="utf-8"))
    found = [match for line in lines if (match := _KEY.fullmatch(line))]
    return {_unescape(match["key"]): _unescape(match["value"]) for match in found}


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blank lines; a line with an odd number of trailing backslashes continues."""
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
        else:
            lines.append(line)
            pending = ""
    return [*lines, pending] if pending else lines


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _NAMED.get(code, code)

    return _ESCAPE.sub(character, text)
