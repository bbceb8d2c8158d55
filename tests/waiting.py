"""Waits for what nobody announces: a consumer's count, a marker, a listener's figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """The first true value of `condition()`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)  # between two looks: there is no event to wait for
    return found
