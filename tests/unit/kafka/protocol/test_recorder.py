"""What is recorded of a process's requests, and what it costs it: nothing where nothing is recorded, and little."""

from __future__ import annotations

import threading

import pytest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer.produce import ProduceResponse
from kafka.protocol.producer.transaction import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
)

from spark_kafka_eos.kafka.protocol.recorder import phase, recording, sending
from spark_kafka_eos.kafka.protocol.responses import error_of

COMMIT = EndTxnRequest(transactional_id="id", producer_id=1, producer_epoch=0, committed=True)


def produce_response(*codes):
    topic = ProduceResponse.TopicProduceResponse
    partitions = [topic.PartitionProduceResponse(index=n, error_code=code) for n, code in enumerate(codes)]
    return ProduceResponse(responses=[topic(name="t", partition_responses=partitions)])


def test_a_request_is_recorded_with_its_error_and_what_it_is_about():
    with recording() as recorder:
        sending(COMMIT, "a:1").answered(EndTxnResponse(error_code=51))
        sending(COMMIT, "a:1").answered(EndTxnResponse(error_code=0))
        sending(COMMIT, "b:1").unanswered()
    recorded = recorder.trace().requests
    assert [(each.api, each.about, each.node, each.error) for each in recorded] == [
        ("EndTxn", "commit", "a:1", "CONCURRENT_TRANSACTIONS"),
        ("EndTxn", "commit", "a:1", ""),
        ("EndTxn", "commit", "b:1", "no response"),
    ]


def test_many_partitions_are_named_by_the_first_one():
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(v3_and_below_topics=[topic(name="t", partitions=[4, 5, 6])])
    with recording() as recorder:
        sending(request, "a:1").answered(AddPartitionsToTxnResponse())
    assert recorder.trace().requests[0].about == "t-4 +2"


def test_nothing_is_recorded_outside_nor_in_another_thread():
    sending(COMMIT, "a:1").unanswered()
    with recording() as recorder:
        thread = threading.Thread(target=lambda: sending(COMMIT, "a:1").unanswered())
        thread.start()
        thread.join()
    assert not recorder.trace().requests


def test_the_first_and_the_last_requests_are_kept():
    with recording(kept=2) as recorder:
        for node in range(7):
            sending(COMMIT, str(node)).unanswered()
    trace = recorder.trace()
    assert ([each.node for each in trace.requests], trace.left_out) == (["0", "1", "5", "6"], 3)
    with recording() as recorder:
        for _ in range(1_003):
            sending(COMMIT, "a:1").unanswered()
    trace = recorder.trace()
    assert (len(trace.requests), trace.left_out) == (2 * 500, 3)


def test_a_phase_that_fails_is_recorded_and_the_last_one_counts():
    clock = iter(range(100))
    with recording() as recorder:
        recorder._clock = lambda: next(clock)
        with pytest.raises(ValueError, match="x"), phase("begin"):
            raise ValueError("x")
        with phase("begin"):
            next(clock)
    assert [(each.name, each.milliseconds) for each in recorder.trace().phases] == [("begin", 1e3), ("begin", 2e3)]
    assert recorder.spent("begin", "end") == {"begin": 2e3}


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (EndTxnResponse(error_code=47), 47),
        (produce_response(0, 0), 0),
        (produce_response(0, 6), 6),
        (produce_response(55, 6), 6),
        (MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", error_code=3, partitions=[])]), 3),
        (MetadataResponse(topics=None), 0),
        (None, 0),
        (object(), 0),
    ],
)
def test_the_first_error_of_a_response_is_found(response, code):
    assert error_of(response) == code
