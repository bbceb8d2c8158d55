"""Reads values as TLC prints them: records and functions, tuples, sets, strings, numbers, TRUE and FALSE."""

from __future__ import annotations

import re
from typing import Any

Value = Any
"""A dict (record), a tuple, a frozenset, a str, an int or a bool."""

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|<<|>>|\|->|[\[\]{},]|-?\d+|\w+)')


def parse(text: str) -> Value:
    """The value that `text` stands for. Raises ValueError."""
    tokens = _TOKEN.findall(text)
    value, at = _value(tokens, 0)
    if at != len(tokens):
        raise ValueError(f"{text!r} goes on after a value: {tokens[at:]}")
    return value


def _value(tokens: list[str], at: int) -> tuple[Value, int]:
    token = tokens[at]
    if token == "[":
        return _record(tokens, at + 1)
    if token == "<<":
        items, at = _items(tokens, at + 1, ">>")
        return tuple(items), at
    if token == "{":
        items, at = _items(tokens, at + 1, "}")
        return frozenset(map(_hashable, items)), at
    if token.startswith('"'):
        return token[1:-1], at + 1
    if token in ("TRUE", "FALSE"):
        return token == "TRUE", at + 1
    return int(token), at + 1


def _items(tokens: list[str], at: int, end: str) -> tuple[list[Value], int]:
    items: list[Value] = []
    while tokens[at] != end:
        if tokens[at] == ",":
            at += 1
        item, at = _value(tokens, at)
        items.append(item)
    return items, at + 1


def _record(tokens: list[str], at: int) -> tuple[dict[str, Value], int]:
    record: dict[str, Value] = {}
    while tokens[at] != "]":
        if tokens[at] == ",":
            at += 1
        name = tokens[at]
        if tokens[at + 1] != "|->":
            raise ValueError(f"no |-> after {name}")
        record[name], at = _value(tokens, at + 2)
    return record, at + 1


class Frozen(dict[str, Value]):
    """A record that can be in a set."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset((name, _hashable(value)) for name, value in self.items()))


def _hashable(value: Value) -> Value:
    return Frozen(value) if isinstance(value, dict) else value
