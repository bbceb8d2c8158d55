"""Generates the reference of all options from the table that parses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from spark_kafka_eos.options.client import ClientOptions
from spark_kafka_eos.options.sink import SinkOptions
from spark_kafka_eos.options.source import SourceOptions
from spark_kafka_eos.options.table import OPTIONS, Option, Side
from spark_kafka_eos.options.unused import UNUSED


def markdown(side: Side) -> str:
    """A Markdown table of the options on `side`: names, default, meaning."""
    rows = (f"| {_names(row)} | {default_of(row)} | {_cell(row.help)} |" for row in OPTIONS if row.side is side)
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def properties(reasons: Mapping[str, str]) -> str:
    """A Markdown table of Kafka's properties that share a reason to be ignored or refused."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if name.startswith("kafka."):  # the built-in source's own are in docs/migrating.md
            names.setdefault(reason, []).append(name)
    rows = (
        f"| {', '.join(f'`{name}`' for name in sorted(listed))} | {_cell(reason)} |" for reason, listed in names.items()
    )
    return "\n".join(["| property | reason |", "|---|---|", *rows])


def unused() -> str:
    """A Markdown table of the sink's options without effect on some writes."""
    rows = (
        f"| `{row.option}{'' if row.value is None else f'={row.value}'}` | {row.write.value} | "
        f"{'refused' if row.refused else 'warning'}: {_cell(row.why)} |"
        for row in UNUSED
    )
    return "\n".join(["| option | in | |", "|---|---|---|", *rows])


def default_of(row: Option) -> str:
    """The option's default, as a user would write it; empty if there is none."""
    every = (field for kind in (ClientOptions, SourceOptions, SinkOptions) for field in fields(kind))
    defaults = [field.default for field in every if field.name == row.field]
    shown = [value for value in defaults if value not in (MISSING, None, ())]
    return f"`{str(shown[0]).lower() if isinstance(shown[0], bool) else shown[0]}`" if shown else ""


def _names(row: Option) -> str:
    return ", ".join(f"`{name}`" for name in (row.name, *row.also))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
