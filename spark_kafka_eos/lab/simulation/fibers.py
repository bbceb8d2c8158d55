"""Functions that take turns: each runs until it says so, then whoever drives them goes on. One runs at a time.

The product's code blocks, so a driver and its zombie need a stack each. These are threads that hand a baton over: what
happens next is decided by whoever drives them, never by the operating system, so a seed tells the whole course.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Thread:
    """A thread that runs one function after the other, each only while it has the baton."""

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


_idle: list[_Thread] = []  # starting a thread costs as much as a whole run


class Fiber:
    """One function on a stack of its own."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._thread: _Thread | None = None
        self._error: BaseException | None = None
        self.done = False

    def resume(self) -> None:
        """Run it until it suspends itself or ends; what it raises is raised here."""
        if self._thread is None:
            self._thread = _idle.pop() if _idle else _Thread()
            self._thread.work = self._run
        thread = self._thread
        thread.go.release()
        thread.back.acquire()
        if self._error is not None:
            raise self._error

    def suspend(self) -> None:
        """To be called by the function itself: returns when it is resumed."""
        assert self._thread is not None
        self._thread.back.release()
        self._thread.go.acquire()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised again where it was resumed
            self._error = error
        self.done = True
