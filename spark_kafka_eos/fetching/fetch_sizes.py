"""How many bytes to request, estimated from the size of previous records."""

from __future__ import annotations

from spark_kafka_eos.model import TopicPartition

# The assumed size of a record until the first response shows it; and how much more than the estimate is asked for, so
# that a range rarely needs one more round trip, yet a small range of a large topic does not fetch megabytes in vain.
_BYTES_PER_OFFSET = 128.0
_SURPLUS, _SURPLUS_BYTES = 1.25, 65_536


class FetchSizes:
    """Estimates per partition, limited to `max_partition_fetch_bytes`."""

    def __init__(self, max_partition_fetch_bytes: int) -> None:
        self._max_partition_fetch_bytes = max_partition_fetch_bytes
        self._bytes_per_offset: dict[TopicPartition, float] = {}
        self._lacking: dict[TopicPartition, int] = {}

    def bytes_for(self, partition: TopicPartition, offsets: int) -> int:
        """How many bytes to request for this number of offsets."""
        estimate = self._bytes_per_offset.get(partition, _BYTES_PER_OFFSET) * offsets
        wanted = max(int(estimate * _SURPLUS) + _SURPLUS_BYTES, self._lacking.get(partition, 0))
        return min(self._max_partition_fetch_bytes, wanted)

    def learn(self, partition: TopicPartition, *, size: int, offsets: int) -> None:
        """Note that this number of offsets took `size` bytes."""
        self._bytes_per_offset[partition] = size / max(offsets, 1)
        self._lacking.pop(partition, None)

    def lacks(self, partition: TopicPartition, size: int) -> None:
        """Note that the next record batch has `size` bytes, and was truncated. If less is asked for, it only comes when
        the partition is a request's first one: one partition per request.
        """
        self._lacking[partition] = size
