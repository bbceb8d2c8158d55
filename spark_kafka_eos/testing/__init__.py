"""The test kit: real brokers on the loopback interface, a fault-injecting proxy, and Spark drivers to kill.

    embedded kraft ports             real Kafka with one or more brokers
    jars repository java             downloads its jars, checks Java
    proxy proxy_rules proxy_frames   injects faults into selected requests
    driver supervised                processes to kill
    read_topic read_offsets          reads with librdkafka

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
    from spark_kafka_eos.testing.read_topic import read_topic

__all__ = ["Driver", "EmbeddedKafka", "Proxy", "read_topic"]

__getattr__ = lazy(
    __name__,
    {
        "Driver": "spark_kafka_eos.testing.driver",
        "EmbeddedKafka": "spark_kafka_eos.testing.embedded",
        "Proxy": "spark_kafka_eos.testing.proxy",
        "read_topic": "spark_kafka_eos.testing.read_topic",
    },
)
