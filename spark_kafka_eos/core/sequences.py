"""Sequence numbers of record batches: per producer epoch and partition, from 0, wrapping from 2^31 - 1 to 0 (KIP-98).

A batch of n records with base sequence s has s to s + n - 1; the broker accepts a batch only if its base sequence
follows the end of the last one (otherwise error 45, OUT_OF_ORDER_SEQUENCE_NUMBER).
"""

from __future__ import annotations

# int32 without its sign bit: a mask wraps the number.
_MASK = 0x7FFF_FFFF


def next_sequence(base_sequence: int, records: int) -> int:
    """The base sequence of the batch that follows one of `records` records at `base_sequence`."""
    return (base_sequence + records) & _MASK
