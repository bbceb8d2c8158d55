"""Options: from what a user writes to checked values.

    table.py                          every option, one row each; unknown names, nearest names
    kafka_properties.py               Kafka properties that are refused, or have no effect here
    parsers.py                        from text to value
    client.py source.py sink.py       the values, and what must hold between several options
    security.py                       TLS and SASL together
    sasl.py jaas.py                   users, passwords and OAuth clients
    tls.py stores.py jks.py           truststores and keystores
    secret.py                         text that does not show itself
    reference.py                      the table as documentation
    properties.py                     Kafka's .properties files

Options are read on the driver; the values travel to the executors, secrets included. A source's process does not load
the sink's options: a query waits for what it imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.lazy import lazy
from spark_kafka_eos.options.client import ClientOptions
from spark_kafka_eos.options.secret import Secret, refuse_plain_keys
from spark_kafka_eos.options.security import Security

if TYPE_CHECKING:
    from spark_kafka_eos.options.properties import from_properties
    from spark_kafka_eos.options.sink import SinkOptions, sink_options
    from spark_kafka_eos.options.source import SourceOptions, Timestamps, source_options

__all__ = [
    "ClientOptions",
    "Secret",
    "Security",
    "SinkOptions",
    "SourceOptions",
    "Timestamps",
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
        "from_properties": "spark_kafka_eos.options.properties",
        "sink_options": "spark_kafka_eos.options.sink",
        "source_options": "spark_kafka_eos.options.source",
    },
)
