"""Generates docs/options.md: `python -m spark_kafka_eos.options > docs/options.md`."""

from __future__ import annotations

from spark_kafka_eos.options.reference import markdown
from spark_kafka_eos.options.table import Side

_HEAD = """# Options

Options have the same names as in Spark's built-in Kafka source and sink; options that start with `kafka.` have the
names of the Java clients' properties. Names are case-insensitive. An unknown option is an error that suggests the
closest name. `from_properties(path)` reads a `client.properties` file ([examples](../conf/)). This page is generated
from the table that parses the options.
"""

_PARTS = {
    Side.SOURCE: "Source: `readStream`, `read`",
    Side.SINK: "Sink: `writeStream`, `write`, `TransactionalWriter`",
    Side.BOTH: "Source and sink",
}


def page() -> str:
    """The whole page: the options of the source, of the sink, and of both."""
    return "\n".join([_HEAD, *(f"## {title}\n\n{markdown(side)}\n" for side, title in _PARTS.items())])


if __name__ == "__main__":
    print(page(), end="")
