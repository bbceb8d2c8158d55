"""What the protocol proxy parses in a frame: client and API, broker addresses in a response, error fields. Pure.

    request:  apiKey int16, apiVersion int16, correlationId int32, clientId nullable string, …
    response: correlationId int32, …

A frame is the bytes after its length. Everything else is passed on unchanged.

Source: Kafka's protocol guide; kafka-python's classes, generated from Kafka's schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_key import ApiKey

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.responses import decode

# Maps a broker's node id, host and port to the address that the client should use.
Address = Callable[[int, str, int], tuple[str, int]]

_HEAD = struct.Struct(">hhih")
_NO_ACKS = 0

# APIs whose responses contain broker addresses, and the first such version.
_NAMES_BROKERS = {"Metadata": 0, "FindCoordinator": 0, "DescribeCluster": 0, "Produce": 10, "Fetch": 16}

# APIs with an error code per partition: the fields for topics and partitions in the request, then in the response, and
# the error code's field.
_PER_PARTITION = {
    "Produce": ("topic_data", "partition_data", "responses", "partition_responses", "error_code"),
    "Fetch": ("topics", "partitions", "responses", "partitions", "error_code"),
    "ListOffsets": ("topics", "partitions", "topics", "partitions", "error_code"),
    "OffsetCommit": ("topics", "partitions", "topics", "partitions", "error_code"),
    "TxnOffsetCommit": ("topics", "partitions", "topics", "partitions", "error_code"),
    "AddPartitionsToTxn": (
        "v3_and_below_topics",
        "partitions",
        "results_by_topic_v3_and_below",
        "results_by_partition",
        "partition_error_code",
    ),
}
# APIs with an error code per item of a list: first such version, the list in the request and in the response, and the
# fields that an item has in both.
_PER_ITEM = {
    "Metadata": (0, "topics", "topics", ("name", "topic_id")),
    "FindCoordinator": (4, "coordinator_keys", "coordinators", ("key",)),
    "OffsetFetch": (8, "groups", "groups", ("group_id",)),
    "DescribeTransactions": (0, "transactional_ids", "transaction_states", ("transactional_id",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """The first fields of a request; `client` is empty for a client without an id."""

    api: str
    version: int
    correlation_id: int
    client: str


def request_header(frame: bytes | bytearray) -> RequestHeader:
    """The header of a request. Raises ToolFailed if the frame is not a Kafka request."""
    try:
        key, version, correlation_id, length = _HEAD.unpack_from(frame)
        client = bytes(frame[_HEAD.size : _HEAD.size + max(0, length)]).decode()
        api = ApiKey(key).name
    except (struct.error, ValueError) as error:
        raise ToolFailed(f"not a Kafka request: {error}", action="The proxy reads plaintext, not TLS.") from None
    return RequestHeader(api=api, version=version, correlation_id=correlation_id, client=client)


def expects_response(header: RequestHeader, frame: bytes | bytearray) -> bool:
    """Whether the broker responds: to every request except a Produce with acks=0."""
    return header.api != "Produce" or _request(header, frame).acks != _NO_ACKS


def with_addresses(header: RequestHeader, frame: bytes | bytearray, address: Address) -> bytes | bytearray:
    """The response `frame` to `header` with the brokers' addresses mapped; the same object if it contains none."""
    if header.version < _NAMES_BROKERS.get(header.api, header.version + 1):
        return frame
    response = decode(_response_class(header), header.version, frame)
    named = list(_brokers(header.api, response))
    for broker, node_id in named:
        broker.host, broker.port = address(node_id, broker.host, broker.port)
    return bytes(response.encode(header=True)) if named else frame


def without_apis(header: RequestHeader, frame: bytes | bytearray, apis: Collection[str]) -> bytes:
    """The response `frame` to an ApiVersions request, from a broker that lacks these APIs."""
    response = decode(_response_class(header), header.version, frame)
    keys = {ApiKey[api].value for api in apis}
    response.api_keys = [offered for offered in response.api_keys if offered.api_key not in keys]
    return bytes(response.encode(header=True))


def _brokers(api: str, response: Any) -> Iterator[tuple[Any, int]]:
    """Each object with a host and a port, and its node id; -1 stands for no broker."""
    match api:
        case "Produce" | "Fetch":
            brokers = [(broker, broker.node_id) for broker in response.node_endpoints or ()]
        case "FindCoordinator":
            brokers = [(broker, broker.node_id) for broker in response.coordinators or (response,)]
        case "DescribeCluster":
            brokers = [(broker, broker.broker_id) for broker in response.brokers]
        case _:
            brokers = [(broker, broker.node_id) for broker in response.brokers]
    return ((broker, node_id) for broker, node_id in brokers if node_id >= 0)


def error_response(header: RequestHeader, frame: bytes | bytearray, code: int) -> bytes:
    """A response to the request `frame` with `code` for every item of the request.

    Raises ToolFailed for an API whose response has no known error code.
    """
    check_answerable(header.api)
    request, response = _request(header, frame), _response_class(header)(version=header.version)
    item = _PER_ITEM.get(header.api)
    if header.api == "AddPartitionsToTxn" and header.version > 3:
        response.error_code = code
    elif header.api in _PER_PARTITION:
        _set_per_partition(request, response, code, *_PER_PARTITION[header.api])
    elif item is not None and header.version >= item[0]:
        _set_per_item(request, response, code, *item[1:])
    else:
        response.error_code = code
    response.with_header(correlation_id=header.correlation_id)
    return bytes(response.encode(header=True))


def check_answerable(api: str) -> None:
    """Raise ToolFailed for an API for which the proxy cannot build an error response."""
    response = message_class(f"{api}Response")
    if api not in _PER_PARTITION and api not in _PER_ITEM and "error_code" not in response.fields:
        raise ToolFailed(
            f"the proxy cannot return an error for {api}: it does not know the position of error codes in the response"
        )


def _set_per_partition(
    request: Any,
    response: Any,
    code: int,
    topics: str,
    partitions: str,
    out_topics: str,
    out_partitions: str,
    name: str,
) -> None:
    topic_class = response.fields[out_topics].data_class
    partition_class = topic_class.fields[out_partitions].data_class
    results = []
    for topic in getattr(request, topics):
        result = topic_class(**_shared(topic, topic_class, ("name", "topic", "topic_id")))
        errors = [
            partition_class(**{_index(partition_class): _number(partition), name: code})
            for partition in getattr(topic, partitions)
        ]
        setattr(result, out_partitions, errors)
        results.append(result)
    setattr(response, out_topics, results)


def _set_per_item(request: Any, response: Any, code: int, items: str, out: str, shared: tuple[str, ...]) -> None:
    item_class = response.fields[out].data_class
    results = [
        item_class(
            error_code=code, **({shared[0]: item} if isinstance(item, str) else _shared(item, item_class, shared))
        )
        for item in getattr(request, items) or ()
    ]
    setattr(response, out, results)


def _shared(item: Any, result_class: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names if name in item.fields and name in result_class.fields}


def _index(partition_class: Any) -> str:
    return "index" if "index" in partition_class.fields else "partition_index"


def _number(partition: Any) -> int:
    """A partition's number in a request: a plain number, or a field with one of three names."""
    if isinstance(partition, int):
        return partition
    name = next(name for name in ("index", "partition", "partition_index") if name in partition.fields)
    return int(getattr(partition, name))


def _request(header: RequestHeader, frame: bytes | bytearray) -> Any:
    return decode(message_class(f"{header.api}Request"), header.version, frame)


def _response_class(header: RequestHeader) -> Any:
    return message_class(f"{header.api}Response")


@cache
def message_class(name: str) -> Any:
    """kafka-python's class of a request or response (`EndTxnRequest`). Raises ToolFailed if it has none."""
    for module in (metadata, producer, consumer, admin, sasl):
        if hasattr(module, name):
            return getattr(module, name)
    raise ToolFailed(f"the proxy does not know the fields of {name}")
