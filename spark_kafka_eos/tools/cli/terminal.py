"""What reaches the operator's terminal, without control characters: ids, topics and headers are anybody's.

An escape sequence in a transactional.id could erase a row of a table, or write the clipboard. So the commands print
with this `Console` and this `Text` only; a test holds them to it. JSON escapes such characters itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
import rich.text
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from spark_kafka_eos.kafka.words import printable

_WIDE = 140  # columns


class Text(rich.text.Text):
    """Text of printable characters, so that tables measure what they show."""

    def __init__(self, text: str = "", *style: Any, **more: Any) -> None:
        super().__init__(printable(text), *style, **more)


class Console(rich.console.Console):
    """A console that shows printable characters only, whatever it is given to print. Where there is no terminal, as in
    a log, lines are longer than rich's 80 columns, unless the variable COLUMNS says how long.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not (self.is_terminal or "width" in options or "COLUMNS" in self._environ):
            self.width = _WIDE

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
