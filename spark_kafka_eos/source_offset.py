"""The source's offset in Spark's checkpoint: the end of a batch, and what else the source records with it. Pure.

    {"origin={…}": {}, "bounds={…}": {}, "sinks=[…]": {}, "start={…}": {}, "orders": {"0": 23, "1": 20}}

Offsets are those of Kafka: the position of the next record to read. All else is JSON in the name of a "topic" without
partitions. No topic's name has the character =, and without partitions it means nothing to others who read these
offsets, such as the built-in source. Only this module reads and writes that text; a part that is empty is left out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from spark_kafka_eos.kafka.partitions import (
    Offsets,
    TopicPartition,
    numbers_to_text,
    offsets_from_json,
    offsets_to_json,
    ranges_from_text,
)

JsonOffsets = dict[str, dict[str, int]]

# Instead of a stream's first offsets: they are the start in the end of batch 0. No topic has this name.
UNRESOLVED: Mapping[str, Mapping[str, int]] = {"": {}}
_START, _ORIGIN, _BOUNDS, _SINKS, _TICK = "start=", "origin=", "bounds=", "sinks=", "tick="


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkIdentity:
    """Under which transactional.id a sink commits, in which ledger topic on the cluster with which id; what is unknown
    is empty.
    """

    transactional_id: str
    ledger_topic: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """Where a micro-batch of the source ends, and what the source must know again after a restart.

    `start` is where a query's first batch begins, None in the end of any other. `origin` says which records the offsets
    mean, None if it is not recorded. `bounds` is where the stream ends: for each time in ms since 1970, the offsets of
    the first records with it or a later one. `sinks` are those by whose commits the source of a first batch goes.
    `tick` counts the batches in real time, which follow one another whether anything was written or not.
    """

    offsets: Offsets
    start: Offsets | None = None
    origin: Origin | None = None
    bounds: Mapping[int, Offsets] = field(default_factory=dict)
    sinks: tuple[SinkIdentity, ...] = ()
    tick: int = 0

    def to_json(self) -> JsonOffsets:
        """Equal offsets have equal text, whose order is that of all releases: Spark compares it."""
        parts: dict[str, object] = {}
        if self.origin is not None:
            parts[_ORIGIN] = origin_to_json(self.origin)
        if self.bounds:
            parts[_BOUNDS] = {str(time): offsets_to_json(self.bounds[time]) for time in sorted(self.bounds)}
        if self.sinks:
            parts[_SINKS] = [
                {"id": sink.transactional_id, "topic": sink.ledger_topic, "cluster": sink.cluster}
                for sink in self.sinks
            ]
        if self.tick:
            parts[_TICK] = self.tick
        names = [name + json.dumps(part, separators=(",", ":")) for name, part in parts.items()]
        if self.start is not None:
            names.append(_START + json.dumps(offsets_to_json(self.start)))
        return {name: {} for name in names} | offsets_to_json(self.offsets)

    @classmethod
    def from_json(cls, value: Mapping[str, Mapping[str, int]]) -> Self:
        """Inverse of `to_json`; also for offsets that the built-in source has written. Raises ValueError for any other
        form.
        """
        start, origin, bounds = _part(value, _START), _part(value, _ORIGIN), _part(value, _BOUNDS)
        return cls(
            offsets=offsets_from_json(value),
            start=None if start is None else offsets_from_json(start),
            origin=None if origin is None else origin_from_json(json.loads(origin)),
            bounds={int(time): offsets_from_json(ends) for time, ends in json.loads(bounds or "{}").items()},
            sinks=tuple(map(_sink, json.loads(_part(value, _SINKS) or "[]"))),
            tick=int(json.loads(_part(value, _TICK) or "0")),
        )

    @classmethod
    def of(cls, value: object) -> Self | None:
        """`from_json` of `{topic: {partition: offset}}`; None for any other value, as other sources' offsets are."""
        if not isinstance(value, Mapping) or not all(map(_are_of_a_topic, value.values())):
            return None
        return cls.from_json(value)


def _part(value: Mapping[str, object], name: str) -> str | None:
    return next((topic.removeprefix(name) for topic in value if topic.startswith(name)), None)


def _are_of_a_topic(partitions: object) -> bool:
    return isinstance(partitions, Mapping) and all(
        key.isdigit() and isinstance(offset, int) for key, offset in partitions.items()
    )


def _sink(value: object) -> SinkIdentity:
    match value:
        case {"id": str(transactional_id), "topic": str(topic), "cluster": str(cluster)}:
            return SinkIdentity(transactional_id=transactional_id, ledger_topic=topic, cluster=cluster)
    raise ValueError(f"expected id, topic and cluster, got {value!r}")


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
