"""Reads Kafka's client property files (`client.properties`) as options.

The syntax is what java.util.Properties.load specifies, whose terms are used here: natural and logical lines. Kafka's
tools read each byte as a character of ISO-8859-1. Here, a file whose bytes are UTF-8 is read as UTF-8.

A line may be the rest of a password in which a line feed was not escaped. So no error quotes a file, not even a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.kafka_properties import OF_REGISTRY, without_effect
from spark_kafka_eos.options.table import is_known, say_without_effect, similar

_LINE_TERMINATOR = re.compile("\r\n|\r|\n")
_WHITE_SPACE = " \t\f"
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def from_properties(path: str | PathLike[str]) -> dict[str, str]:
    """The entries of a Java .properties file, with the prefix `kafka.`: `.options(**from_properties(path))`.

    Names that already start with `kafka.` are left as they are. Entries for a schema registry are left out, with a
    warning. The syntax is that of `java.util.Properties.load`: `=`,
    `:` or a space between name and value, `#` and `!` comments, backslash for escapes and line continuations. The file
    is UTF-8, or else ISO-8859-1. Raises OSError, and ConfigurationError for what is not Java's syntax, or not the name
    of a property of Kafka's clients. The error has the line's number, and nothing of what the file contains.
    """
    properties: dict[str, str] = {}
    try:
        for line, name, value in _entries(Path(path).read_bytes()):
            prefixed = name if name.startswith("kafka.") else f"kafka.{name}"
            if not is_known(prefixed):
                raise ConfigurationError(
                    "properties",
                    f"{path}, line {line}: the name there, which is not shown because it may be the rest of a "
                    "password, is not that of a property of Kafka's clients",
                    action=similar(prefixed, at_least=0.9)
                    or "To continue a value in the next line, end the line with a backslash.",
                )
            if without_effect(prefixed) == OF_REGISTRY:  # may be a secret, which no option of Spark is to have
                say_without_effect(prefixed, OF_REGISTRY)
                continue
            properties[prefixed] = value
    except ValueError as error:
        raise ConfigurationError("properties", f"{path}, {error}") from None
    return properties


def entries(path: str | PathLike[str]) -> dict[str, str]:
    """The entries of a Java .properties file, under their own names. Raises OSError, and ValueError for what is not
    Java's syntax.
    """
    return {name: value for _, name, value in _entries(Path(path).read_bytes())}


def _entries(content: bytes) -> Iterator[tuple[int, str, str]]:
    """The number of the first line, name and value of each entry. Raises ValueError."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("iso-8859-1")
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "every line fits"
        try:
            yield number, _unescaped(entry[1]), _unescaped(entry[2])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, blank lines and continuations, each with the number of its first natural line."""
    first, start = 0, ""
    for number, raw in enumerate(_LINE_TERMINATOR.split(text), 1):
        line = raw.lstrip(_WHITE_SPACE)
        if not start:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            start += line[:-1]
        else:
            yield first, start + line
            start = ""
    if start:
        yield first, start


def _unescaped(text: str) -> str:
    """Without Java's escapes; two `\\u` of a surrogate pair are one character. Raises ValueError."""
    if "\\" not in text:
        return text

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code == "u":
            raise ValueError("\\u is not followed by four hexadecimal digits")
        return chr(int(code[1:], 16)) if len(code) == 5 else _NAMED.get(code, code)

    try:
        return _ESCAPE.sub(character, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError("\\u has half of a surrogate pair, which is not a character") from None
