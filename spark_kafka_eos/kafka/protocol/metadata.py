"""A topic's description, as a broker knows it, and which of two descriptions is right: brokers learn of changes late.
Pure.

A broker that is isolated or has just started describes topics as they once were. Two facts distinguish old from new: a
leader's epoch only grows (KIP-101), and a topic never loses a partition. Both hold for one topic id (KIP-516). Between
two ids, the caller decides. Java's client compares epochs as well (Metadata, KIP-320).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition's leader (a broker's node id, -1 for none) and the epoch in which it leads (KIP-101)."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic; `id` changes when it is deleted and created again (KIP-516). `internal`: only brokers may write it."""

    name: str
    id: uuid.UUID
    partitions: Mapping[int, PartitionDescription]
    internal: bool = False


def newest(before: TopicDescription | None, fetched: TopicDescription) -> TopicDescription:
    """`fetched`, but with what `before` knew better of the same topic: later leaders, further partitions."""
    if before is None or before.id != fetched.id:
        return fetched
    partitions = dict(fetched.partitions)
    for number, partition in before.partitions.items():
        if number not in partitions or partitions[number].leader_epoch < partition.leader_epoch:
            partitions[number] = partition
    return replace(fetched, partitions=dict(sorted(partitions.items())))
