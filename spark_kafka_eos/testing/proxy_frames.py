"""What the protocol proxy parses in a frame: client and API, broker addresses in a response, error fields. Pure.

    request:  apiKey int16, apiVersion int16, correlationId int32, clientId nullable string, …
    response: correlationId int32, …

A frame is the bytes after its length. Everything else is passed on unchanged.

Source: Kafka's protocol guide; kafka-python's classes, generated from Kafka's schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_key import ApiKey

from spark_kafka_eos.errors import ToolFailed

# Maps a broker's node id, host and port to the address that the client shall use.
Address = Callable[[int, str, int], tuple[str, int]]

_HEAD = struct.Struct(">hhih")
_NO_ACKS = 0

# APIs whose answers name brokers, and from which version on.
_NAMES_BROKERS = {"Metadata": 0, "FindCoordinator": 0, "DescribeCluster": 0, "Produce": 10, "Fetch": 16}

# APIs that answer per partition: the request's topics and their partitions, then the response's, and its error code.
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
# APIs that answer per item of a list from some version on: version, the request's list, the response's, shared fields.
_PER_ITEM = {
    "Metadata": (0, "topics", "topics", ("name", "topic_id")),
    "FindCoordinator": (4, "coordinator_keys", "coordinators", ("key",)),
    "OffsetFetch": (8, "groups", "groups", ("group_id",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """The first fields of a request; `client` is empty for a client without an id."""

    api: str
    version: int
    correlation_id: int
    client: str


def request_header(frame: bytes | bytearray) -> RequestHeader:
    """Who asks for what. Raises ToolFailed for what is no Kafka request."""
    try:
        key, version, correlation_id, length = _HEAD.unpack_from(frame)
        client = bytes(frame[_HEAD.size : _HEAD.size + max(0, length)]).decode()
        api = ApiKey(key).name
    except (struct.error, ValueError) as error:
        raise ToolFailed(f"not a Kafka request: {error}", action="The proxy reads plaintext, not TLS.") from None
    return RequestHeader(api=api, version=version, correlation_id=correlation_id, client=client)


def expects_response(header: RequestHeader, frame: bytes | bytearray) -> bool:
    """Every request but a Produce with acks=0 is answered."""
    return header.api != "Produce" or _request(header, frame).acks != _NO_ACKS


def with_addresses(header: RequestHeader, frame: bytes | bytearray, address: Address) -> bytes | bytearray:
    """The response `frame` to `header`, its brokers' addresses mapped; the very same object if it names none."""
    if header.version < _NAMES_BROKERS.get(header.api, header.version + 1):
        return frame
    response = _response_class(header).decode(frame, version=header.version, header=True)
    named = list(_brokers(header.api, response))
    for broker, node_id in named:
        broker.host, broker.port = address(node_id, broker.host, broker.port)
    return bytes(response.encode(header=True)) if named else frame


def _brokers(api: str, response: Any) -> Iterator[tuple[Any, int]]:
    """Whatever has a host and a port, with its node id; -1 is nobody's."""
    match api:
        case "Produce" | "Fetch":
            found = [(broker, broker.node_id) for broker in response.node_endpoints or ()]
        case "FindCoordinator":
            found = [(broker, broker.node_id) for broker in response.coordinators or (response,)]
        case "DescribeCluster":
            found = [(broker, broker.broker_id) for broker in response.brokers]
        case _:
            found = [(broker, broker.node_id) for broker in response.brokers]
    return ((broker, node_id) for broker, node_id in found if node_id >= 0)


def error_response(header: RequestHeader, frame: bytes | bytearray, code: int) -> bytes:
    """The answer to the request `frame` that says `code` of everything it asks for.

    Raises ToolFailed for an API whose answer has no place for it.
    """
    check_answerable(header.api)
    request, response = _request(header, frame), _response_class(header)(version=header.version)
    item = _PER_ITEM.get(header.api)
    if header.api == "AddPartitionsToTxn" and header.version > 3:
        response.error_code = code
    elif header.api in _PER_PARTITION:
        _say_per_partition(request, response, code, *_PER_PARTITION[header.api])
    elif item is not None and header.version >= item[0]:
        _say_per_item(request, response, code, *item[1:])
    else:
        response.error_code = code
    response.with_header(correlation_id=header.correlation_id)
    return bytes(response.encode(header=True))


def check_answerable(api: str) -> None:
    """Raises ToolFailed for an API that the proxy cannot answer with an error."""
    response = message_class(f"{api}Response")
    if api not in _PER_PARTITION and api not in _PER_ITEM and "error_code" not in response.fields:
        raise ToolFailed(
            f"the proxy cannot return an error for {api}: it does not know the position of error codes in the response"
        )


def _say_per_partition(
    request: Any, response: Any, code: int, asked_topics: str, asked: str, topics: str, said: str, code_name: str
) -> None:
    topic_class = response.fields[topics].data_class
    partition_class = topic_class.fields[said].data_class
    answers = []
    for topic in getattr(request, asked_topics):
        answer = topic_class(**_shared(topic, topic_class, ("name", "topic", "topic_id")))
        partitions = [
            partition_class(**{_index(partition_class): _number(partition), code_name: code})
            for partition in getattr(topic, asked)
        ]
        setattr(answer, said, partitions)
        answers.append(answer)
    setattr(response, topics, answers)


def _say_per_item(request: Any, response: Any, code: int, asked: str, said: str, shared: tuple[str, ...]) -> None:
    item_class = response.fields[said].data_class
    items = getattr(request, asked) or ()
    answers = [
        item_class(
            error_code=code, **({shared[0]: item} if isinstance(item, str) else _shared(item, item_class, shared))
        )
        for item in items
    ]
    setattr(response, said, answers)


def _shared(asked: Any, answer_class: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in names if name in asked.fields and name in answer_class.fields}


def _index(partition_class: Any) -> str:
    return "index" if "index" in partition_class.fields else "partition_index"


def _number(partition: Any) -> int:
    """A partition's number in a request, which calls it by three names, or nothing else of it."""
    if isinstance(partition, int):
        return partition
    name = next(name for name in ("index", "partition", "partition_index") if name in partition.fields)
    return int(getattr(partition, name))


def _request(header: RequestHeader, frame: bytes | bytearray) -> Any:
    return message_class(f"{header.api}Request").decode(frame, version=header.version, header=True)


def _response_class(header: RequestHeader) -> Any:
    return message_class(f"{header.api}Response")


@cache
def message_class(name: str) -> Any:
    """kafka-python's class of a request or response (`EndTxnRequest`). Raises ToolFailed for one it does not have."""
    for module in (metadata, producer, consumer, admin, sasl):
        if hasattr(module, name):
            return getattr(module, name)
    raise ToolFailed(f"the proxy does not know the fields of {name}")
