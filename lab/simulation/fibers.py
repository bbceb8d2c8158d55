"""Functions that take turns: each runs until it suspends itself, then its caller continues. Only one runs at a time.

The product's code blocks, so a driver and its zombie each need a stack. These are threads that pass a baton: the caller
decides what runs next, never the operating system, so a seed determines the whole history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Thread:
    """A thread that runs functions one after the other, each only while it has the baton."""

    def __init__(self) -> None:
        self.go, self.back = threading.Lock(), threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], None] | None = None
        threading.Thread(target=self._run, name="simulation", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            assert self.work is not None
            self.work()
            self.work = None
            _idle.append(self)
            self.back.release()


_idle: list[_Thread] = []  # kept, because the start of a thread costs as much as a whole history


class Fiber:
    """A function with its own stack."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._thread: _Thread | None = None
        self._error: BaseException | None = None
        self.done = False

    def resume(self) -> None:
        """Run the function until it suspends itself or ends; raise its error, if any."""
        if self._thread is None:
            self._thread = _idle.pop() if _idle else _Thread()
            self._thread.work = self._run
        thread = self._thread
        thread.go.release()
        thread.back.acquire()
        if self._error is not None:
            raise self._error

    def suspend(self) -> None:
        """Suspend the function, which must be the caller; return when it is resumed."""
        assert self._thread is not None
        self._thread.back.release()
        self._thread.go.acquire()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - `resume` raises it
            self._error = error
        self.done = True
