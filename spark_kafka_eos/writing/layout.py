"""Reads the partitions and size limits of output topics from the cluster, on the driver or in a task."""

from __future__ import annotations

from collections.abc import Collection

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.blocks import Layout, Target
from spark_kafka_eos.writing.dead_letters import DeadLetterTopic


def layout(
    options: SinkOptions,
    topic: str | None,
    cluster: Cluster | None = None,
    *,
    query_id: str | None = None,
    batch_id: int | None = None,
) -> Layout:
    """The layout for rows that all go to `topic`, or each to its own topic, limited to `outputTopics` if set.
    `query_id` and `batch_id` are for the headers of dead letters.

    With a `cluster`, the topics are looked up here (raises UnknownTopic, and ConfigurationError for one that no record
    may go to), so that all tasks agree; without one, each task looks them up.
    """
    named = {name for name in (topic, options.dead_letter_topic, *options.output_topics) if name is not None}
    dead_letters = options.dead_letter_topic and DeadLetterTopic(
        topic=options.dead_letter_topic,
        query_id=query_id,
        batch_id=batch_id,
        transactional_id=options.transactional_id or None,
    )
    found = {} if cluster is None else targets(cluster, named, options.ledger_topic)
    for name, each in found.items():
        if each.reserved is not None:
            option = (
                "topic" if name == topic else "outputTopics" if name in options.output_topics else "deadLetterTopic"
            )
            raise ConfigurationError(option, f"names {name}, but that {each.reserved}", action="Name another topic.")
    return Layout(
        topic=topic,
        targets=found,
        output_topics=options.output_topics,
        ledger_topic=options.ledger_topic,
        partitioner=options.partitioner,
        compression_type=options.compression_type,
        max_request_size=options.max_request_size,
        links=options.open_telemetry_links,
        dead_letters=dead_letters or None,
    )


def target(cluster: Cluster, topic: str, ledger_topic: str) -> Target:
    """Look up an output topic of a query with this `ledger_topic`, "" for none. Raises UnknownTopic."""
    return targets(cluster, [topic], ledger_topic)[topic]


def targets(cluster: Cluster, topics: Collection[str], ledger_topic: str) -> dict[str, Target]:
    """Look up output topics, with two requests for all of them. Raises UnknownTopic."""
    cluster.look_up(topics)
    limits = describe.max_message_bytes(cluster, topics)
    return {
        name: Target(
            partitions=len(cluster.topic(name).partitions),
            max_message_bytes=limits[name],
            reserved=cluster.why_reserved(name, ledger_topic),
        )
        for name in sorted(topics)
    }
