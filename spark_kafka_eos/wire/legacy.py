"""Message sets, the format before Kafka 0.11 (magic 0 and 1): detects and rejects them.

Kafka 4.0 dropped them (KIP-724). An older broker can still return them from old segments, or for a topic with
`message.format.version` below 0.11.
"""

from __future__ import annotations

from spark_kafka_eos.errors import CorruptRecordBatch


def refusal(magic: int, position: int, base_offset: int) -> CorruptRecordBatch:
    """The error for a record batch at `position` of a buffer whose magic byte is not 2."""
    where = f"at offset {base_offset} (byte {position} of the fetched data)"
    if magic in (0, 1):
        return CorruptRecordBatch(
            f"found a message set of the old format (magic {magic}) {where}; only record batches v2 (Kafka 0.11) are "
            "supported",
            action="Read this range with Spark's built-in kafka source, or start after it (startingOffsets).",
        )
    return CorruptRecordBatch(f"unknown magic {magic} {where}")
