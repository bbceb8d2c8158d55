"""The transactional ids of the buckets of a run in real time (`real_time`), and how a driver takes them."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.transactions import init_producer_id
from spark_kafka_eos.options import SinkOptions

_TIMEOUT_MS = 10_000  # a transaction lasts milliseconds; one that a killed worker leaves open holds readers back


def bucket_id(transactional_id: str, number: int) -> str:
    """The transactional id of a bucket: that of the query, and the bucket's number."""
    return f"{transactional_id}.bucket-{number}"


def take_buckets(cluster: Cluster, options: SinkOptions, numbers: Iterable[int]) -> dict[int, ProducerIdentity]:
    """A new epoch for each of these buckets: what is open is aborted, what is being committed is waited for, and
    whoever had it can commit nothing more. Only for who has taken the query's own transactional id. Raises
    what InitProducerId raises.
    """
    timeout_ms = min(options.transaction_timeout_ms, _TIMEOUT_MS)
    return {
        number: init_producer_id(cluster, bucket_id(options.transactional_id, number), timeout_ms)
        for number in sorted(numbers)
    }
