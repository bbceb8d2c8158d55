"""Jars that the laboratory and the tests need besides brokers: Kafka's tools, Spark's own connector, Spark's Avro and
Java's, Java's Protobuf, Debezium's classes.
"""

from __future__ import annotations

from spark_kafka_eos.testing.jars import Bundle, Module, class_path, files

PERF_TOOLS_VERSION = "4.3.1"  # the latest kafka-tools; it needs the Java client of its own release

# Scala, connector, token provider (not every release of it is published), Kafka's client.
_NEWEST_CONNECTOR = ("2.13", "4.2.0", "4.0.0", "3.9.1")
_DEBEZIUM = "3.6.1.Final"
_CONNECTORS = {
    "3.5": ("2.12", "3.5.1", "3.5.1", "3.4.1"),
    "4.0": ("2.13", "4.0.1", "4.0.0", "3.9.1"),
    "4.1": ("2.13", "4.1.1", "4.1.1", "3.9.1"),
}


def perf_tools(version: str = PERF_TOOLS_VERSION) -> Bundle:
    """Kafka's ProducerPerformance and ConsumerPerformance; `kafka(version)` has the rest of their class path."""
    module = Module(organisation="org.apache.kafka", name="kafka-tools", revision=version, alone=True)
    return Bundle(name="kafka-tools", version=version, modules=(module,))


def perf_tools_class_path(version: str = PERF_TOOLS_VERSION) -> str:
    """Java's class path for this version of the perf tools, downloaded first if necessary. Raises ToolFailed."""
    return ":".join([class_path(version), *map(str, files(perf_tools(version)))])


def streams_class_path(version: str = PERF_TOOLS_VERSION) -> str:
    """Java's class path for Kafka Streams of this version, without state stores. Raises ToolFailed."""
    module = Module(organisation="org.apache.kafka", name="kafka-streams", revision=version, alone=True)
    streams = Bundle(name="kafka-streams", version=version, modules=(module,))
    return ":".join([class_path(version), *map(str, files(streams))])


def built_in_connector(spark: str) -> Bundle:
    """Spark's own connector for this release of Spark (its version number)."""
    scala, connector, token_provider, clients = _CONNECTORS.get(".".join(spark.split(".")[:2]), _NEWEST_CONNECTOR)
    modules = (
        ("org.apache.spark", f"spark-sql-kafka-0-10_{scala}", connector),
        ("org.apache.spark", f"spark-token-provider-kafka-0-10_{scala}", token_provider),
        ("org.apache.kafka", "kafka-clients", clients),
        ("org.apache.commons", "commons-pool2", "2.12.0"),
    )
    alone = (
        Module(organisation=organisation, name=name, revision=revision, alone=True)
        for organisation, name, revision in modules
    )
    return Bundle(name="spark-sql-kafka", version=connector, modules=tuple(alone))


def avro() -> Bundle:
    """Spark's `from_avro` and `to_avro`, of the release that also runs on the newest Spark."""
    module = Module(organisation="org.apache.spark", name="spark-avro_2.13", revision="4.1.1", alone=True)
    return Bundle(name="spark-avro", version="4.1.1", modules=(module,))


def java_avro() -> Bundle:
    """Avro's own implementation in Java, with its dependencies."""
    modules = (
        Module(organisation="org.apache.avro", name="avro", revision="1.12.1"),
        Module(organisation="org.slf4j", name="slf4j-nop", revision="2.0.17"),
    )
    return Bundle(name="avro", version="1.12.1", modules=modules)


def java_protobuf() -> Bundle:
    """Protobuf's own implementation in Java."""
    module = Module(organisation="com.google.protobuf", name="protobuf-java", revision="4.36.2")
    return Bundle(name="protobuf", version="4.36.2", modules=(module,))


def debezium() -> Bundle:
    """Kafka Connect's JsonConverter, Debezium's types and envelope, and Apicurio's converter of Connect to Avro."""
    own = (
        ("io.debezium", "debezium-connector-common", _DEBEZIUM),
        ("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final"),
    )
    modules = (
        Module(organisation="org.apache.kafka", name="connect-json", revision="4.4.0"),
        *(
            Module(organisation=organisation, name=name, revision=revision, alone=True)
            for organisation, name, revision in own
        ),
        *java_avro().modules,
    )
    return Bundle(name="debezium", version=_DEBEZIUM, modules=modules)
