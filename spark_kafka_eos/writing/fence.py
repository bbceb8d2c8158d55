"""The fence: no late request of an epoch that is over reaches a partition any more, where brokers do not verify.

TV1 without verification (before Kafka 3.6, or `transaction.partition.verification.enable=false`): the markers of
EndTxn(abort) carry the epoch that is given up, and InitProducerId writes none. So a leader would take a straggler's
append with that epoch until the next epoch reaches its partition, and commit it with that one's transaction. Hence:
under the old epoch every partition that may be written joins the transaction. InitProducerId of a newcomer then aborts
it, with markers of the next epoch in all of them.
"""

from __future__ import annotations

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.ledger_topic import LedgerTopic
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core.preflight import TransactionFacts, Unread
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions

_LAST_EPOCH = 2**15 - 1  # of a producer id, for fencing only
_VERIFICATION = "transaction.partition.verification.enable"


class Fence:
    """For one transactional.id. `ledger` is None where batches have no ledger entry."""

    def __init__(
        self, options: SinkOptions, cluster: Cluster, coordinator: TransactionCoordinator, ledger: LedgerTopic | None
    ) -> None:
        self._options, self._cluster, self._coordinator, self._ledger = options, cluster, coordinator, ledger
        self._verifies: bool | None = None  # once it was asked for

    def needed(self) -> bool:
        """Whether a straggler of an epoch that is over could still append."""
        return self._coordinator.transaction_version < 2 and not self._verified()

    def last_owner(self, facts: TransactionFacts | object) -> ProducerIdentity | None:
        """Whose stragglers must be shut out; None if there are none.

        Nobody has used the id, or not for so long that nothing can be on its way. Or an abort has just shut out the
        last epoch that a producer id has for transactions; nothing may be added under the one after it.
        """
        if not isinstance(facts, TransactionFacts) or facts.producer_id < 0 or facts.epoch >= _LAST_EPOCH:
            return None
        name = self._options.transactional_id
        return ProducerIdentity(transactional_id=name, producer_id=facts.producer_id, epoch=facts.epoch)

    def span(self, last: ProducerIdentity, *, was_committed: bool) -> None:
        """Let the transaction of `last` span every partition and group that it may reach.

        InitProducerId as a newcomer has to follow: it aborts the transaction. Raises ProducerFenced if `last` is not
        the last owner any more, ConfigurationError where nobody can tell which topics are written.
        """
        partitions = self._partitions(was_committed=was_committed)
        self._coordinator.add_partitions(last, partitions)
        if self._ledger is not None:
            for group in {self._options.ledger_group, self._options.group_id}:
                self._coordinator.add_offsets(last, group)

    def _partitions(self, *, was_committed: bool) -> list[TopicPartition]:
        topics = {*self._options.output_topics, *([self._options.topic] if self._options.topic else [])}
        if not topics and not was_committed:
            raise ConfigurationError(
                "outputTopics",
                f"is needed after an aborted transaction of {self._options.transactional_id!r}: these brokers may "
                "still take a late record of it into any topic",
                action="Name every topic that is written in outputTopics; or let the brokers verify partitions "
                f"({_VERIFICATION}=true, Kafka 3.6 or later).",
            )
        found = [TopicPartition(name, n) for name in sorted(topics) for n in self._cluster.topic(name).partitions]
        if self._ledger is not None:
            self._ledger.ensure()
            found.append(self._ledger.at)
        return found

    def _verified(self) -> bool:
        """Whether brokers take appends only into partitions that the coordinator knows to be in the transaction."""
        if self._verifies is None:
            found = describe.coordinator_settings(self._cluster, self._options.transactional_id, (_VERIFICATION,))
            self._verifies = not isinstance(found, Unread) and found[_VERIFICATION] == "true"
        return self._verifies
