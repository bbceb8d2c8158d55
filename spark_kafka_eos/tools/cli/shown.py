"""How commands for operators show a state: times and sizes in words, once or again and again, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from time import sleep
from typing import Annotated, Any, TypeVar

import typer
from rich.console import RenderableType
from rich.live import Live

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.tools.cli.errors import show
from spark_kafka_eos.tools.cli.terminal import Console

T = TypeVar("T")

AsJsonOnce = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; with --watch, a line each time.")]
Watch = Annotated[
    float | None,
    typer.Option("--watch", metavar="SECONDS", min=0.1, help="Look again every so many seconds, until Ctrl-C."),
]

_BYTES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def moment(milliseconds: int) -> str:
    """A time since 1970 as UTC, to the second."""
    try:
        return datetime.fromtimestamp(milliseconds / 1e3, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a producer may set any timestamp
        return f"{milliseconds} ms since 1970"


def size(count: int) -> str:
    """A number of bytes: `1.5 MB`."""
    for unit, of in _BYTES:
        if count >= of:
            return f"{count / of:.1f} {unit}"
    return f"{count} B"


def watch(
    look: Callable[[], T],
    seconds: float | None,
    *,
    view: Callable[[T], RenderableType],
    to_json: Callable[[T], Any],
    as_json: bool,
) -> None:
    """Show what `look()` returns; every `seconds`, if given: on a terminal in place, as JSON in a line each.

    While no broker can be reached, this is said, and watching goes on.
    """
    console = Console(highlight=False)
    with ExitStack() as stack:
        live = None
        if seconds is not None and console.is_terminal and not as_json:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        for picture in _looks(look, seconds):
            if as_json:
                print(json.dumps(to_json(picture), indent=1 if seconds is None else None), flush=True)
            elif live is None:
                console.print(view(picture))
            else:
                live.update(view(picture), refresh=True)


def _looks(look: Callable[[], T], seconds: float | None) -> Iterator[T]:
    while True:
        try:
            yield look()
        except BrokerUnreachable as error:
            if seconds is None:
                raise
            show(error)
        if seconds is None:
            return
        sleep(seconds)
