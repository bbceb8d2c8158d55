"""Generates docs/options.md from the table that parses the options.

python -m spark_kafka_eos.options > docs/options.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.sink import SinkOptions
from spark_kafka_eos.options.source import SourceOptions
from spark_kafka_eos.options.table import OPTIONS, Option, Side
from spark_kafka_eos.options.unused import UNUSED

_HEAD = """# Options

Options have the same names as in Spark's built-in Kafka source and sink; options that start with `kafka.` have the
names of the Java clients' properties. Names are case-insensitive. An unknown option is an error that suggests the
closest name. Every property of Kafka's consumer and producer, from 3.3 to 4.4, has an effect, has none, or is refused;
the tables at the end list the last two. `from_properties(path)` reads a `client.properties` file
([examples](../conf/)). This page is generated from the table that parses the options.
"""

_PARTS = {
    Side.SOURCE: "Source: `readStream`, `read`",
    Side.SINK: "Sink: `writeStream`, `write`, `TransactionalWriter`",
    Side.BOTH: "Source and sink",
}

_UNUSED = """## Options of the sink that some writes do not use

They are refused, or named in a warning, once.
"""

_IGNORED = """## Kafka's properties without effect

They tune the Java clients' internals. The connector accepts them, so that one property file works for every client, and
logs each once. A property of the other side, such as `kafka.acks` in a source, is accepted in the same way.
"""

_REFUSED = """## Kafka's properties that are refused

Ignoring them would change the data, the guarantee or the security of the connection. Without a value they are accepted,
and with one that says what holds anyway, such as `kafka.enable.auto.commit=false`.
"""


def page() -> str:
    """The whole page: the options of the source, of the sink, and of both, then those and Kafka's without effect."""
    tables = [f"## {title}\n\n{markdown(side)}\n" for side, title in _PARTS.items()]
    tables.append(f"{_UNUSED}\n{unused()}\n")
    others = [f"{_IGNORED}\n{properties(WITHOUT_EFFECT)}\n", f"{_REFUSED}\n{properties(REFUSED)}\n"]
    return "\n".join([_HEAD, *tables, *others])


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
    values = [value for value in defaults if value not in (MISSING, None, ())]
    return f"`{str(values[0]).lower() if isinstance(values[0], bool) else values[0]}`" if values else ""


def _names(row: Option) -> str:
    return ", ".join(f"`{name}`" for name in (row.name, *row.also))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
