"""What a witness records of frames that pass the proxy, and that it is what the simulation would have recorded."""

from __future__ import annotations

import threading
import time
from functools import partial

import pyarrow as pa
import pytest
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.producer import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from lab.real_runs.driver import contents_of
from lab.real_runs.witness import Witness
from lab.simulation.query import Checkpoint
from lab.simulation.record import Append, Arrived, Marked, Recorder, Recording, Requested, TimedOut
from lab.specification.steps import Outside, translate
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.testing.proxy import Passed
from spark_kafka_eos.testing.proxy_frames import request_header
from spark_kafka_eos.testing.proxy_rules import parse_rule

SECONDS = 60
DRIVER, OTHER = "driver-1", "consumer"
OUT, IN = TopicPartition("out-run-1", 0), TopicPartition("in", 0)
PRODUCER = 7


def frame_of(message, client=DRIVER):
    if message.name.endswith("Request"):
        message.with_header(correlation_id=1, client_id=client)
    else:
        message.with_header(correlation_id=1)
    return message.encode(header=True)


def passed(request, *, client=DRIVER, rule=None, gone=False):
    frame = frame_of(request, client)
    return Passed(node=1, request=request_header(frame), rule=rule, frame=frame, gone=gone)


def facts(epoch, state="Ongoing"):
    return TransactionFacts(state=state, producer_id=PRODUCER, epoch=epoch, timeout_ms=60_000)


INIT = InitProducerIdRequest(
    version=5, transactional_id="id", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
)
INITIALISED = frame_of(
    InitProducerIdResponse(version=5, throttle_time_ms=0, error_code=0, producer_id=PRODUCER, producer_epoch=0)
)
END = EndTxnRequest(version=4, transactional_id="id", producer_id=PRODUCER, producer_epoch=0, committed=True)


def markers(producer_id, *, codes=(0,)):
    """A coordinator's request to write markers, and the answer: one partition of the output for each code."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=OUT.topic, partition_indexes=list(range(len(codes))))
    request = WriteTxnMarkersRequest(
        version=1,
        markers=[
            marker(
                producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
            )
        ],
    )
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_result = result.WritableTxnMarkerTopicResult
    partition_result = topic_result.WritableTxnMarkerPartitionResult
    partitions = [partition_result(partition_index=n, error_code=code) for n, code in enumerate(codes)]
    answer = WriteTxnMarkersResponse(
        version=1,
        markers=[result(producer_id=producer_id, topics=[topic_result(name=OUT.topic, partitions=partitions)])],
    )
    return request, frame_of(answer)


def produced(*offsets):
    values = pa.array([b"%d" % offset for offset in offsets], pa.binary())
    batch = encode(pa.nulls(len(offsets), pa.binary()), values, 0)
    stamp(batch, producer_id=PRODUCER, epoch=0, base_sequence=0, transactional=True)
    topic_class = ProduceRequest.TopicProduceData
    data = topic_class.PartitionProduceData(index=OUT.partition, records=bytes(batch))
    return ProduceRequest(
        version=12,
        transactional_id="id",
        acks=-1,
        timeout_ms=1,
        topic_data=[topic_class(name=OUT.topic, partition_data=[data])],
    )


DESCRIBE = DescribeTransactionsRequest(version=0, transactional_ids=["id"])


def described(epoch):
    state = DescribeTransactionsResponse.TransactionState(
        error_code=0,
        transactional_id="id",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=0,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        topics=[],
    )
    return frame_of(DescribeTransactionsResponse(version=0, transaction_states=[state]))


def acknowledged(error_code=0):
    topic_class = ProduceResponse.TopicProduceResponse
    partition = topic_class.PartitionProduceResponse(index=0, error_code=error_code, base_offset=0)
    return frame_of(
        ProduceResponse(version=12, responses=[topic_class(name=OUT.topic, partition_responses=[partition])])
    )


@pytest.fixture
def recorder():
    return Recorder(lambda: 0.0, partial(contents_of, OUT.topic), "ledger")


@pytest.fixture
def witness(recorder):
    """One whose coordinator has a completed transaction of epoch 0."""
    return Witness(recorder=recorder, facts=lambda: facts(0, "CompleteCommit"), drivers={DRIVER})


def exchange(witness, request, answer, *, received=True):
    watch = witness.watch(passed(request))
    assert watch is not None
    with watch.passes():
        watch.responds(answer)
        if received:
            watch.received(own=False)


def test_a_request_and_its_answer_are_steps_of_its_driver(witness, recorder):
    exchange(witness, INIT, INITIALISED)
    sent, arrived = recorder.steps
    assert isinstance(sent, Requested)
    assert isinstance(arrived, Arrived)
    assert (sent.driver, sent.request.api, sent.request.epoch) == (DRIVER, "InitProducerId", -1)
    assert (arrived.number, arrived.answer.codes, arrived.answer.epoch) == (sent.number, (0,), 0)
    assert recorder.answered == {sent.number}


def test_a_request_whose_answer_was_lost_has_arrived_and_is_not_answered(witness, recorder):
    exchange(witness, INIT, INITIALISED, received=False)
    assert [type(step) for step in recorder.steps] == [Requested, Arrived]
    assert recorder.answered == recorder.refused == set()


def test_a_request_that_the_proxy_itself_answers_is_refused(witness, recorder):
    watch = witness.watch(passed(INIT))
    assert watch is not None
    watch.received(own=True)
    assert [type(step) for step in recorder.steps] == [Requested]
    assert recorder.refused == {1}


def test_requests_of_others_are_not_recorded(witness, recorder):
    assert witness.watch(passed(INIT, client=OTHER)) is None
    assert recorder.steps == []


def test_a_request_that_its_sender_gave_up_before_it_was_read_is_lost(witness, recorder):
    with pytest.raises(ConnectionAbortedError):
        witness.watch(passed(END, gone=True))
    assert recorder.steps == []


def test_the_rows_of_a_record_batch_are_read_from_its_bytes(witness, recorder):
    exchange(witness, produced(3, 4), acknowledged())
    assert recorder.steps[0].request.appends == (Append(partition=OUT, sequence=0, rows=((0, 3), (0, 4))),)


def test_markers_are_those_of_the_drivers_producer_that_were_written(witness, recorder):
    exchange(witness, INIT, INITIALISED)
    of_another, _ = markers(PRODUCER + 1)
    assert witness.watch(passed(of_another, client="broker-1")) is None
    request, answer = markers(PRODUCER, codes=(0, 6))
    watch = witness.watch(passed(request, client="broker-1"))
    assert watch is not None
    with watch.passes():
        watch.responds(answer)
    assert recorder.steps[2:] == [Marked(OUT)]


def test_markers_that_nobody_asked_for_are_those_of_a_timeout(recorder):
    said = iter([facts(0), facts(1, "PrepareAbort"), facts(1, "CompleteAbort")])
    witness = Witness(recorder=recorder, facts=lambda: next(said), drivers={DRIVER})
    exchange(witness, INIT, INITIALISED)
    request, answer = markers(PRODUCER)
    watch = witness.watch(passed(request, client="broker-1"))
    assert watch is not None
    with watch.passes():
        watch.responds(answer)
    assert recorder.steps[2:] == [TimedOut(), Marked(OUT)]


def test_a_timeout_is_noticed_before_the_next_request_once_one_may_have_come(recorder):
    said = iter([None, facts(0), facts(1, "CompleteAbort")])
    witness = Witness(recorder=recorder, facts=lambda: next(said), drivers={DRIVER}, shortest_s=0.0)
    exchange(witness, INIT, INITIALISED)
    assert [type(step) for step in recorder.steps] == [Requested, Arrived]
    exchange(witness, produced(0), acknowledged())
    assert [type(step) for step in recorder.steps[2:]] == [Requested, TimedOut, Arrived]


def test_a_question_that_showed_no_timeout_does_not_put_off_the_next_one(recorder):
    said = iter([facts(0), facts(0), facts(1, "CompleteAbort")])
    witness = Witness(recorder=recorder, facts=lambda: next(said), drivers={DRIVER}, shortest_s=0.2)
    exchange(witness, INIT, INITIALISED)
    time.sleep(0.2)
    exchange(witness, produced(0), acknowledged())
    exchange(witness, produced(1), acknowledged())
    assert [type(step) for step in recorder.steps[2:]] == [Requested, Arrived, Requested, TimedOut, Arrived]


@pytest.mark.parametrize("code", [19, 47, 51, 90])
def test_a_timeout_between_the_question_and_the_request_shows_in_the_answer(recorder, code):
    said = iter([facts(0), facts(1, "PrepareAbort")])
    witness = Witness(recorder=recorder, facts=lambda: next(said), drivers={DRIVER})
    exchange(witness, INIT, INITIALISED)
    exchange(witness, produced(0), acknowledged(code))
    assert [type(step) for step in recorder.steps[2:]] == [Requested, TimedOut, Arrived]


def test_an_error_of_a_request_without_a_timeout_is_none(recorder):
    witness = Witness(recorder=recorder, facts=lambda: facts(0), drivers={DRIVER})
    exchange(witness, INIT, INITIALISED)
    exchange(witness, produced(0), acknowledged(90))
    assert [type(step) for step in recorder.steps[2:]] == [Requested, Arrived]


@pytest.mark.parametrize(("epoch", "steps"), [(0, [Requested, Arrived]), (1, [Requested, TimedOut, Arrived])])
def test_a_timeout_shows_in_what_a_driver_is_told_of_the_transaction(recorder, epoch, steps):
    said = iter([facts(0), facts(1, "PrepareAbort")])
    witness = Witness(recorder=recorder, facts=lambda: next(said), drivers={DRIVER})
    exchange(witness, INIT, INITIALISED)
    exchange(witness, DESCRIBE, described(epoch))
    assert [type(step) for step in recorder.steps[2:]] == steps


def test_a_request_waits_until_the_one_before_is_answered(witness, recorder):
    first, second = (witness.watch(passed(request)) for request in (INIT, END))
    assert first is not None
    assert second is not None

    def pass_second():
        with second.passes():
            second.responds(frame_of(EndTxnResponse(version=4, error_code=0)))

    with first.passes():
        thread = threading.Thread(target=pass_second)
        thread.start()
        first.responds(INITIALISED)
    thread.join(SECONDS)
    assert [step.number for step in recorder.steps if isinstance(step, Arrived)] == [1, 2]


def test_whoever_is_to_be_killed_at_a_request_is_told_of_before_it_is_forwarded(witness):
    met: list[str] = []
    witness.on_rule = met.append
    witness.watch(passed(INIT))
    witness.watch(passed(END, rule=parse_rule("EndTxn:1:drop-response")))
    assert met == [DRIVER]


def test_what_is_recorded_of_frames_is_translated_as_what_is_recorded_of_the_simulation(witness, recorder):
    recorder.begins(DRIVER, Checkpoint("query 1"), 0)
    batch = MicroBatch(
        query_id="query 1", batch_id=0, digest="", sources=(SourceRange(start={IN: 0}, end={IN: 2}),), run_id=DRIVER
    )
    recorder.plans(DRIVER, batch)
    exchange(witness, INIT, INITIALISED)
    exchange(witness, produced(0, 1), acknowledged())
    recorder.shown(OUT, ((0, 0), (0, 1)))
    trace = translate(
        Recording(
            seed=1,
            version=2,
            way="driver",
            first_epoch=-1,
            flags="",
            steps=tuple(recorder.steps),
            answered=frozenset(recorder.answered),
            refused=frozenset(),
            groups={},
            faults=frozenset(),
            wrong=(),
            output=OUT.topic,
        )
    )
    assert not isinstance(trace, Outside), trace.what
    assert trace.steps == (
        {"kind": "starts", "run": 1, "checkpoint": 1, "new": (), "end": 2},
        {"kind": "initialises", "run": 1, "epoch": -1, "code": "NONE", "returned": 0},
        {
            "kind": "appends",
            "run": 1,
            "epoch": 0,
            "partition": 1,
            "records": (1, 2),
            "layout": ((1, 2), (), ()),
            "code": "NONE",
        },
        {"kind": "shows", "partition": 1, "records": (1, 2)},
    )
