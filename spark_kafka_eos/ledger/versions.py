"""The versions of batch writes that are known to be written to a destination: ranges such as `1-57,60`. Pure.

Versions may be dates or times, so ranges are never expanded.
"""

from __future__ import annotations

MOST_RANGES = 100  # of one destination: of older ones it is not known any more which versions ran


def contains(versions: str, version: int) -> bool:
    """Whether this version is among them."""
    return any(first <= version <= last for first, last in _ranges(versions))


def last(versions: str) -> int:
    """The highest version, -1 if there is none."""
    return max((last for _, last in _ranges(versions)), default=-1)


def added(versions: str, version: int) -> str:
    """The versions with this one; the lowest ranges are dropped if there are too many."""
    merged: list[list[int]] = []
    for first, end in sorted([*_ranges(versions), (version, version)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([first, end])
    return ",".join(str(first) if first == end else f"{first}-{end}" for first, end in merged[-MOST_RANGES:])


def _ranges(versions: str) -> list[tuple[int, int]]:
    pairs = [part.partition("-") for part in versions.split(",") if part]
    return [(int(first), int(end or first)) for first, _, end in pairs]
