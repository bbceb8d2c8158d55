"""What two histories must have in common to go on alike: everything that is not a function, a time or a clock.

Brokers, files and reports are compared by their contents. A process is compared by what it has seen: its code decides
by nothing else.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from operator import itemgetter
from typing import Any

# Times, which no decision depends on within a bound (see `world`).
_LEFT_OUT = frozenset({"started_ms", "timestamp_ms", "timeout_ms", "_committed_s"})
_PLAIN = frozenset({int, str, bytes, float, bool, type(None)})

_first = itemgetter(0)


def digest(value: object) -> bytes:
    """A digest of plain values and tuples of them."""
    return hashlib.blake2b(repr(value).encode(), digest_size=12).digest()


def frozen(value: Any) -> Any:
    """The value as nested tuples, which are equal for equal contents; None for functions."""
    kind = type(value)
    return value if kind in _PLAIN else _way(kind)(value)  # type: ignore[arg-type]  # every type is hashable


@cache
def _way(kind: type) -> Callable[[Any], Any]:
    """How to freeze values of this type."""
    if issubclass(kind, Enum):
        return _name
    if hasattr(kind, "_fields"):
        return partial(_named_tuple, tuple(at for at, name in enumerate(kind._fields) if name not in _LEFT_OUT))
    if issubclass(kind, tuple | list | deque):
        return _sequence
    if issubclass(kind, set | frozenset):
        return _set
    if issubclass(kind, dict):
        return _dictionary
    if issubclass(kind, Callable):  # type: ignore[arg-type]  # a protocol, not a class
        return _nothing
    return partial(_object, tuple(name for base in reversed(kind.__mro__) for name in vars(base).get("__slots__", ())))


def _name(value: Enum) -> str:
    return value.name


def _named_tuple(kept: tuple[int, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([frozen(value[at]) for at in kept])


def _sequence(value: tuple[Any, ...] | list[Any] | deque[Any]) -> tuple[Any, ...]:
    return tuple([frozen(element) for element in value])


def _set(value: set[Any] | frozenset[Any]) -> tuple[Any, ...]:
    return tuple(sorted([frozen(element) for element in value]))


def _dictionary(value: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(sorted([(repr(key), frozen(element)) for key, element in value.items()], key=_first))


def _nothing(_value: object) -> None:
    return None


def _object(slots: tuple[str, ...], value: Any) -> tuple[Any, ...]:
    fields = {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})
    return type(value).__name__, *(
        (name, frozen(field_value)) for name, field_value in fields.items() if name not in _LEFT_OUT
    )
