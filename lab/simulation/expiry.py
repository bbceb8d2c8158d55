"""A week without commits, at whose end brokers have forgotten offsets and producers.

By default, brokers keep committed offsets for seven days (`offsets.retention.minutes`), a transactional.id's state for
seven days (`transactional.id.expiration.ms`), and a leader's producer state for one day (`producer.id.expiration.ms`).
Each coordinator checks for expired state every ten minutes, independently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lab.simulation.kafka import ModelKafka
from lab.simulation.world import World

RETENTION_S = 7 * 86_400.0
_LOOKS_EVERY_S = 600.0


def stand_still(world: World, kafka: ModelKafka, groups: Iterable[str]) -> float:
    """Begin a week in which groups and possibly producers expire; return its length in seconds.

    It may end when only a part has expired. State that is used in the meantime does not expire.
    """
    world.fault("group expired")

    def later(why: str, action: Callable[[], None]) -> None:
        world.after(RETENTION_S + world.chance.fraction("expires after") * _LOOKS_EVERY_S, why, action)

    for group_id in groups:
        later(f"the offsets of group {group_id} expire", partial(kafka.expire_group, group_id, RETENTION_S))
    if world.chance.happens("ids expire", 0.5):
        world.faults["ids expired"] += 1
        later(
            "ids expire",
            partial(kafka.expire_producers, transactional_ids=world.chance.happens("transactional ids expire", 0.5)),
        )
    return RETENTION_S + world.chance.fraction("week's end") * 2 * _LOOKS_EVERY_S
