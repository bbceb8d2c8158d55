"""Who appends to a partition, and what a broker acknowledges: frozen, picklable values without behavior. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_eos.kafka.partitions import TopicPartition


class ProducerEpoch(NamedTuple):
    """A producer id and its epoch (KIP-98): each epoch has one transaction. `NOBODY` also where it is unknown."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id}, epoch {self.epoch}"


NOBODY = ProducerEpoch(producer_id=-1, epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What makes an append part of a transaction (KIP-98): shared by every process that appends to it.

    `transaction_version` is the protocol with which the transaction started (2: KIP-890). During a rolling upgrade,
    brokers may return different versions, and a transaction must not mix them.

    If idempotence is only `requested`, a topic whose message format has no room for a producer id is appended to
    without it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int = 0
    requested: bool = False

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)

    @property
    def is_idempotent(self) -> bool:
        """Whether brokers recognize a record batch that is sent again."""
        return self.producer_id >= 0


# Who appends without a producer id: a request that is sent again may append its records again.
PLAIN = ProducerIdentity(transactional_id="", producer_id=-1, epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The leader's acknowledgement of a record batch: `base_offset` is that of the first record, -1 if the broker no
    longer knows it.
    """

    partition: TopicPartition
    base_sequence: int
    records: int
    bytes: int
    base_offset: int
