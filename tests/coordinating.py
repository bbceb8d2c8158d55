"""The requests to the coordinator of one transactional id, for tests that send several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import transactions
from spark_kafka_eos.kafka.protocol.cluster import Cluster


class TransactionCoordinator:
    """Of `transactional_id`; it aborts transactions after `timeout_ms`."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_ms: int | None, *, transaction_version: int | None = None
    ) -> None:
        self.cluster, self.transactional_id, self._timeout_ms = cluster, transactional_id, timeout_ms
        self._version = transaction_version

    @property
    def transaction_version(self) -> int:
        return self.cluster.transaction_version() if self._version is None else self._version

    def init_producer_id(
        self, previous: ProducerIdentity | None = None, *, again: Callable[[], None] = lambda: None
    ) -> ProducerIdentity:
        return transactions.init_producer_id(
            self.cluster,
            self.transactional_id,
            self._timeout_ms,
            previous,
            transaction_version=self._version,
            again=again,
        )

    def add_partitions(self, identity: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
        transactions.add_partitions(self.cluster, identity, partitions)

    def add_offsets(self, identity: ProducerIdentity, group_id: str) -> None:
        transactions.add_offsets(self.cluster, identity, group_id)

    def end(self, identity: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
        return transactions.end_transaction(self.cluster, identity, commit=commit)
