"""docs/options.md, from the options' own table: `python -m spark_kafka_eos.tools.options_table > docs/options.md`."""

from __future__ import annotations

from dataclasses import MISSING, fields

from spark_kafka_eos.options.client import ClientOptions
from spark_kafka_eos.options.sink import SinkOptions
from spark_kafka_eos.options.source import SourceOptions
from spark_kafka_eos.options.table import OPTIONS, Option, Side

_HEAD = """# Options

Names are those of Spark's built-in Kafka source and sink; what begins with `kafka.` is named as in Kafka's Java clients.
Case does not matter. An unknown option is an error that names the nearest one. `from_properties(path)` reads a
`client.properties` file. This page is made from the table that parses the options.
"""

_PARTS = {
    Side.SOURCE: "## Source: `readStream`, `read`",
    Side.SINK: "## Sink: `writeStream`, `write`, `TransactionalWriter`",
    Side.BOTH: "## Both",
}


def markdown() -> str:
    """The whole page: one table for the source, one for the sink, one for what both take."""
    parts = [_HEAD]
    for side, title in _PARTS.items():
        rows = [_row(option) for option in OPTIONS if option.side is side]
        parts.append("\n".join([title, "", "| option | default | meaning |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in (option.name, *option.also))
    return f"| {names} | {_default(option)} | {option.help.replace('|', chr(92) + '|')} |"


def _default(option: Option) -> str:
    """The default of the field that the option sets, as a user would write it; empty where there is none."""
    for kind in (SourceOptions, SinkOptions, ClientOptions):
        for field in fields(kind):
            if field.name == option.field and field.default not in (MISSING, None, ()):
                value = field.default
                return f"`{str(value).lower() if isinstance(value, bool) else value}`"
    return ""


if __name__ == "__main__":
    print(markdown(), end="")
