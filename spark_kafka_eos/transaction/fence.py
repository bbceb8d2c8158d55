"""The fence: keeps late requests with an old epoch out of all partitions, where brokers do not verify transactions.

TV1 without verification (before Kafka 3.6, or `transaction.partition.verification.enable=false`): the markers of
EndTxn(abort) have the aborted epoch, and InitProducerId writes no markers. So a leader would accept an append with that
epoch until the next epoch reaches its partition, and commit it with the next transaction. Hence the fence: every
partition that may be written is added to the transaction under the old epoch. InitProducerId of a new producer then
aborts it and writes markers with the next epoch to all of them.
"""

from __future__ import annotations

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.sequences import LAST_EPOCH
from spark_kafka_eos.kafka.protocol import describe, transactions
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import Settings, TransactionFacts, Unavailable
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import written_topics

_VERIFICATION = "transaction.partition.verification.enable"


class Fence:
    """The fence of one transactional.id. `ledger` is None if batches have no ledger entry."""

    def __init__(self, options: SinkOptions, cluster: Cluster, ledger: LedgerTopic | None) -> None:
        self._options, self._cluster, self._ledger = options, cluster, ledger
        self._settings: Settings | Unavailable | None = None  # None: not asked yet

    def needed(self, transaction_version: int) -> bool:
        """Whether a straggler with an old epoch could still append."""
        return transaction_version < 2 and not self._verified()

    def apply(self, last: ProducerIdentity, *, was_committed: bool) -> None:
        """Add every partition and group that stragglers may reach to the transaction of `last`.

        InitProducerId of a new producer must follow: it aborts the transaction. Raises ProducerFenced if `last` is no
        longer the last owner, ConfigurationError if the output topics are not known.
        """
        partitions = self._partitions(was_committed=was_committed)
        transactions.add_partitions(self._cluster, last, partitions)
        if self._ledger is not None:
            for group in dict.fromkeys((self._options.ledger_group, self._options.group_id)):
                transactions.add_offsets(self._cluster, last, group)

    def _partitions(self, *, was_committed: bool) -> list[TopicPartition]:
        any_topic = self._options.topic is None and not self._options.output_topics
        if any_topic and not was_committed:
            raise ConfigurationError(
                "outputTopics",
                f"is required after an aborted transaction of {self._options.transactional_id!r}: these brokers may "
                "still accept its late records in any topic",
                action="List all output topics in outputTopics, or have the brokers verify partitions "
                f"({_VERIFICATION}=true, Kafka 3.6 or later).",
            )
        topics = written_topics(self._options)
        self._cluster.refresh(topics)  # a straggler may be on its way to a partition that was just added
        partitions = [TopicPartition(name, n) for name in topics for n in self._cluster.topic(name).partitions]
        if self._ledger is not None:
            self._ledger.ensure()
            partitions.append(self._ledger.at)
        return partitions

    def unseen(self) -> Unavailable | None:
        """Why it is not known whether the brokers verify: `needed` then takes it that they do not."""
        settings = self._settings
        return settings if isinstance(settings, Unavailable) else None

    def _verified(self) -> bool:
        """Whether brokers accept appends only to partitions that the coordinator has added to the transaction."""
        if self._settings is None:
            self._settings = describe.coordinator_settings(
                self._cluster, self._options.transactional_id, (_VERIFICATION,)
            )
        return not isinstance(self._settings, Unavailable) and self._settings[_VERIFICATION] == "true"


def last_owner(transactional_id: str, facts: TransactionFacts) -> ProducerIdentity | None:
    """The producer whose stragglers must be fenced; None if there is none.

    There is none if the id was never used, or so long ago that no request can be in flight. Or an abort has just fenced
    the last epoch that a producer id has for transactions; nothing may be added under the one after it.
    """
    if facts.producer_id < 0 or facts.epoch >= LAST_EPOCH:
        return None
    return ProducerIdentity(transactional_id=transactional_id, producer_id=facts.producer_id, epoch=facts.epoch)
