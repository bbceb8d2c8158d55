"""`kafka-eos explain`: the runbook's section for an error or an alert."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown
from rich.table import Column, Table

from spark_kafka_eos.tools.cli.terminal import Console, Text

# A wheel has the page beside this file, a checkout among its documents.
_SHIPPED = Path(__file__).with_name("runbook.md")
_PAGE = _SHIPPED if _SHIPPED.exists() else Path(__file__).parents[3] / "docs" / "runbook.md"


def explain(
    name: Annotated[str | None, typer.Argument(help="An error or an alert, such as LedgerRefused.")] = None,
) -> None:
    """Show what an error or an alert means for the data, what to look at and what to run. Without a name, list all."""
    sections = _sections(_PAGE.read_text(encoding="utf-8"))
    console = Console()
    if name is None:
        console.print(_overview(sections))
        return
    titles = {title.lower(): title for title in sections}
    if name.lower() not in titles:
        near = difflib.get_close_matches(name.lower(), titles, n=1)
        hint = f"did you mean {titles[near[0]]}?" if near else "'kafka-eos explain' lists all."
        raise typer.BadParameter(f"no error or alert has this name; {hint}", param_hint="NAME")
    title = titles[name.lower()]
    console.print(Markdown(f"**{title}**\n\n{sections[title]}"))


def _sections(page: str) -> dict[str, str]:
    """The text of each section by its heading, without links, whose targets are pages of the documentation."""
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return {title: re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).strip() for title, text in sections}


def _overview(sections: dict[str, str]) -> Table:
    """One row for each: its name, and what it means for the data."""
    table = Table(Column("name", no_wrap=True), "what it means for the data", box=None)
    for title, text in sections.items():
        paragraph = text.partition("\n\n")[0].removeprefix("**Data.**").replace("`", "")
        table.add_row(title, Text(" ".join(paragraph.split())))
    return table
