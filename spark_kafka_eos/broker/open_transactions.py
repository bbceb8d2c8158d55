"""Finds the open transactions of a partition (KIP-664): DescribeProducers, ListTransactions, DescribeTransactions.

The leader knows producer ids and where their open transactions start. Only the transaction coordinator knows to which
transactional.id a producer id belongs, and it is unknown which broker that is, so all brokers are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest, ListTransactionsRequest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.describe import transaction
from spark_kafka_eos.broker.leaders import ask_leaders
from spark_kafka_eos.broker.retry import retry
from spark_kafka_eos.core.lag import OpenTransaction
from spark_kafka_eos.core.preflight import TransactionFacts
from spark_kafka_eos.model import TopicPartition


def oldest_open(
    cluster: Cluster, partitions: Collection[TopicPartition], *, now_ms: int
) -> dict[TopicPartition, OpenTransaction]:
    """The oldest open transaction of each partition that has one; `now_ms` since 1970.

    Needs Read on the topics, and Describe on a transactional.id for its name and state. Raises UnknownTopic,
    AuthorizationFailed, BrokerError, BrokerUnreachable.
    """
    answers = ask_leaders(cluster, "DescribeProducers", partitions, _describe_producers)
    holders = {tp: oldest for tp, answer in answers.items() if (oldest := _oldest(tp, answer.active_producers))}
    names = _transactional_ids(cluster, sorted({held.producer_id for held in holders.values()}))
    facts = {name: transaction(cluster, name, now_ms=now_ms) for name in sorted(set(names.values()))}
    return {tp: _named(held, names.get(held.producer_id), facts) for tp, held in holders.items()}


def _describe_producers(members: Mapping[str, list[TopicPartition]]) -> Any:
    topic_class: Any = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[topic_class(name=name, partition_indexes=[tp.partition for tp in tps]) for name, tps in members.items()]
    )


def _oldest(partition: TopicPartition, producers: Iterable[Any]) -> OpenTransaction | None:
    in_transaction = [producer for producer in producers if producer.current_txn_start_offset >= 0]
    if not in_transaction:
        return None
    oldest = min(in_transaction, key=lambda producer: int(producer.current_txn_start_offset))
    return OpenTransaction(
        partition=partition,
        start_offset=oldest.current_txn_start_offset,
        producer_id=oldest.producer_id,
        epoch=oldest.producer_epoch,
    )


def _transactional_ids(cluster: Cluster, producer_ids: list[int]) -> dict[int, str]:
    """The transactional.ids by producer id, as far as this principal may describe them."""
    if not producer_ids:
        return {}
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=producer_ids)
    states = [state for node in cluster.nodes() for state in _ask(cluster, node, request).transaction_states]
    return {state.producer_id: state.transactional_id for state in states}


def _ask(cluster: Cluster, node: int, request: Any) -> Any:
    def errors(response: Any) -> Iterable[tuple[str, int]]:
        yield f"broker {node}", response.error_code

    return retry(
        "ListTransactions",
        lambda: cluster.connection(node).call(request),
        errors,
        lambda _: None,
        budget=cluster.budget(),
        sleep=cluster.sleep,
    )


def _named(held: OpenTransaction, name: str | None, facts: Mapping[str, object]) -> OpenTransaction:
    known = facts.get(name) if name is not None else None
    if not isinstance(known, TransactionFacts):  # ended in the meantime, or not allowed to describe
        return replace(held, transactional_id=name)
    return replace(held, transactional_id=name, state=known.state, open_ms=known.age_ms)
