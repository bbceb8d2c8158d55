"""How a micro-batch's rows are encoded: its options, and its output topics as the cluster describes them."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping

from spark_kafka_eos.appending.blocks import EncodeSettings, Target
from spark_kafka_eos.dead_letters.rows import DeadLetterTopic
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.outputs import OutputTopic, names
from spark_kafka_eos.options.reserved import reserved_topics


def encode_settings(
    options: SinkOptions,
    topic: str | None,
    cluster: Cluster | None = None,
    *,
    topics: Collection[str] = (),
    query_id: str | None = None,
    batch_id: int | None = None,
    schema_ids: frozenset[tuple[str, int]] = frozenset(),
    batch_name: str = "",
) -> EncodeSettings:
    """For rows that all go to `topic`, or each to its own topic, limited to `outputTopics` if set. `topics` are those
    of the rows' own that the user's code names: if one does not exist, that is no row's fault. `query_id` and
    `batch_id` are for the headers of dead letters. `batch_name` is one that no other batch has: the partition where
    rows without a key begin follows from it, so that all tasks and their attempts agree.

    With a `cluster`, the topics are looked up here, so that all tasks agree; raises UnknownTopic, and
    ConfigurationError for a topic that no record may go to, and for a declared partition that does not exist. Without
    one, each task looks them up.
    """
    given = {*topics, *(() if topic is None else (topic,))}
    aside = () if options.dead_letter_topic is None else (options.dead_letter_topic,)
    named = {*given, *aside, *names(options.output_topics)}
    known_targets = {} if cluster is None else targets(cluster, named, options.ledger_topic)
    _check_partitions(options.output_topics, known_targets)
    dead_letters = options.dead_letter_topic and DeadLetterTopic(
        topic=options.dead_letter_topic,
        query_id=query_id,
        batch_id=batch_id,
        transactional_id=options.transactional_id or None,
        ledger_key=options.ledger_key[0] if options.ledger_key else None,
    )
    for name, target in known_targets.items():
        if target.reserved is not None:
            option = (
                "topic"
                if name in given
                else "outputTopics"
                if name in names(options.output_topics)
                else "deadLetterTopic"
            )
            raise ConfigurationError(option, f"names {name}, but that {target.reserved}", action="Name another topic.")
    return EncodeSettings(
        topic=topic,
        targets=known_targets,
        output_topics=options.output_topics,
        ledger_topic=options.ledger_topic,
        partitioner=options.partitioner,
        start=zlib.crc32(batch_name.encode()),
        compression_type=options.compression_type,
        max_request_size=options.max_request_size,
        links=options.open_telemetry_links,
        dead_letters=dead_letters or None,
        schema_ids=schema_ids,
    )


def known_partitions(settings: EncodeSettings, *, rows: int | None, chosen_by_rows: bool) -> list[TopicPartition]:
    """The partitions that a batch surely or very probably writes, so that they can be added to its transaction before
    its rows are encoded (KIP-609).

    They are those that `outputTopics` declares, or all partitions of the one topic that has all rows: unless the rows
    choose their partitions (`chosen_by_rows`), or may be so few that they leave some out. `rows` is their expected
    number, None if unknown. In a partition that is added in vain, the commit writes a marker.
    """
    if (declared := [output for output in settings.output_topics if settings.topic in (None, output.topic)]) and any(
        output.partitions is not None for output in declared
    ):
        return [tp for output in declared for tp in output.named()]
    if settings.topic is None or chosen_by_rows:
        return []
    count = settings.targets[settings.topic].partitions
    return [TopicPartition(settings.topic, number) for number in range(count)] if (rows or 0) >= count else []


def _check_partitions(declared: Iterable[OutputTopic], known_targets: Mapping[str, Target]) -> None:
    for output in declared:
        if output.topic in known_targets and max(output.partitions or {0}) >= (
            count := known_targets[output.topic].partitions
        ):
            raise ConfigurationError(
                "outputTopics",
                f"declares {output}, but topic {output.topic!r} has {count} partitions, from 0 on",
                action="Correct the partitions, or give the topic more.",
            )


def target(cluster: Cluster, topic: str, ledger_topic: str) -> Target:
    """Look up an output topic of a query with this `ledger_topic`, "" for none. Raises UnknownTopic."""
    return targets(cluster, [topic], ledger_topic)[topic]


def targets(cluster: Cluster, topics: Collection[str], ledger_topic: str) -> dict[str, Target]:
    """Look up output topics, with two requests for all of them. Raises UnknownTopic."""
    cluster.look_up(topics)
    reserved = reserved_topics(ledger_topic)
    cluster.look_up_reserved(reserved)
    limits = describe.topic_limits(cluster, topics)
    return {
        name: Target(
            partitions=len(cluster.topic(name).partitions),
            limits=limits[name],
            reserved=cluster.why_reserved(name, reserved),
        )
        for name in sorted(topics)
    }
