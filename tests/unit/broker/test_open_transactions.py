"""Whose transaction is open, from a scripted broker."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import DescribeProducersResponse, DescribeTransactionsResponse, ListTransactionsResponse

from spark_kafka_eos.broker.open_transactions import oldest_open
from spark_kafka_eos.core.lag import OpenTransaction
from spark_kafka_eos.errors import AuthorizationFailed
from spark_kafka_eos.model import TopicPartition

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def producers(*partitions, code=0):
    """Each partition's producers as (producer id, epoch, start of the open transaction or -1)."""
    topic = DescribeProducersResponse.TopicResponse
    answers = [
        topic.PartitionResponse(
            partition_index=number,
            error_code=code,
            active_producers=[
                topic.PartitionResponse.ProducerState(
                    producer_id=pid, producer_epoch=epoch, current_txn_start_offset=at
                )
                for pid, epoch, at in active
            ],
        )
        for number, active in enumerate(partitions)
    ]
    return DescribeProducersResponse(topics=[topic(name="orders", partitions=answers)])


def listed(**names):
    state = ListTransactionsResponse.TransactionState
    states = [state(transactional_id=name, producer_id=pid, transaction_state="Ongoing") for name, pid in names.items()]
    return ListTransactionsResponse(error_code=0, transaction_states=states)


def described(name, code=0, **fields):
    state = DescribeTransactionsResponse.TransactionState(transactional_id=name, error_code=code, **fields)
    return DescribeTransactionsResponse(transaction_states=[state])


def test_the_oldest_open_transaction_is_found_with_its_name_and_age(broker):
    broker.script["DescribeProducers"].append(producers([(7, 1, -1), (8, 2, 40), (9, 3, 30)], [(7, 1, -1)]))
    broker.script["ListTransactions"].append(listed(stuck=9))
    broker.script["DescribeTransactions"].append(
        described(
            "stuck", transaction_state="Ongoing", transaction_start_time_ms=1_000, producer_id=9, producer_epoch=3
        )
    )
    assert oldest_open(broker.cluster(), [T0, T1], now_ms=61_000) == {
        T0: OpenTransaction(
            partition=T0,
            start_offset=30,
            producer_id=9,
            epoch=3,
            transactional_id="stuck",
            state="Ongoing",
            open_ms=60_000,
        )
    }
    (asked,) = broker.sent("ListTransactions")
    assert asked.producer_id_filters == [9]


def test_without_an_open_transaction_no_coordinator_is_asked(broker):
    broker.script["DescribeProducers"].append(producers([(7, 1, -1)]))
    assert oldest_open(broker.cluster(), [T0], now_ms=0) == {}
    assert broker.sent("ListTransactions") == []


@pytest.mark.parametrize("states", [listed(), listed(hidden=9)])
def test_a_transaction_that_no_coordinator_shows_has_no_age(broker, states):
    broker.script["DescribeProducers"].append(producers([(9, 3, 30)]))
    broker.script["ListTransactions"].append(states)
    broker.script["DescribeTransactions"].append(described("hidden", 53))
    found = oldest_open(broker.cluster(), [T0], now_ms=0)[T0]
    assert (found.producer_id, found.state, found.open_ms) == (9, None, None)


def test_a_coordinator_that_is_loading_is_asked_again(broker):
    broker.script["DescribeProducers"].append(producers([(9, 3, 30)]))
    broker.script["ListTransactions"] += [ListTransactionsResponse(error_code=14, transaction_states=[]), listed(x=9)]
    broker.script["DescribeTransactions"].append(described("x", 105))
    assert oldest_open(broker.cluster(), [T0], now_ms=0)[T0].transactional_id == "x"


def test_a_missing_right_is_named(broker):
    broker.script["DescribeProducers"].append(producers([], code=29))
    with pytest.raises(AuthorizationFailed, match="Grant Read on topic 'orders'"):
        oldest_open(broker.cluster(), [T0], now_ms=0)
