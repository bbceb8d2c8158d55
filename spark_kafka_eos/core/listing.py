"""Lists names in a message: the first ones, and that there are others."""

from __future__ import annotations

from collections.abc import Iterable


def some(items: Iterable[str]) -> str:
    """The first three of `items`."""
    shown = list(items)
    return ", ".join(shown[:3]) + (" and others" if len(shown) > 3 else "")
