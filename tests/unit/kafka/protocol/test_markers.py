"""The marker of what no coordinator will end, to a scripted broker."""

from __future__ import annotations

import pytest
from kafka.protocol.producer import WriteTxnMarkersResponse

from spark_kafka_eos.errors import AuthorizationFailed, ProducerFenced
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.kafka.protocol.markers import write_marker

HANGING = ProducerState(
    partition=TopicPartition("orders", 1), producer_id=9, epoch=3, coordinator_epoch=-1, start_offset=30
)


def answer(code=0, *, producer_id=9):
    marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = marker.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult(partition_index=1, error_code=code)
    return WriteTxnMarkersResponse(
        markers=[marker(producer_id=producer_id, topics=[topic(name="orders", partitions=[partition])])]
    )


def test_an_abort_marker_has_the_epoch_of_what_hangs_and_any_coordinators(broker, caplog):
    broker.script["WriteTxnMarkers"].append(answer())
    write_marker(broker.cluster(), HANGING, commit=False)
    [request] = broker.sent("WriteTxnMarkers")
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (9, 3, False)
    assert marker.coordinator_epoch == 0
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [1])]
    assert "producer 9, epoch 3, transaction from offset 30" in caplog.text


def test_a_commit_marker_commits(broker, caplog):
    broker.script["WriteTxnMarkers"].append(answer())
    write_marker(broker.cluster(), HANGING, commit=True)
    [request] = broker.sent("WriteTxnMarkers")
    assert [marker.transaction_result for marker in request.markers] == [True]
    assert "wrote a commit marker to orders-1" in caplog.text


def test_a_leader_that_has_moved_is_looked_up_again_and_another_answer_is_none(broker):
    broker.script["WriteTxnMarkers"] += [answer(6), answer(producer_id=8), answer()]
    write_marker(broker.cluster(), HANGING, commit=False)
    assert len(broker.sent("WriteTxnMarkers")) == 3


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [(31, AuthorizationFailed, "Grant ClusterAction on the cluster"), (47, ProducerFenced, "INVALID_PRODUCER_EPOCH")],
)
def test_a_refusal_is_raised_and_not_logged_as_done(broker, caplog, code, error, said):
    broker.script["WriteTxnMarkers"].append(answer(code))
    with pytest.raises(error, match=said):
        write_marker(broker.cluster(), HANGING, commit=False)
    assert "wrote an abort marker" not in caplog.text
