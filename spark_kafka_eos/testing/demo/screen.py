"""Shows the demo's progress, as bars on a terminal and otherwise as lines, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from spark_kafka_eos.testing.demo.check import Figure

_STEPS = 5  # lines per bar if the output is not a terminal
_SILENT_SECONDS = 15.0  # the longest time without a line if the output is not a terminal


class _Bars(Progress):
    """The bars, and below them a line that says what is being done."""

    doing = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.doing:
            yield Text(f"now: {self.doing}", "dim")


class Screen:
    """A context manager that shows the demo's progress; counts only increase. `clock` returns seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._progress = _Bars(
            TextColumn("{task.description:<18}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}
        self._lines: dict[str, int] = {}
        self._kills = 0
        self._started = self._last_line = self._since = clock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        self._last_line = self._clock()
        self._console.print(
            f"[dim]{self._last_line - self._started:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True
        )

    def doing(self, text: str) -> None:
        """Show what is being done: on a terminal below the bars, otherwise in a line if there was none for a while."""
        now = self._clock()
        if text != self._progress.doing:
            self._progress.doing, self._since = text, now
        if not self._console.is_terminal and now - self._last_line >= _SILENT_SECONDS:
            self.say(f"{text} (for {now - self._since:.0f} s)")

    def killed(self, text: str) -> None:
        self._kills += 1
        self._progress.update(self._bars["kills"], completed=self._kills)
        self.say(f"[bold red]kill {self._kills}[/bold red]: {text}")

    def expect_flights(self, total: int) -> None:
        self._bar("departures sent", total)

    def sent(self, count: int) -> None:
        self._move("departures sent", count)

    def expect_batches(self, total: int) -> None:
        self._bar("batches committed", total)

    def committed(self, count: int) -> None:
        self._move("batches committed", count)

    def expect_kills(self, total: int) -> None:
        self._bar("kills", total)

    def _bar(self, name: str, total: int) -> None:
        self._bars[name] = self._progress.add_task(name, total=total)
        self._lines[name] = 0

    def _move(self, name: str, count: int) -> None:
        bar = self._bars[name]
        self._progress.update(bar, completed=count)
        total = self._progress.tasks[bar].total or 1
        step = int(_STEPS * count / total)
        if not self._console.is_terminal and step > self._lines[name]:
            self._lines[name] = step
            self.say(f"{name}: {count:,} of about {total:,.0f}")


def table(figures: Sequence[Figure]) -> Table:
    """Expected and found figures side by side, and whether they are equal."""
    out = Table(title="Exactly once?", title_justify="left")
    out.add_column("figure")
    out.add_column("expected", justify="right")
    out.add_column("found", justify="right")
    out.add_column("")
    for figure in figures:
        mark = "[green]ok[/green]" if figure.holds else "[bold red]WRONG[/bold red]"
        note = f" ({figure.note})" if figure.note else ""
        out.add_row(figure.name, f"{figure.expected:,}", f"{figure.actual:,}", mark + note)
    return out
