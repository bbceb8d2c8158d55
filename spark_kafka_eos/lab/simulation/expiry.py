"""A week in which nobody commits anything: what brokers have forgotten at its end.

By default committed offsets are kept for seven days (`offsets.retention.minutes`), and so is what a coordinator knows
of a transactional.id (`transactional.id.expiration.ms`); what a leader knows of a producer for one
(`producer.id.expiration.ms`). Each coordinator looks for what has expired every ten minutes, on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from spark_kafka_eos.lab.simulation.kafka import ModelKafka
from spark_kafka_eos.lab.simulation.world import World

RETENTION_S = 7 * 86_400.0
_LOOKS_EVERY_S = 600.0


def stand_still(world: World, kafka: ModelKafka, groups: Iterable[str]) -> float:
    """Let this be the beginning of a week in which groups expire, and producers perhaps; returns its length in seconds.

    It may end when some of it has expired and the rest has not. What somebody commits to in the meantime stays.
    """
    world.fault("group expired")

    def later(why: str, action: Callable[[], None]) -> None:
        world.after(RETENTION_S + world.random.random() * _LOOKS_EVERY_S, why, action)

    for group_id in groups:
        later(f"the offsets of group {group_id} expire", partial(kafka.expire_group, group_id, RETENTION_S))
    if world.chance(0.5):
        world.faults["ids expired"] += 1
        later("ids expire", partial(kafka.expire_producers, transactional_ids=world.chance(0.5)))
    return RETENTION_S + world.random.random() * 2 * _LOOKS_EVERY_S
