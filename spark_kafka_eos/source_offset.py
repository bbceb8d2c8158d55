"""The source's offset in Spark's checkpoint: the end of a batch, and what else the source records with it.

Offsets are those of Kafka: the position of the next record to read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_kafka_eos.kafka.partitions import (
    Offsets,
    TopicPartition,
    numbers_to_text,
    offsets_from_json,
    offsets_to_json,
    ranges_from_text,
)

# Instead of a stream's first offsets: they are in the end of batch 0 (`with_start`). No topic has this name.
UNRESOLVED: Mapping[str, Mapping[str, int]] = {"": {}}
# No topic's name has the character =. Without partitions, it means nothing to others who read these offsets, such
# as the built-in source.
_START, _ORIGIN, _BOUNDS, _SINKS = "start=", "origin=", "bounds=", "sinks="


def with_start(end: Offsets, start: Offsets) -> dict[str, dict[str, int]]:
    """`offsets_to_json(end)`, and in the name of a further "topic" without partitions where this first batch starts."""
    return {_START + json.dumps(offsets_to_json(start)): {}} | offsets_to_json(end)


def recorded_start(end: Mapping[str, object]) -> dict[TopicPartition, int] | None:
    """The start that `with_start` added, None if there is none."""
    names = [name for name in end if name.startswith(_START)]
    return offsets_from_json(names[0].removeprefix(_START)) if names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which records a source's offsets mean: those of topics with these ids (KIP-516), on the cluster with this id
    (KIP-78).

    `leader_epochs` has the epoch of each partition's leader when the offsets were planned (KIP-320): a log that was
    truncated since has other records at them. `finds_pattern` is False if subscribePattern may have been compared with
    whole names of topics when they were planned, as earlier releases did.
    """

    cluster: str
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    finds_pattern: bool = False


def origin_to_json(origin: Origin) -> dict[str, object]:
    """`{"cluster": id, "topics": {topic: id}, "epochs": {topic: epoch or {epoch: partitions}}}`, sorted; and
    `"pattern": "find"`.
    """
    pattern: dict[str, object] = {"pattern": "find"} if origin.finds_pattern else {}
    return {
        "cluster": origin.cluster,
        "topics": {name: str(topic_id) for name, topic_id in sorted(origin.topic_ids.items())},
        "epochs": _epochs_to_json(origin.leader_epochs),
    } | pattern


def origin_from_json(value: object) -> Origin:
    """Inverse of `origin_to_json`. Raises ValueError for any other form."""
    match value:
        case {"cluster": str(cluster), "topics": dict(topics), "epochs": dict(epochs), **more}:
            return Origin(
                cluster=cluster,
                topic_ids={str(name): uuid.UUID(str(topic_id)) for name, topic_id in topics.items()},
                leader_epochs=_epochs_from_json(epochs),
                finds_pattern=more.get("pattern") == "find",
            )
    raise ValueError(f"expected a cluster, topics and epochs, got {value!r}")


def _epochs_to_json(epochs: Mapping[TopicPartition, int]) -> dict[str, dict[str, str]]:
    """`{topic: {epoch: "0-5,7"}}`: most partitions of a topic have the same epoch."""
    by_topic: dict[str, dict[str, list[int]]] = {}
    for tp in sorted(epochs):
        by_topic.setdefault(tp.topic, {}).setdefault(str(epochs[tp]), []).append(tp.partition)
    return {
        topic: {epoch: numbers_to_text(partitions) for epoch, partitions in by_epoch.items()}
        for topic, by_epoch in by_topic.items()
    }


def _epochs_from_json(value: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): int(epoch)
        for topic, by_epoch in value.items()
        for epoch, partitions in by_epoch.items()
        for first, last in ranges_from_text(partitions)
        for number in range(first, last + 1)
    }


def with_origin(end: Mapping[str, Mapping[str, int]], origin: Origin) -> dict[str, dict[str, int]]:
    """`end`, and in the name of a further "topic" without partitions which records it means."""
    text = json.dumps(origin_to_json(origin), separators=(",", ":"))
    return {_ORIGIN + text: {}} | {name: dict(partitions) for name, partitions in end.items()}


def recorded_origin(end: Mapping[str, object]) -> Origin | None:
    """The origin that `with_origin` added, None if there is none."""
    names = [name for name in end if name.startswith(_ORIGIN)]
    return origin_from_json(json.loads(names[0].removeprefix(_ORIGIN))) if names else None


def with_bounds(end: Mapping[str, Mapping[str, int]], bounds: Mapping[int, Offsets]) -> dict[str, dict[str, int]]:
    """`end`, and in the name of a further "topic" without partitions where the stream ends: `bounds` has, for each time
    in ms, the offsets of the first records with it or a later one. Without bounds, `end` alone.
    """
    by_time = {str(time): offsets_to_json(bounds[time]) for time in sorted(bounds)}
    added: dict[str, dict[str, int]] = {_BOUNDS + json.dumps(by_time, separators=(",", ":")): {}} if bounds else {}
    return added | {name: dict(partitions) for name, partitions in end.items()}


def recorded_bounds(end: Mapping[str, object]) -> dict[int, dict[TopicPartition, int]]:
    """The bounds that `with_bounds` added, empty if there are none."""
    names = [name for name in end if name.startswith(_BOUNDS)]
    by_time = json.loads(names[0].removeprefix(_BOUNDS)) if names else {}
    return {int(time): offsets_from_json(offsets) for time, offsets in by_time.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkIdentity:
    """Under which transactional.id a sink commits, in which ledger topic on the cluster with which id; what is unknown
    is empty.
    """

    transactional_id: str
    ledger_topic: str = ""
    cluster: str = ""


def with_sinks(end: Mapping[str, Mapping[str, int]], sinks: Iterable[SinkIdentity]) -> dict[str, dict[str, int]]:
    """`end` of a query's first batch, and in the name of a further "topic" without partitions the sinks by whose
    commits its source goes. Without sinks, `end` alone.
    """
    fields = [{"id": sink.transactional_id, "topic": sink.ledger_topic, "cluster": sink.cluster} for sink in sinks]
    added: dict[str, dict[str, int]] = {_SINKS + json.dumps(fields, separators=(",", ":")): {}} if fields else {}
    return added | {name: dict(partitions) for name, partitions in end.items()}


def recorded_sinks(end: Mapping[str, object]) -> tuple[SinkIdentity, ...]:
    """The sinks that `with_sinks` added, empty if there are none. Raises ValueError for any other form."""
    names = [name for name in end if name.startswith(_SINKS)]
    sinks: list[SinkIdentity] = []
    for fields in json.loads(names[0].removeprefix(_SINKS)) if names else ():
        match fields:
            case {"id": str(transactional_id), "topic": str(topic), "cluster": str(cluster)}:
                sinks.append(SinkIdentity(transactional_id=transactional_id, ledger_topic=topic, cluster=cluster))
            case _:
                raise ValueError(f"expected id, topic and cluster, got {fields!r}")
    return tuple(sinks)
