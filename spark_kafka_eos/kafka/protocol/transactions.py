"""The four requests to the transaction coordinator (KIP-98; KIP-360 for the held identity, KIP-890 for TV2, KIP-939
for two-phase commit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from spark_kafka_eos.kafka.errors import AuthorizationFailed, BrokerError, CommitOutcomeUnknown, KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import NO_TIMEOUT, TWO_PHASE_COMMIT, TWO_PHASE_COMMIT_NEEDS
from spark_kafka_eos.kafka.protocol.responses import incomplete
from spark_kafka_eos.kafka.protocol.retry import Errors
from spark_kafka_eos.kafka.protocol.versions import transactional


class TransactionCoordinator:
    """The coordinator of one transactional.id; it aborts transactions after `timeout_ms`; None: never (KIP-939).

    `transaction_version` is requested once, unless it is known from an identity: a transaction ends with the version
    with which it started. Every method is retried within delivery.timeout.ms, and raises ProducerFenced if a newer
    producer exists, TransactionAborted if this attempt is aborted, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_ms: int | None, *, transaction_version: int | None = None
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster, self._timeout_ms = cluster, timeout_ms
        self._version = transaction_version
        self._commit_unanswered: ProducerIdentity | None = None

    @property
    def transaction_version(self) -> int:
        if self._version is None:
            self._version = self._cluster.transaction_version()
        return self._version

    def init_producer_id(
        self, previous: ProducerIdentity | None = None, *, again: Callable[[], None] = lambda: None
    ) -> ProducerIdentity:
        """Get a new epoch; this fences older producers and aborts their open transaction. `previous` is the previous
        identity. `again` is called before the request is sent once more although it may have been applied.

        With an outdated `previous`, the coordinator returns "fenced", but first aborts an open transaction of the newer
        producer. So end an aborted transaction with `end(previous, commit=False)` before this: if that is fenced, it
        does not affect the newer producer.
        """
        _ = self.transaction_version  # requested now, before anything starts
        two_phase_commit = self._timeout_ms is None
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=NO_TIMEOUT if self._timeout_ms is None else self._timeout_ms,
            producer_id=previous.producer_id if previous else -1,
            producer_epoch=previous.epoch if previous else -1,
            enable2_pc=two_phase_commit,
        )
        if not two_phase_commit:
            return self._identity(self._call(request, self._top_level, again=again))
        try:
            return self._identity(self._call(request, self._top_level, again=again, exactly=TWO_PHASE_COMMIT))
        except BrokerError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION or isinstance(error, AuthorizationFailed):
                raise error.replaced(action=TWO_PHASE_COMMIT_NEEDS) from error
            raise

    def add_partitions(self, identity: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
        """TV1: add these partitions to the transaction, before anything is appended to them. In TV2, brokers do
        this.
        """
        by_topic: dict[str, list[int]] = {}
        asked = sorted(partitions)
        for tp in asked:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        if self.transaction_version >= 2 or not by_topic:
            return

        def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
            answered = {
                TopicPartition(topic.name, result.partition_index): result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            for tp, code in answered.items():
                if code != ErrorCode.OPERATION_NOT_ATTEMPTED:  # because of another partition's error
                    yield replace(self._who, partition=tp), code
            if error := incomplete("AddPartitionsToTxn", asked, answered):
                raise error

        topic_class: Any = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[topic_class(name=topic, partitions=numbers) for topic, numbers in by_topic.items()],
        )
        self._call(request, errors)
        self._cluster.open_transactions[self.transactional_id] = identity

    def add_offsets(self, identity: ProducerIdentity, group_id: str) -> None:
        """TV1: add the group's offsets to the transaction, before they are committed in it. In TV2, brokers do this."""
        if self.transaction_version >= 2:
            return
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        self._call(request, lambda response: [(replace(self._who, group=group_id), response.error_code)])
        self._cluster.open_transactions[self.transactional_id] = identity

    def is_open(self, identity: ProducerIdentity) -> bool:
        """TV1: whether the coordinator said, to any user of this cluster's connections, that the transaction of
        `identity` is open, and no end of it may have been applied. If it is over nevertheless, somebody else ended it.
        """
        return self._cluster.open_transactions.get(self.transactional_id) == identity

    def end(self, identity: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
        """Commit or abort; return the identity to continue with: the next epoch in TV2, the same one in TV1.

        An unanswered request is sent again unchanged, within the budget. If the outcome of a commit is still unknown,
        raises CommitOutcomeUnknown: only the ledger knows it, and this object refuses to abort that epoch, because a
        late abort can end a later transaction (KAFKA-17754).
        """
        if not commit and self._commit_unanswered == identity:
            raise CommitOutcomeUnknown(
                f"a commit was sent for {self._who}, epoch {identity.epoch}: it must not be aborted",
                action="Initialize the producer again, then read the ledger.",
            )
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )

        def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
            # No partition was added in this epoch, so there is nothing to abort.
            nothing_open = not commit and response.error_code == ErrorCode.INVALID_TXN_STATE
            yield self._who, 0 if nothing_open else response.error_code

        lost = False

        def unanswered() -> None:
            nonlocal lost
            lost = True
            self._cluster.open_transactions.pop(self.transactional_id, None)
            if commit:
                self._commit_unanswered = identity

        newest = transactional("EndTxn", self.transaction_version)
        try:
            response = self._call(request, errors, newest=newest, unanswered=unanswered)
        except KafkaEosError as error:
            if commit and lost:
                # Whatever the response to a later attempt, the first one may have been applied.
                raise CommitOutcomeUnknown(
                    f"the commit of {self._who} was sent but not answered; last error: {error.what}",
                    action="Initialize the producer again, then read the ledger.",
                ) from error
            raise
        self._cluster.open_transactions.pop(self.transactional_id, None)
        if response.error_code or self.transaction_version < 2:
            return identity
        return self._identity(response)

    @property
    def _who(self) -> ResourceRef:
        return ResourceRef(transactional_id=self.transactional_id)

    def _top_level(self, response: Any) -> Iterable[tuple[ResourceRef, int]]:
        yield self._who, response.error_code

    def _identity(self, response: Any) -> ProducerIdentity:
        return ProducerIdentity(
            transactional_id=self.transactional_id,
            producer_id=response.producer_id,
            epoch=response.producer_epoch,
            transaction_version=self.transaction_version,
        )

    def _call(
        self,
        request: Any,
        errors: Errors,
        *,
        newest: int | None = None,
        exactly: int | None = None,
        unanswered: Callable[[], None] = lambda: None,
        again: Callable[[], None] = lambda: None,
    ) -> Any:
        return self._cluster.call_coordinator(
            "transaction",
            self.transactional_id,
            request,
            errors,
            newest=newest,
            exactly=exactly,
            unanswered=unanswered,
            again=again,
        )


def idempotent_identity(cluster: Cluster) -> ProducerIdentity:
    """A new producer id without a transaction, for idempotent appends (`transactional_id` is empty)."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=NO_TIMEOUT, producer_id=-1, producer_epoch=-1
    )
    response = cluster.call_any(request, lambda response: [("an idempotent producer", response.error_code)])
    return ProducerIdentity(transactional_id="", producer_id=response.producer_id, epoch=response.producer_epoch)
