"""Shows a soak's progress: a bar on a terminal, and a line for each event."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_LINES = 10  # lines instead of the bar, if the output is not a terminal


class Screen:
    """A context manager that shows a soak's progress. `say` may be called from any thread."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._seconds = seconds
        self._progress = Progress(
            TextColumn("soaking"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("", total=seconds, figures="")
        self._last_step = 0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self) -> None:
        """Restart the clock of `say`."""
        self._started = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """Print a line with the seconds since the start."""
        seconds = f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]"
        marked_up = f"[{style}]{escape(text)}[/]" if style else escape(text)
        self._console.print(f"{seconds}  {marked_up}", highlight=False, soft_wrap=True)

    def move(self, seconds: float, figures: str) -> None:
        """Update the progress, and the counts so far."""
        self._progress.update(self._bar, completed=seconds, figures=figures)
        step = int(_LINES * seconds / self._seconds)
        if not self._console.is_terminal and step > self._last_step:
            self._last_step = step
            self.say(figures)
