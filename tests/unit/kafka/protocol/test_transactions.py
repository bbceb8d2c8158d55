"""The transaction coordinator's requests against a scripted broker: retries, lost answers, both protocols."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.errors import (
    AuthorizationFailed,
    BrokerError,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from tests.coordinating import TransactionCoordinator

IDENTITY = ProducerIdentity(transactional_id="orders", producer_id=9, epoch=4, transaction_version=2)
TV1 = replace(IDENTITY, transaction_version=1)


def coordinator(broker, **options):
    return TransactionCoordinator(broker.cluster(**options), "orders", 60_000)


def test_the_first_initialisation_names_no_identity(broker, answers):
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=9, producer_epoch=4))
    assert coordinator(broker).init_producer_id() == IDENTITY
    (request,) = broker.sent("InitProducerId")
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("orders", 60_000)
    assert broker.versions("InitProducerId") == [5]


def test_without_a_timeout_two_phase_commit_is_requested(broker, answers):
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=9, producer_epoch=4))
    assert TransactionCoordinator(broker.cluster(), "orders", None).init_producer_id() == IDENTITY
    (request,) = broker.sent("InitProducerId")
    assert (request.enable2_pc, request.keep_prepared_txn, request.transaction_timeout_ms) == (True, False, 2**31 - 1)
    assert broker.versions("InitProducerId") == [6]


def test_a_later_initialisation_sends_the_held_identity(broker, answers):
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=9, producer_epoch=5))
    assert coordinator(broker).init_producer_id(IDENTITY).epoch == 5
    (request,) = broker.sent("InitProducerId")
    assert (request.producer_id, request.producer_epoch) == (9, 4)


def test_a_new_broker_that_is_still_loading_is_waited_for(broker, answers):
    broker.script["InitProducerId"] += [answers.InitProducerId(error_code=code) for code in (14, 16, 15, 51)]
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=9, producer_epoch=4))
    assert coordinator(broker).init_producer_id() == IDENTITY
    assert len(broker.sent("InitProducerId")) == 5
    # Found at first, and again after 16 and after 15.
    assert len(broker.sent("FindCoordinator")) == 3


def test_a_coordinator_that_is_not_there_yet_is_waited_for(broker, answers):
    broker.script["FindCoordinator"].append(answers.FindCoordinator(error_code=15))
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=9, producer_epoch=4))
    assert coordinator(broker).init_producer_id() == IDENTITY


def test_waiting_for_markers_begins_with_milliseconds(broker, answers):
    broker.script["InitProducerId"] += [answers.InitProducerId(error_code=51)] * 2
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=9, producer_epoch=4))
    coordinator(broker).init_producer_id()
    assert [round(delay, 6) for delay in broker.clock.slept] == [0.005, 0.01]


@pytest.mark.parametrize("code", [47, 90])
def test_an_outdated_epoch_is_fenced(broker, answers, code):
    broker.script["EndTxn"].append(answers.EndTxn(error_code=code))
    with pytest.raises(ProducerFenced, match="transactional id 'orders'"):
        coordinator(broker).end(IDENTITY, commit=True)


def test_a_missing_acl_names_the_transactional_id(broker, answers):
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=53))
    with pytest.raises(AuthorizationFailed, match="transactional id 'orders'"):
        coordinator(broker).init_producer_id()


def test_an_abortable_error_aborts_this_attempt(old_broker, answers):
    old_broker.script["AddOffsetsToTxn"].append(answers.AddOffsetsToTxn(error_code=120))
    with pytest.raises(TransactionAborted, match="group 'g'"):
        coordinator(old_broker).add_offsets(TV1, "g")


def test_errors_that_do_not_pass_end_with_the_budget(broker, answers):
    broker.script["InitProducerId"] += [answers.InitProducerId(error_code=14)] * 100
    with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS.*retried for 10000 ms"):
        coordinator(broker).init_producer_id()
    assert 9.9 < sum(broker.clock.slept) <= 10.0


def test_tv2_ends_with_version_5_and_continues_with_the_next_epoch(broker, answers):
    broker.script["EndTxn"].append(answers.EndTxn(error_code=0, producer_id=9, producer_epoch=5))
    following = coordinator(broker).end(IDENTITY, commit=True)
    assert following == replace(IDENTITY, epoch=5)
    assert broker.versions("EndTxn") == [5]


def test_tv1_ends_with_version_4_and_keeps_the_epoch(old_broker, answers):
    old_broker.script["EndTxn"].append(answers.EndTxn(error_code=0))
    assert coordinator(old_broker).end(TV1, commit=True) == TV1
    assert old_broker.versions("EndTxn") == [4]


def test_tv2_adds_nothing_by_request(broker):
    transaction = coordinator(broker)
    transaction.add_partitions(IDENTITY, [TopicPartition("orders", 0)])
    transaction.add_offsets(IDENTITY, "g")
    assert broker.requests == []


def test_tv1_adds_partitions_and_offsets_first(old_broker, answers):
    transaction = coordinator(old_broker)
    topic = answers.AddPartitionsToTxn.AddPartitionsToTxnTopicResult
    old_broker.script["AddPartitionsToTxn"].append(
        answers.AddPartitionsToTxn(
            results_by_topic_v3_and_below=[
                topic(
                    name="orders",
                    results_by_partition=[
                        topic.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=0)
                        for number in (0, 1)
                    ],
                )
            ]
        )
    )
    old_broker.script["AddOffsetsToTxn"].append(answers.AddOffsetsToTxn(error_code=0))
    transaction.add_partitions(TV1, [TopicPartition("orders", 1), TopicPartition("orders", 0)])
    transaction.add_offsets(TV1, "g")
    assert old_broker.versions("AddPartitionsToTxn") == [3]
    assert old_broker.versions("AddOffsetsToTxn") == [3]
    (added,) = old_broker.sent("AddPartitionsToTxn")
    assert [(t.name, t.partitions) for t in added.v3_and_below_topics] == [("orders", [0, 1])]


def test_an_unanswered_commit_is_sent_again_unchanged(broker, answers, lost):
    broker.script["EndTxn"] += [lost, answers.EndTxn(error_code=0, producer_id=9, producer_epoch=5)]
    assert coordinator(broker).end(IDENTITY, commit=True).epoch == 5
    assert [(r.producer_id, r.producer_epoch, r.committed) for r in broker.sent("EndTxn")] == [(9, 4, True)] * 2


def test_a_commit_that_is_never_answered_has_an_unknown_outcome(broker, lost):
    broker.script["EndTxn"] += [lost] * 100
    with pytest.raises(CommitOutcomeUnknown, match="sent but not answered") as caught:
        coordinator(broker).end(IDENTITY, commit=True)
    assert caught.value.committed == "unknown"
    assert all(request.committed for request in broker.sent("EndTxn"))


@pytest.mark.parametrize("code", [47, 90, 49, 120, 53])
def test_whatever_the_response_to_a_resent_commit_the_first_may_have_been_applied(broker, answers, lost, code):
    broker.script["EndTxn"] += [lost, answers.EndTxn(error_code=code)]
    with pytest.raises(CommitOutcomeUnknown):
        coordinator(broker).end(IDENTITY, commit=True)


def test_a_commit_answered_with_an_invalid_state_is_left_to_the_ledger(broker, answers):
    broker.script["EndTxn"].append(answers.EndTxn(error_code=48))
    with pytest.raises(CommitOutcomeUnknown, match="INVALID_TXN_STATE"):
        coordinator(broker).end(IDENTITY, commit=True)


def test_a_commit_that_could_not_be_sent_committed_nothing(broker):
    transaction = coordinator(broker)
    for connection in broker.connections:
        connection.close()
    broker.refused = 1_000
    with pytest.raises(BrokerUnreachable) as caught:
        transaction.end(IDENTITY, commit=True)
    assert caught.value.committed == "nothing"


def test_a_commit_that_was_refused_may_be_aborted(broker, answers):
    broker.script["EndTxn"] += [
        answers.EndTxn(error_code=120),
        answers.EndTxn(error_code=0, producer_id=9, producer_epoch=5),
    ]
    transaction = coordinator(broker)
    with pytest.raises(TransactionAborted):
        transaction.end(IDENTITY, commit=True)
    assert transaction.end(IDENTITY, commit=False).epoch == 5


def test_the_epoch_after_an_unknown_commit_may_be_aborted(broker, answers, lost):
    broker.script["EndTxn"] += [lost] * 100
    transaction = coordinator(broker)
    with pytest.raises(CommitOutcomeUnknown):
        transaction.end(IDENTITY, commit=True)
    broker.script["EndTxn"].clear()
    broker.script["EndTxn"].append(answers.EndTxn(error_code=0, producer_id=9, producer_epoch=6))
    later = replace(IDENTITY, epoch=5)
    assert transaction.end(later, commit=False).epoch == 6


def test_there_may_be_nothing_to_abort(old_broker, answers):
    old_broker.script["EndTxn"].append(answers.EndTxn(error_code=48))
    assert coordinator(old_broker).end(TV1, commit=False) == TV1


def test_an_unanswered_abort_is_only_unreachable(broker, lost):
    broker.script["EndTxn"] += [lost] * 100
    with pytest.raises(BrokerUnreachable):
        coordinator(broker).end(IDENTITY, commit=False)


def test_an_idempotent_producer_has_no_transactional_id(broker, answers):
    broker.script["InitProducerId"].append(answers.InitProducerId(error_code=0, producer_id=70, producer_epoch=0))
    assert idempotent_identity(broker.cluster()) == ProducerIdentity(transactional_id="", producer_id=70, epoch=0)
    (request,) = broker.sent("InitProducerId")
    assert request.transactional_id is None
    assert broker.sent("FindCoordinator") == []
