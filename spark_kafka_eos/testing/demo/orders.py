"""Orders as Avro values in Confluent's wire format: three versions of the schema, and one value in a hundred is bad.

Order number n is always the same record, so the number of records of each kind is known.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import ToolFailed

SUBJECT = "orders-value"
LARGEST = 4_000  # bytes of a record that the output topic takes; one way to be bad is to be larger
EVERY = 100  # one of this many values is bad

_FIRST = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "cents", "type": "int"},
]
_SECOND = [*_FIRST, {"name": "currency", "type": "string", "default": "EUR"}]
_THIRD = [*_SECOND, {"name": "note", "type": ["null", "string"], "default": None}]
SCHEMAS = [json.dumps({"type": "record", "name": "Order", "fields": fields}) for fields in (_FIRST, _SECOND, _THIRD)]
_PARSED = [fastavro.parse_schema(json.loads(text)) for text in SCHEMAS]
_OTHER = json.dumps({"title": "Order", "type": "object"})
_UNKNOWN_ID = 2_000_000_000

# The ways in which a value is bad: what is done to a good one, and the cause that is expected of its dead letter.
_Way = Callable[[bytes, "Ids"], bytes]
WAYS: Mapping[str, tuple[Cause, _Way]] = {
    "no magic byte": (Cause.NOT_FRAMED, lambda value, _: b"\x07" + value[1:]),
    "too short": (Cause.NOT_FRAMED, lambda value, _: value[:3]),
    "unknown schema": (Cause.UNKNOWN_SCHEMA, lambda value, _: _framed(_UNKNOWN_ID, value[5:])),
    "wrong schema": (Cause.WRONG_SCHEMA, lambda _, ids: _framed(ids.other, b'{"id": 1}')),
    "truncated": (Cause.UNDECODABLE, lambda value, _: value[:-2]),
    "bytes left over": (Cause.UNDECODABLE, lambda value, _: value + b"\x00\x01"),
    "too large": (Cause.TOO_LARGE, lambda _, ids: _large(ids)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """The ids of the schema's versions in a registry, and of a JSON schema that is not of orders' values."""

    versions: tuple[int, ...]
    other: int


def register(url: str) -> Ids:
    """Register the schemas, the latest version last."""
    with SchemaRegistryClient({"url": url}) as client:
        versions = tuple(client.register_schema(SUBJECT, Schema(text, "AVRO")) for text in SCHEMAS)
        return Ids(versions=versions, other=client.register_schema("orders-json-value", Schema(_OTHER, "JSON")))


def way_of(number: int) -> str | None:
    """In which way an order is bad; None if it is good."""
    return [*WAYS][number // EVERY % len(WAYS)] if number % EVERY == EVERY // 2 else None


def expected(records: int) -> Counter[Cause]:
    """The number of dead letters by cause among the first `records` orders."""
    ways = Counter(map(way_of, range(EVERY // 2, records, EVERY)))
    causes: Counter[Cause] = Counter()
    for way, count in ways.items():
        if way is not None:
            causes[WAYS[way][0]] += count
    return causes


def value_of(number: int, ids: Ids) -> bytes:
    """The value of an order."""
    version = number % len(SCHEMAS)
    order: dict[str, Any] = {"id": number, "customer": f"customer-{number % 997}", "cents": number * 7 % 100_000}
    order |= {"currency": "CHF"} if version >= 1 else {}
    order |= {"note": f"note {number}" if number % 2 else None} if version >= 2 else {}
    good = _framed(ids.versions[version], _avro(version, order))
    way = way_of(number)
    return good if way is None else WAYS[way][1](good, ids)


def produce(bootstrap: str, topic: str, records: int, ids: Ids) -> None:
    """Send the first `records` orders, keyed by customer. Raises ToolFailed if some are not delivered."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4", "queue.buffering.max.messages": 0}
    )
    for number in range(records):
        producer.produce(topic, value_of(number, ids), f"customer-{number % 997}")
        if number % 10_000 == 0:
            producer.poll(0)
    if unsent := producer.flush(120):
        raise ToolFailed(f"{unsent:,} of {records:,} records could not be sent to {topic}")


def values(records: int, ids: Ids) -> Iterator[bytes]:
    """The values of the first `records` orders."""
    return (value_of(number, ids) for number in range(records))


def _framed(schema_id: int, body: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def _avro(version: int, order: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _PARSED[version], order)
    return stream.getvalue()


def _large(ids: Ids) -> bytes:
    order = {"id": -1, "customer": "customer-0", "cents": 0, "currency": "EUR", "note": "x" * 2 * LARGEST}
    return _framed(ids.versions[-1], _avro(len(SCHEMAS) - 1, order))
