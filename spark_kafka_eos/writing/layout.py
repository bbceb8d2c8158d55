"""Reads the partitions and size limits of output topics from the cluster, on the driver or in a task."""

from __future__ import annotations

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.blocks import Layout, Target


def layout(options: SinkOptions, topic: str | None, cluster: Cluster | None = None) -> Layout:
    """The layout for rows that all go to `topic`, or each to its own topic, limited to `outputTopics` if set.

    With a `cluster`, the topics are looked up here (raises UnknownTopic), so that all tasks agree; without one, each
    task looks them up.
    """
    named = {name for name in (topic, *options.output_topics) if name is not None}
    return Layout(
        topic=topic,
        targets={} if cluster is None else {name: target(cluster, name) for name in sorted(named)},
        output_topics=options.output_topics,
        partitioner=options.partitioner,
        compression_type=options.compression_type,
        max_request_size=options.max_request_size,
        links=options.open_telemetry_links,
    )


def target(cluster: Cluster, topic: str) -> Target:
    """Look up an output topic. Raises UnknownTopic."""
    partitions = len(cluster.topic(topic).partitions)
    return Target(partitions=partitions, max_message_bytes=describe.max_message_bytes(cluster, topic))
