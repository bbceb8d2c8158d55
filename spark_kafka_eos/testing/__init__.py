"""The test kit: real brokers on the loopback interface, a proxy that injects faults, and Spark drivers to kill.

    embedded kraft ports             a real Kafka: one broker or three
    jars digests repository java     download its jars and check them, find Java
    proxy proxy_rules proxy_frames   inject faults into selected requests
    driver supervised                processes that can be killed
    patience log_causes              when to give one up, and what its log says of the cause
    registry                         a schema registry, in memory
    topic_reader read_offsets        what librdkafka sees

Needs `pip install "spark-kafka-eos[testing]"` and Java 17. For users' own tests:

    from spark_kafka_eos.testing import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        kafka.create_topic("orders", 2)
        ...  # .option("kafka.bootstrap.servers", kafka.bootstrap)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.lazy import lazy

if TYPE_CHECKING:
    from spark_kafka_eos.testing.driver import Driver
    from spark_kafka_eos.testing.embedded import EmbeddedKafka
    from spark_kafka_eos.testing.proxy import Proxy
    from spark_kafka_eos.testing.registry import schema_registry
    from spark_kafka_eos.testing.topic_reader import read_topic

__all__ = ["Driver", "EmbeddedKafka", "Proxy", "read_topic", "schema_registry"]

__getattr__ = lazy(
    __name__,
    {
        "Driver": "spark_kafka_eos.testing.driver",
        "EmbeddedKafka": "spark_kafka_eos.testing.embedded",
        "Proxy": "spark_kafka_eos.testing.proxy",
        "read_topic": "spark_kafka_eos.testing.topic_reader",
        "schema_registry": "spark_kafka_eos.testing.registry",
    },
)
