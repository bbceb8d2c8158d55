"""Figures of which a part may be unknown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def least(values: Iterable[int | None], combine: Callable[[Iterable[int]], int] = sum) -> int | None:
    """What is known of these values, combined: the least that there is. None if there are no values, or instead of 0
    if one is None.
    """
    given = list(values)
    known = [value for value in given if value is not None]
    combined = combine(known) if known else None
    return None if not combined and len(known) < len(given) else combined
