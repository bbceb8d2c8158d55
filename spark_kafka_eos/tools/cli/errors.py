"""Shows expected errors on the command line, and their exit codes.

    0    the command did what it was asked to do, and its check passed
    1    its check failed: an invariant is violated, a query would not start, a history is wrong
    2    the command line is wrong
    3    it could not be checked or done: the cluster is unreachable, a package is missing, a broker died
    130  Ctrl-C

So 1 is a result, and an error is never taken for one.
"""

from __future__ import annotations

import sys
import traceback
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from spark_kafka_eos.errors import ConfigurationError, KafkaEosError, ToolFailed
from spark_kafka_eos.tools.cli.terminal import Console, Text

FAILED, USAGE, NOT_CHECKED, INTERRUPTED = 1, 2, 3, 130


def show(error: KafkaEosError) -> None:
    """Print a short message to standard error. It does not say what was committed: commands write no query's output."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("[bold red]Error:[/]", Text(error.without_commit_note()))


def exit_code(error: KafkaEosError) -> int:
    """`USAGE` for a wrong option, else `NOT_CHECKED`."""
    return USAGE if isinstance(error, ConfigurationError) else NOT_CHECKED


def confirmed(question: str) -> bool:
    """Whether an operator says yes; not without a terminal. Ctrl-C ends the command with the exit code that it has
    everywhere: Typer takes it for a no.
    """
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise typer.Exit(INTERRUPTED) from abort
        return False


class Commands(TyperGroup):
    """A group of commands. An expected error is a short message, Ctrl-C is none."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KafkaEosError as error:
            show(error)
            raise typer.Exit(exit_code(error)) from error
        except ModuleNotFoundError as error:
            if (missing := _missing(error)) is None:
                raise
            show(missing)
            raise typer.Exit(exit_code(missing)) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(INTERRUPTED) from interrupt


def run(app: typer.Typer) -> None:
    """Run a program with these commands. A bug shows its traceback, and is not taken for a failed check."""
    try:
        app()
    except Exception:  # noqa: BLE001 - shown in full
        traceback.print_exc()
        sys.exit(NOT_CHECKED)


def _missing(error: ModuleNotFoundError) -> ToolFailed | None:
    """The error of a package that is not installed; None if only a module of it is missing, which is a bug."""
    package = (error.name or "").partition(".")[0]
    if not package or find_spec(package) is not None:
        return None
    return ToolFailed(f"the package {package} is not installed", action=f"Run 'pip install {package}'.")
