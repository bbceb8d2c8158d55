"""Producer epochs, and sequence numbers of record batches: per epoch and partition, from 0, wrapping from 2^31 - 1 to 0
(KIP-98). Pure.

A batch of n records with base sequence s has s to s + n - 1; the broker accepts a batch only if its base sequence
follows the end of the last one (otherwise error 45, OUT_OF_ORDER_SEQUENCE_NUMBER).
"""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_eos.kafka.producer import ProducerIdentity

LAST_EPOCH = 2**15 - 1  # of a producer id; in transactions, it is only used for fencing
# int32 without its sign bit: a mask wraps the number.
_MASK = 0x7FFF_FFFF


def next_sequence(base_sequence: int, records: int) -> int:
    """The base sequence of the batch that follows one of `records` records at `base_sequence`."""
    return (base_sequence + records) & _MASK


def next_epoch(identity: ProducerIdentity) -> ProducerIdentity | None:
    """The following epoch of an idempotent producer without transactions, None after the last one.

    It needs no request: without a transactional.id, InitProducerId always returns a new producer id, so Java's client
    also raises the epoch by itself (KIP-360). Brokers accept it if the sequences start at 0.
    """
    return None if identity.epoch >= LAST_EPOCH else replace(identity, epoch=identity.epoch + 1)
