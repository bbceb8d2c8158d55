"""Reads values as TLC prints them: records and functions, tuples, sets, strings, numbers, TRUE and FALSE."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Value = Any
"""A dict (record), a tuple, a frozenset, a str, an int or a bool."""

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|<<|>>|\|->|[\[\]{},]|-?\d+|\w+)')


def parse(text: str) -> Value:
    """The value that `text` stands for. Raises ValueError."""
    words = _TOKEN.findall(text)
    value, at = _value(words, 0)
    if at != len(words):
        raise ValueError(f"{text!r} goes on after a value: {words[at:]}")
    return value


def _value(words: list[str], at: int) -> tuple[Value, int]:
    word = words[at]
    if word == "[":
        return _record(words, at + 1)
    if word == "<<":
        items, at = _items(words, at + 1, ">>")
        return tuple(items), at
    if word == "{":
        items, at = _items(words, at + 1, "}")
        return frozenset(map(_hashable, items)), at
    if word.startswith('"'):
        return word[1:-1], at + 1
    if word in ("TRUE", "FALSE"):
        return word == "TRUE", at + 1
    return int(word), at + 1


def _items(words: list[str], at: int, end: str) -> tuple[list[Value], int]:
    items: list[Value] = []
    while words[at] != end:
        if words[at] == ",":
            at += 1
        item, at = _value(words, at)
        items.append(item)
    return items, at + 1


def _record(words: list[str], at: int) -> tuple[dict[str, Value], int]:
    record: dict[str, Value] = {}
    while words[at] != "]":
        if words[at] == ",":
            at += 1
        name = words[at]
        if words[at + 1] != "|->":
            raise ValueError(f"no |-> after {name}")
        record[name], at = _value(words, at + 2)
    return record, at + 1


class Frozen(dict[str, Value]):
    """A record that can be in a set."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset((name, _hashable(value)) for name, value in self.items()))


def _hashable(value: Value) -> Value:
    return Frozen(value) if isinstance(value, dict) else value


def text(value: Value) -> str:
    """The inverse of `parse`: how TLA+ writes the value."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case Mapping():
            return "[" + ", ".join(f"{name} |-> {text(field)}" for name, field in value.items()) + "]"
        case frozenset():
            return "{" + ", ".join(sorted(map(text, value))) + "}"
    return "<<" + ", ".join(map(text, value)) + ">>"
