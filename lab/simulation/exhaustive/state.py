"""What two histories must have in common to go on alike: everything that is not a function, a time or a clock.

Brokers, files and reports are compared by their contents. A process is compared by what it has seen: its code decides
by nothing else.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

# Times, which no decision depends on within a bound (see `world`), and what is only told to people.
_LEFT_OUT = frozenset({"started_ms", "timestamp_ms", "timeout_ms", "_committed_s", "_now_ms", "_clock"})
_PLAIN = (int, str, bytes, float, bool, type(None))


def digest(value: object) -> bytes:
    """A digest of plain values and tuples of them."""
    return hashlib.blake2b(repr(value).encode(), digest_size=12).digest()


def frozen(value: Any) -> Any:
    """The value as nested tuples, which are equal for equal contents; None for functions."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "_asdict"):
        return tuple(frozen(each) for name, each in value._asdict().items() if name not in _LEFT_OUT)
    if isinstance(value, tuple | list | deque):
        return tuple(map(frozen, value))
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(frozen, value)))
    if isinstance(value, dict):
        return tuple(sorted(((repr(frozen(key)), frozen(each)) for key, each in value.items()), key=_first))
    if callable(value):
        return None
    return type(value).__name__, tuple((name, frozen(each)) for name, each in _fields(value))


def _first(item: tuple[str, Any]) -> str:
    return item[0]


def _fields(value: Any) -> list[tuple[str, Any]]:
    slots = getattr(type(value), "__slots__", ())
    fields = dict(getattr(value, "__dict__", {})) | {name: getattr(value, name) for name in slots}
    return [(name, each) for name, each in sorted(fields.items()) if name not in _LEFT_OUT and not _is_function(each)]


def _is_function(value: object) -> bool:
    return isinstance(value, Callable)  # type: ignore[arg-type]
