"""Where rows may go and how large blocks may get: asked of the cluster by the driver, or by a task where none did."""

from __future__ import annotations

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.blocks import Layout, Target


def layout(options: SinkOptions, topic: str | None, cluster: Cluster | None = None) -> Layout:
    """All rows go to `topic`, or each to its own, among `outputTopics` if given.

    With a `cluster` the topics that are named are looked up (raises UnknownTopic), so that all tasks agree; without one
    each task does it.
    """
    named = {name for name in (topic, *options.output_topics) if name is not None}
    return Layout(
        topic=topic,
        targets={} if cluster is None else {name: target(cluster, name) for name in sorted(named)},
        registered=options.output_topics,
        partitioner=options.partitioner,
        compression=options.compression,
        max_block_bytes=options.max_request_size,
    )


def target(cluster: Cluster, topic: str) -> Target:
    """What the cluster says of a topic that is written. Raises UnknownTopic."""
    partitions = len(cluster.topic(topic).partitions)
    return Target(partitions=partitions, max_message_bytes=describe.max_message_bytes(cluster, topic))
