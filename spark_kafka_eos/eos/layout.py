"""The layout of a micro-batch, asked of the cluster once on the driver so that all tasks agree."""

from __future__ import annotations

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.eos.blocks import Layout
from spark_kafka_eos.options import SinkOptions


def layout(cluster: Cluster, options: SinkOptions, topic: str | None) -> Layout:
    """Where rows may go: all to `topic`, or each to its own, among `outputTopics` if given. Raises UnknownTopic."""
    known = {name for name in (topic, *options.output_topics) if name is not None}
    return Layout(
        topic=topic,
        partitions={name: len(cluster.topic(name).partitions) for name in sorted(known)},
        registered=options.output_topics,
        partitioner=options.partitioner,
        compression=options.compression,
        max_block_bytes=options.max_request_size,
    )
