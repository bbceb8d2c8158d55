"""Options: parses and validates what the user sets.

    table.py                          all options, one row each; errors for unknown names, with suggestions
    kafka_properties.py               Kafka properties that are rejected or ignored
    parsers.py                        from text to value
    java_regex.py                     subscribePattern, from Java's syntax to Python's
    client.py source.py sink.py       the parsed values; `auth`: TLS and SASL
    source_parser.py sink_parser.py   from the user's options to these, and constraints between them
    outputs.py values.py              values of single options
    unused.py                         where an option of the sink has no effect
    reserved.py                       topics that no record may go to
    __main__.py                       the reference documentation, generated from the table
    properties.py                     Kafka's .properties files

Options are parsed on the driver; the values, secrets included, are sent to the executors. A source's process does not
load the sink's options, and a task loads no parser, because imports delay a query's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.kafka.auth.secret import Secret, refuse_plain_keys
from spark_kafka_eos.kafka.auth.security import Security
from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.lazy import lazy

if TYPE_CHECKING:
    from spark_kafka_eos.options.properties import from_properties
    from spark_kafka_eos.options.sink import SinkOptions
    from spark_kafka_eos.options.sink_parser import sink_options
    from spark_kafka_eos.options.source import SourceOptions, Timestamps
    from spark_kafka_eos.options.source_parser import source_options
    from spark_kafka_eos.options.unused import WriteKind

__all__ = [
    "ClientOptions",
    "Secret",
    "Security",
    "SinkOptions",
    "SourceOptions",
    "Timestamps",
    "WriteKind",
    "from_properties",
    "refuse_plain_keys",
    "sink_options",
    "source_options",
]

__getattr__ = lazy(
    __name__,
    {
        "SinkOptions": "spark_kafka_eos.options.sink",
        "SourceOptions": "spark_kafka_eos.options.source",
        "Timestamps": "spark_kafka_eos.options.source",
        "WriteKind": "spark_kafka_eos.options.unused",
        "from_properties": "spark_kafka_eos.options.properties",
        "sink_options": "spark_kafka_eos.options.sink_parser",
        "source_options": "spark_kafka_eos.options.source_parser",
    },
)
