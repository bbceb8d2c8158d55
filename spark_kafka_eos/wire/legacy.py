"""What brokers kept before Kafka 0.11: message sets, magic 0 and 1. Recognised, and refused with a way out.

Kafka 4.0 dropped them (KIP-724); an older broker can still hand them out from segments written long ago, or for a topic
with `message.format.version` below 0.11.
"""

from __future__ import annotations

from spark_kafka_eos.errors import CorruptRecordBatch


def refusal(magic: int, position: int, base_offset: int) -> CorruptRecordBatch:
    """The error for a record batch at `position` of a buffer whose magic byte is not 2."""
    where = f"at offset {base_offset} (byte {position} of the fetched data)"
    if magic in (0, 1):
        return CorruptRecordBatch(
            f"a message set of the old format (magic {magic}) {where}; only record batches v2 (Kafka 0.11) are read",
            action="Read this range with Spark's built-in kafka source, or start behind it (startingOffsets).",
        )
    return CorruptRecordBatch(f"unknown magic {magic} {where}")
