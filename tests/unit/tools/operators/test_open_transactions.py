"""Whose transaction is open, from a scripted broker."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import DescribeProducersResponse, DescribeTransactionsResponse, ListTransactionsResponse

from spark_kafka_eos.errors import AuthorizationFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe.lag import OpenTransaction
from spark_kafka_eos.tools.operators.open_transactions import oldest_open, survey
from spark_kafka_eos.tools.operators.survey import Ending

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


@pytest.mark.parametrize(("states", "name"), [(listed(), None), (listed(hidden=9), "hidden")])
def test_a_transaction_that_no_coordinator_shows_has_no_age(broker, states, name):
    broker.script["DescribeProducers"].append(producers([(9, 3, 30)]))
    broker.script["ListTransactions"].append(states)
    broker.script["DescribeTransactions"].append(described("hidden", 53))
    found = oldest_open(broker.cluster(), [T0], now_ms=0)[T0]
    assert (found.producer_id, found.transactional_id, found.state, found.open_ms) == (9, name, None, None)


def test_a_coordinator_that_is_loading_is_asked_again(broker):
    broker.script["DescribeProducers"].append(producers([(9, 3, 30)]))
    broker.script["ListTransactions"] += [ListTransactionsResponse(error_code=14, transaction_states=[]), listed(x=9)]
    broker.script["DescribeTransactions"].append(described("x", 105))
    assert oldest_open(broker.cluster(), [T0], now_ms=0)[T0].transactional_id == "x"


def test_a_missing_right_is_named(broker):
    broker.script["DescribeProducers"].append(producers([], code=29))
    with pytest.raises(AuthorizationFailed, match="Grant Read on topic 'orders'"):
        oldest_open(broker.cluster(), [T0], now_ms=0)


# -- a survey


@pytest.fixture
def suspect(broker):
    """A broker whose partition has a transaction open that no coordinator lists; `again`: the answers when it is looked
    up once more."""
    broker.topics = {"orders": 1, "__transaction_state": 1}

    def script(*, again=None, listed_again=None, anybody=105):
        broker.script["DescribeProducers"] += [producers([(9, 3, 30)]), again or producers([(9, 3, 30)])]
        broker.script["ListTransactions"] += [listed(), listed_again or listed()]
        broker.script["DescribeTransactions"].append(lambda request: described(request.transactional_ids[0], anybody))
        return survey(broker.cluster(), [T0], now_ms=5)

    return script


def test_what_no_coordinator_lists_before_and_after_it_is_seen_open_hangs(suspect, broker):
    [part] = suspect().hanging
    assert (part.producer.producer_id, part.producer.epoch, part.producer.start_offset) == (9, 3, 30)
    assert broker.sent("ListTransactions")[1].producer_id_filters == [9]


def test_what_has_ended_in_the_meantime_is_not_open(suspect):
    found = suspect(again=producers([(9, 3, -1), (8, 0, 40)]))
    assert found.open_parts == []


def test_what_has_ended_and_begun_again_in_the_meantime_does_not_hang(suspect):
    assert suspect(again=producers([(9, 4, 35)])).open_parts == []


def test_what_a_coordinator_lists_by_the_second_look_is_its_own(suspect, broker):
    topic = DescribeTransactionsResponse.TransactionState.TopicData(topic="orders", partitions=[0])
    broker.script["DescribeTransactions"].append(
        described("late", transaction_state="Ongoing", producer_id=9, producer_epoch=3, topics=[topic])
    )
    [part] = suspect(listed_again=listed(late=9)).open_parts
    assert (part.ending, part.facts.transactional_id) == (Ending.OWNER, "late")


def unasked(broker):
    """Its first partition has no leader now."""
    del broker.topics["__transaction_state"]


def moved(broker):
    """Broker 2 has taken over, after it was asked."""

    def listing(_):
        broker.leader = 2
        return listed()

    return listing


@pytest.mark.parametrize(
    ("before", "answers"),
    [
        (lambda _: None, {"anybody": 53}),  # this principal may not describe every id
        (unasked, {}),
        (lambda _: None, {"listed_again": ListTransactionsResponse(error_code=-1, transaction_states=[])}),
    ],
    ids=["an id may be hidden", "the coordinators are not known", "a coordinator fails"],
)
def test_where_a_coordinator_may_have_it_nothing_is_said_to_hang(suspect, broker, before, answers):
    before(broker)
    [part] = suspect(**answers).open_parts
    assert part.ending is Ending.UNKNOWN


def test_a_coordinator_that_moves_meanwhile_may_have_it(suspect, broker):
    [part] = suspect(listed_again=moved(broker)).open_parts
    assert part.ending is Ending.UNKNOWN


def test_a_broker_and_a_partition_that_do_not_answer_are_results(broker):
    broker.script["DescribeProducers"].append(producers([], code=29))
    broker.script["ListTransactions"].append(ListTransactionsResponse(error_code=-1, transaction_states=[]))
    found = survey(broker.cluster(), [T0, TopicPartition("gone", 0)], now_ms=5)
    assert (sorted(found.unavailable), list(found.silent), found.complete) == (
        [TopicPartition("gone", 0), T0],
        [1],
        False,
    )


def test_a_broker_that_is_down_and_coordinates_ids_that_no_other_one_lists_is_named_as_silent(broker):
    """It is in no list of brokers, so nobody asks it."""
    broker.topics |= {"__transaction_state": 1}
    broker.down["__transaction_state"] = 2
    broker.script["ListTransactions"].append(listed())
    assert survey(broker.cluster(), now_ms=5).silent == {
        2: "without it, partition 0 of __transaction_state has no leader"
    }


def test_only_what_is_open_is_described_unless_all_ids_are_asked_for(broker):
    state = ListTransactionsResponse.TransactionState
    idle = ListTransactionsResponse(
        error_code=0,
        transaction_states=[state(transactional_id="idle", producer_id=4, transaction_state="Empty")],
    )
    broker.script["ListTransactions"] += [idle, idle]
    broker.script["DescribeTransactions"].append(described("idle", transaction_state="Empty"))
    cluster = broker.cluster()
    assert survey(cluster, now_ms=5).transactions == {}
    assert list(survey(cluster, now_ms=5, all_ids=True).transactions) == ["idle"]


def test_a_moved_id_is_described_by_its_new_coordinator(broker):
    broker.script["ListTransactions"].append(listed(copy=9))
    broker.script["DescribeTransactions"] += [described("copy", 16), described("copy", transaction_state="Ongoing")]
    assert survey(broker.cluster(), now_ms=5).transactions["copy"].state == "Ongoing"
