"""Generates docs/options.md: `python -m spark_kafka_eos.options > docs/options.md`."""

from __future__ import annotations

from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.reference import markdown, properties, unused
from spark_kafka_eos.options.table import Side

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

Ignoring them would change the data, the guarantee or the security of the connection.
"""


def page() -> str:
    """The whole page: the options of the source, of the sink, and of both, then those and Kafka's without effect."""
    tables = [f"## {title}\n\n{markdown(side)}\n" for side, title in _PARTS.items()]
    tables.append(f"{_UNUSED}\n{unused()}\n")
    others = [f"{_IGNORED}\n{properties(WITHOUT_EFFECT)}\n", f"{_REFUSED}\n{properties(REFUSED)}\n"]
    return "\n".join([_HEAD, *tables, *others])


if __name__ == "__main__":
    print(page(), end="")
