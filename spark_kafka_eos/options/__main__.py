"""docs/options.md, from the options' own table: `python -m spark_kafka_eos.options > docs/options.md`."""

from __future__ import annotations

from spark_kafka_eos.options.reference import markdown
from spark_kafka_eos.options.table import Side

_HEAD = """# Options

Names are those of Spark's built-in Kafka source and sink; what begins with `kafka.` is named as in the Java clients.
Case does not matter. An unknown option is an error that names the nearest one. `from_properties(path)` reads a
`client.properties` file ([examples](../conf/)). This page is made from the table that parses the options.
"""

_PARTS = {
    Side.SOURCE: "Source: `readStream`, `read`",
    Side.SINK: "Sink: `writeStream`, `write`, `TransactionalWriter`",
    Side.BOTH: "Both",
}


def page() -> str:
    """The whole page: one table for the source, one for the sink, one for what both take."""
    return "\n".join([_HEAD, *(f"## {title}\n\n{markdown(side)}\n" for side, title in _PARTS.items())])


if __name__ == "__main__":
    print(page(), end="")
