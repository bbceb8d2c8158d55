"""What kafka-python's decoders let through, and this package does not."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetFetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import EndTxnRequest
from kafka.protocol.schemas.fields import StructField

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.responses import class_of_response, decode_response, incomplete


def frame(response, version):
    response.API_VERSION = version
    response.with_header(correlation_id=5)
    return memoryview(bytes(response.encode(header=True)))


def metadata(**fields):
    topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(cluster_id="c", topics=[topic(error_code=0, name="t", partitions=[])], **fields)


def test_what_the_schema_allows_is_decoded():
    decoded = decode_response(MetadataResponse, 12, frame(metadata(brokers=[]), 12))
    assert [topic.name for topic in decoded.topics] == ["t"]


@pytest.mark.parametrize("version", [10, 12])
def test_a_null_where_the_schema_has_none_is_refused(version):
    with pytest.raises(ValueError, match="brokers is null"):
        decode_response(MetadataResponse, version, frame(metadata(brokers=None), version))


def test_a_null_deep_inside_is_refused():
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    response = OffsetFetchResponse(topics=[topic(name="t", partitions=None)], error_code=0)
    with pytest.raises(ValueError, match="partitions is null"):
        decode_response(OffsetFetchResponse, 7, frame(response, 7))


def test_every_cut_and_every_flipped_bit_is_decoded_or_a_value_error():
    whole = bytes(frame(metadata(brokers=[]), 12))
    damaged = [whole[:end] for end in range(len(whole))]
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for each in damaged:
        with contextlib.suppress(ValueError):
            decode_response(MetadataResponse, 12, memoryview(each))


def test_one_thread_decodes_at_a_time(monkeypatch):
    """While one compiles a decoder, the class has other contents."""
    together = threading.Barrier(2)
    compiled = StructField.compiled_decode_from

    def compile_beside_another(*given, **named):
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return compiled(*given, **named)

    monkeypatch.setattr(StructField, "compiled_decode_from", compile_beside_another)
    whole = frame(metadata(brokers=[]), 12)
    with ThreadPoolExecutor(2) as threads:
        decoded = list(threads.map(lambda _: decode_response(MetadataResponse, 12, whole), range(2)))
    assert [each.cluster_id for each in decoded] == ["c"] * 2
    assert together.broken, "two were there at the same time"


def test_every_request_has_its_responses_beside_it():
    requests = [each for each in ApiMessage.__subclasses__() if each.__name__.endswith("Request")]
    assert {EndTxnRequest, MetadataRequest} <= {*requests}
    for each in requests:
        found = class_of_response(each())
        assert (found.API_KEY, found.type, found.is_request()) == (each.API_KEY, "response", False)


def test_a_number_without_an_end_takes_no_time():
    started = time.monotonic()
    with pytest.raises(ValueError, match="too long"):
        decode_response(MetadataResponse, 12, memoryview(bytes(9) + b"\xff" * (16 << 20)))
    assert time.monotonic() - started < 5


@pytest.mark.usefixtures("without_collector")
def test_the_search_for_such_numbers_takes_time_linear_to_the_response():
    """Runs that are just not too long took a second per MiB: each of their bytes began a search of its own."""

    def seconds(body):
        started = time.process_time()
        with pytest.raises(ValueError, match="too long"):
            decode_response(MetadataResponse, 12, memoryview(bytes(9) + body + b"\xff" * 1000))
        return time.process_time() - started

    size = 4 << 20
    runs = (b"\xff" * 999 + b"\0") * (size // 1000)
    assert seconds(runs) < 10 * seconds(b"\xff\0" * (size // 2)) + 0.01


def test_silence_and_unasked_answers_are_named():
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert incomplete("Produce", [a, b], [b, a]) is None
    error = incomplete("Produce", [a, b], [b, c])
    assert error is not None
    assert error.what == "a broker's response to Produce does not contain t-0 and contains t-2, which was not requested"
