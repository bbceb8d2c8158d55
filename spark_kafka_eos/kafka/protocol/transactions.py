"""The four requests to the transaction coordinator (KIP-98; KIP-360 for the previous identity, KIP-890 for TV2, KIP-939
for two-phase commit).

Nothing is kept between them: an identity has all that the others need, with the protocol in which its transaction
started. Each is retried within delivery.timeout.ms, and raises ProducerFenced if a newer producer exists,
TransactionAborted if this attempt is aborted, AuthorizationFailed, BrokerError, BrokerUnreachable.
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


def init_producer_id(
    cluster: Cluster,
    transactional_id: str,
    timeout_ms: int | None,
    previous: ProducerIdentity | None = None,
    *,
    transaction_version: int | None = None,
    again: Callable[[], None] = lambda: None,
    ending: Callable[[], None] = lambda: None,
) -> ProducerIdentity:
    """Get a new epoch; this fences older producers and aborts their open transaction. `previous` is the previous
    identity. `again` is called before the request is sent once more although it may have been applied, `ending` each
    time that the coordinator says to wait until the last transaction has ended, which this request may have aborted.
    Transactions are aborted after `timeout_ms`; None: never (KIP-939). `transaction_version` is requested, unless it is
    known.

    With an outdated `previous`, the coordinator returns "fenced", but first aborts an open transaction of the newer
    producer. So end an aborted transaction with `end_transaction(commit=False)` before this: if that is fenced, it
    does not affect the newer producer.
    """
    if transaction_version is None:
        transaction_version = cluster.transaction_version()
    two_phase_commit = timeout_ms is None
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=NO_TIMEOUT if timeout_ms is None else timeout_ms,
        producer_id=previous.producer_id if previous else -1,
        producer_epoch=previous.epoch if previous else -1,
        enable2_pc=two_phase_commit,
    )
    exactly = TWO_PHASE_COMMIT if two_phase_commit else None

    def errors(response: Any) -> list[tuple[ResourceRef, int]]:
        if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            ending()
        return [(ResourceRef(transactional_id=transactional_id), response.error_code)]

    try:
        response = _call(cluster, transactional_id, request, errors, again=again, exactly=exactly)
    except BrokerError as error:
        refused = error.code == ErrorCode.UNSUPPORTED_VERSION or isinstance(error, AuthorizationFailed)
        if two_phase_commit and refused:
            raise error.replaced(action=TWO_PHASE_COMMIT_NEEDS) from error
        raise
    return ProducerIdentity(
        transactional_id=transactional_id,
        producer_id=response.producer_id,
        epoch=response.producer_epoch,
        transaction_version=transaction_version,
    )


def add_partitions(
    cluster: Cluster,
    identity: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    *,
    again: Callable[[], None] = lambda: None,
) -> None:
    """TV1: add these partitions to the transaction with one request, before anything is appended to them, by however
    many processes: of two requests at the same time the coordinator rejects one (KIP-609). Does nothing in TV2, where
    brokers do this, and without a transaction. `again` as of `init_producer_id`.
    """
    by_topic: dict[str, list[int]] = {}
    requested = sorted(partitions)
    for tp in requested:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    if identity.transaction_version >= 2 or not by_topic or not identity.transactional_id:
        return

    def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        answered = {
            TopicPartition(topic.name, result.partition_index): result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        for tp, code in answered.items():
            if code != ErrorCode.OPERATION_NOT_ATTEMPTED:  # because of another partition's error
                yield ResourceRef(transactional_id=identity.transactional_id, partition=tp), code
        if error := incomplete("AddPartitionsToTxn", requested, answered):
            raise error

    topic_class: Any = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[topic_class(name=topic, partitions=numbers) for topic, numbers in by_topic.items()],
    )
    _call(cluster, identity.transactional_id, request, errors, again=again)
    cluster.open_transactions[identity.transactional_id] = identity


def add_offsets(
    cluster: Cluster, identity: ProducerIdentity, group_id: str, *, again: Callable[[], None] = lambda: None
) -> None:
    """TV1: add the group's offsets to the transaction, before they are committed in it. In TV2, brokers do this."""
    if identity.transaction_version >= 2:
        return
    request = AddOffsetsToTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )
    group = ResourceRef(transactional_id=identity.transactional_id, group=group_id)
    _call(cluster, identity.transactional_id, request, lambda response: [(group, response.error_code)], again=again)
    cluster.open_transactions[identity.transactional_id] = identity


def was_opened(cluster: Cluster, identity: ProducerIdentity) -> bool:
    """TV1: whether the coordinator said, to any user of this cluster's connections, that the transaction of `identity`
    is open, and no end of it may have been applied. If it is over nevertheless, somebody else ended it.
    """
    return cluster.open_transactions.get(identity.transactional_id) == identity


def end_transaction(
    cluster: Cluster, identity: ProducerIdentity, *, commit: bool, again: Callable[[], None] = lambda: None
) -> ProducerIdentity:
    """Commit or abort; return the identity to continue with: the next epoch in TV2, the same one in TV1.

    An unanswered request is sent again unchanged, within the budget, after a call of `again`. If the outcome of a
    commit is still unknown, raises CommitOutcomeUnknown: only the ledger knows it. Never abort that epoch then, because
    a late abort can end a later transaction (KAFKA-17754).
    """
    name = identity.transactional_id
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )

    def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        # No partition was added in this epoch, so there is nothing to abort.
        nothing_open = not commit and response.error_code == ErrorCode.INVALID_TXN_STATE
        yield ResourceRef(transactional_id=name), 0 if nothing_open else response.error_code

    lost = False

    def unanswered() -> None:
        nonlocal lost
        lost = True
        cluster.open_transactions.pop(name, None)

    newest = transactional("EndTxn", identity.transaction_version)
    try:
        response = _call(cluster, name, request, errors, newest=newest, unanswered=unanswered, again=again)
    except KafkaEosError as error:
        if commit and lost:
            # Whatever the response to a later attempt, the first one may have been applied.
            raise CommitOutcomeUnknown(
                f"the commit of {ResourceRef(transactional_id=name)} was sent but not answered; last error: "
                f"{error.what}",
                action="Initialize the producer again, then read the ledger.",
            ) from error
        raise
    cluster.open_transactions.pop(name, None)
    if response.error_code or identity.transaction_version < 2:
        return identity
    return replace(identity, producer_id=response.producer_id, epoch=response.producer_epoch)


def _call(
    cluster: Cluster,
    transactional_id: str,
    request: Any,
    errors: Errors | None = None,
    *,
    newest: int | None = None,
    exactly: int | None = None,
    unanswered: Callable[[], None] = lambda: None,
    again: Callable[[], None] = lambda: None,
) -> Any:
    subject = ResourceRef(transactional_id=transactional_id)
    return cluster.call_coordinator(
        "transaction",
        transactional_id,
        request,
        errors or (lambda response: [(subject, response.error_code)]),
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
