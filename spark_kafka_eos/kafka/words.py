"""Words in messages: durations, the first of many names, and what may be shown of a text that is anybody's. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def first_three(items: Iterable[str]) -> str:
    """The first three of `items`."""
    names = list(items)
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def duration(milliseconds: int) -> str:
    """A duration for people: `850 ms`, `61 s`, `36 h`, `7 days`."""
    for unit, size in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def printable(text: str) -> str:
    """`text` with `�` for each control, format or other unprintable character; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def one_line(text: str) -> str:
    """The same, without line breaks."""
    return printable(text).replace("\n", "�")
