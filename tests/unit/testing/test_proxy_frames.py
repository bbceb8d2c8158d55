"""What the proxy reads from a request's bytes and changes in a response's, in every version that clients speak."""

import uuid

import pytest
from kafka.protocol import admin, consumer, metadata, producer

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.proxy_frames import (
    RequestHeader,
    check_answerable,
    error_response,
    expects_response,
    request_header,
    with_addresses,
)

TOPIC_ID = uuid.UUID(int=5)


def frame_of(message, version, *, client="me", correlation_id=7):
    """A request's or a response's bytes."""
    message.API_VERSION = version
    if message.is_request():
        message.with_header(correlation_id=correlation_id, client_id=client)
    else:
        message.with_header(correlation_id=correlation_id)
    return bytearray(message.encode(header=True))


def header(api, version):
    return RequestHeader(api=api, version=version, correlation_id=7, client="me")


@pytest.mark.parametrize("version", [2, 3, 5])  # 3: the first flexible one
@pytest.mark.parametrize("client", ["driver-1", ""])
def test_a_request_says_who_asks_for_what(version, client):
    request = producer.EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
    frame = frame_of(request, version, client=client)
    assert request_header(frame) == RequestHeader(api="EndTxn", version=version, correlation_id=7, client=client)


@pytest.mark.parametrize("frame", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1"])
def test_bytes_that_are_not_a_request_are_refused(frame):
    with pytest.raises(ToolFailed, match="not a Kafka request"):
        request_header(frame)


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize(("acks", "expected"), [(-1, True), (1, True), (0, False)])
def test_only_a_produce_without_acknowledgement_is_not_answered(version, acks, expected):
    request = producer.ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1, topic_data=[])
    assert expects_response(header("Produce", version), frame_of(request, version)) is expected


def mapped(node, host, port):
    return f"proxy-{node}", port + 1


def broker_of(api, version):
    """A response that names broker 3 at broker:9092, and its part that does."""
    at = {"host": "broker", "port": 9092}
    if api == "Metadata":
        named = metadata.MetadataResponse.MetadataResponseBroker(node_id=3, **at)
        return metadata.MetadataResponse(brokers=[named], topics=[]), lambda response: response.brokers[0]
    if api == "DescribeCluster":
        named = admin.DescribeClusterResponse.DescribeClusterBroker(broker_id=3, **at)
        return admin.DescribeClusterResponse(cluster_id="c", brokers=[named]), lambda response: response.brokers[0]
    if api == "FindCoordinator" and version < 4:
        return metadata.FindCoordinatorResponse(node_id=3, **at), lambda response: response
    if api == "FindCoordinator":
        named = metadata.FindCoordinatorResponse.Coordinator(key="k", node_id=3, **at)
        return metadata.FindCoordinatorResponse(coordinators=[named]), lambda response: response.coordinators[0]
    kind = producer.ProduceResponse if api == "Produce" else consumer.FetchResponse
    named = kind.NodeEndpoint(node_id=3, **at)
    return kind(responses=[], node_endpoints=[named]), lambda response: response.node_endpoints[0]


@pytest.mark.parametrize(
    ("api", "version"),
    [
        *[("Metadata", version) for version in (0, 8, 9, 12, 13)],
        *[("FindCoordinator", version) for version in (0, 3, 4, 6)],
        *[("DescribeCluster", version) for version in (0, 1, 2)],
        *[("Produce", version) for version in (10, 12, 13)],
        *[("Fetch", version) for version in (16, 17)],
    ],
)
def test_every_address_of_an_answer_is_mapped(api, version):
    response, named = broker_of(api, version)
    changed = with_addresses(header(api, version), frame_of(response, version), mapped)
    found = type(response).decode(changed, version=version, header=True)
    assert (named(found).host, named(found).port) == ("proxy-3", 9093)
    assert found.header.correlation_id == 7


def test_a_response_without_addresses_passes_byte_for_byte():
    nobody = frame_of(metadata.FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1), 3)
    ended = frame_of(producer.EndTxnResponse(), 4)
    fetched = frame_of(consumer.FetchResponse(responses=[]), 16)
    assert with_addresses(header("FindCoordinator", 3), nobody, mapped) is nobody
    assert with_addresses(header("EndTxn", 4), ended, mapped) is ended
    assert with_addresses(header("Fetch", 16), fetched, mapped) is fetched


def answered(request, version, code=51):
    """The decoded answer of an error to a request."""
    api = request.name.removesuffix("Request")
    answer = error_response(header(api, version), frame_of(request, version), code)
    module = next(m for m in (producer, consumer, metadata, admin) if hasattr(m, f"{api}Response"))
    response = getattr(module, f"{api}Response").decode(answer, version=version, header=True)
    assert response.header.correlation_id == 7
    return response


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_error_of_the_whole_request_is_at_the_top(version):
    ids = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    initialise = producer.InitProducerIdRequest(transaction_timeout_ms=1, **ids)
    assert answered(producer.EndTxnRequest(committed=True, **ids), version).error_code == 51
    assert answered(initialise, version).error_code == 51
    assert answered(producer.AddOffsetsToTxnRequest(group_id="g", **ids), min(version, 4)).error_code == 51


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_a_produce_fails_in_each_of_its_partitions(version):
    kind = producer.ProduceRequest.TopicProduceData
    partitions = [kind.PartitionProduceData(index=number, records=b"") for number in (4, 2)]
    topic = kind(name="orders", topic_id=TOPIC_ID, partition_data=partitions)
    request = producer.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=[topic])
    (failed,) = answered(request, version, 6).responses
    assert (failed.topic_id if version >= 13 else failed.name) == (TOPIC_ID if version >= 13 else "orders")
    assert [(p.index, p.error_code) for p in failed.partition_responses] == [(4, 6), (2, 6)]


@pytest.mark.parametrize("version", [3, 5])
def test_a_transactional_offset_commit_fails_in_each_of_its_partitions(version):
    kind = producer.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = kind.TxnOffsetCommitRequestPartition(partition_index=4, committed_offset=1)
    request = producer.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        topics=[kind(name="orders", partitions=[partition])],
    )
    (failed,) = answered(request, version, 7).topics
    assert failed.name == "orders"
    assert [(p.partition_index, p.error_code) for p in failed.partitions] == [(4, 7)]


def test_added_partitions_fail_one_by_one():
    kind = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = producer.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[kind(name="orders", partitions=[0, 1])],
    )
    (failed,) = answered(request, 3).results_by_topic_v3_and_below
    results = [(p.partition_index, p.partition_error_code) for p in failed.results_by_partition]
    assert (failed.name, results) == ("orders", [(0, 51), (1, 51)])


@pytest.mark.parametrize("version", [4, 12, 13, 16])
def test_a_fetch_fails_in_each_of_its_partitions(version):
    kind = consumer.FetchRequest.FetchTopic
    partition = kind.FetchPartition(partition=4, fetch_offset=0, partition_max_bytes=1)
    request = consumer.FetchRequest(
        max_wait_ms=1, min_bytes=1, topics=[kind(topic="orders", topic_id=TOPIC_ID, partitions=[partition])]
    )
    (failed,) = answered(request, version, 1).responses
    assert (failed.topic_id if version >= 13 else failed.topic) == (TOPIC_ID if version >= 13 else "orders")
    assert [(p.partition_index, p.error_code) for p in failed.partitions] == [(4, 1)]


def test_offsets_asked_for_fail():
    kind = consumer.ListOffsetsRequest.ListOffsetsTopic
    topic = kind(name="orders", partitions=[kind.ListOffsetsPartition(partition_index=4, timestamp=-1)])
    request = consumer.ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic])
    (failed,) = answered(request, 7, 6).topics
    assert [(p.partition_index, p.error_code) for p in failed.partitions] == [(4, 6)]


def test_a_groups_offsets_fail_as_a_whole():
    old = consumer.OffsetFetchRequest(group_id="g", topics=[], require_stable=True)
    assert answered(old, 7, 88).error_code == 88
    group = consumer.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[])
    new = consumer.OffsetFetchRequest(groups=[group], require_stable=True)
    assert [(g.group_id, g.error_code) for g in answered(new, 8, 88).groups] == [("g", 88)]


def test_a_coordinator_asked_for_is_not_found():
    assert answered(metadata.FindCoordinatorRequest(key="t", key_type=1), 3, 15).error_code == 15
    several = metadata.FindCoordinatorRequest(key_type=1, coordinator_keys=["t", "u"])
    assert [(c.key, c.error_code) for c in answered(several, 4, 15).coordinators] == [("t", 15), ("u", 15)]


def test_transactions_asked_for_fail_each():
    request = admin.DescribeTransactionsRequest(transactional_ids=["t", "u"])
    states = answered(request, 0, 14).transaction_states
    assert [(state.transactional_id, state.error_code) for state in states] == [("t", 14), ("u", 14)]


def test_metadata_fails_for_each_topic():
    topic = metadata.MetadataRequest.MetadataRequestTopic(name="orders", topic_id=uuid.UUID(int=0))
    request = metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    assert [(t.name, t.error_code) for t in answered(request, 12, 5).topics] == [("orders", 5)]


def test_an_answer_that_has_no_place_for_an_error_is_refused():
    check_answerable("EndTxn")
    with pytest.raises(ToolFailed, match="cannot return an error for DescribeConfigs"):
        check_answerable("DescribeConfigs")
    with pytest.raises(ToolFailed, match="does not know the fields of BeginQuorumEpoch"):
        check_answerable("BeginQuorumEpoch")
