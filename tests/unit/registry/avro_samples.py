"""An Avro schema with every kind of field, and records of it as Confluent's serializer and Spark have them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

EVERY_KIND = json.dumps({
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "price", "type": "double"},
        {"name": "customer", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "checksum", "type": {"type": "fixed", "name": "Checksum", "size": 4}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exactly_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"}, {"name": "pieces", "type": ["null", "int"]},
            ]}}},
        {"name": "labels", "type": {"type": "map", "values": "long"}},
        {"name": "choice", "type": ["null", "string", "long", {"type": "array", "items": "int"}]},
    ],
})  # fmt: skip


def order(number: int) -> dict:
    """A record as Confluent's serializer takes it."""
    return {
        "id": number - 3,
        "count": -number,
        "paid": number % 2 == 0,
        "weight": number / 4,
        "price": number * 1.5,
        "customer": f"customer {number}" * (number % 5),
        "raw": bytes(number % 7),
        "note": None if number % 3 else "für Zoë",
        "state": "SENT" if number % 4 else "NEW",
        "checksum": bytes([number % 256] * 4),
        "amount": Decimal(number * (-1) ** number) / 100,
        "day": date(2026, 1, 1 + number % 28),
        "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "exactly_at": datetime(1969, 12, 31, 23, 59, 59, number, tzinfo=UTC),
        "token": str(UUID(int=number)),
        "lines": [{"sku": f"s{each}", "pieces": each or None} for each in range(number % 4)],
        "labels": {f"k{each}": each for each in range(number % 3)},
        "choice": [None, "text", 2**40 + number, [number, 2]][number % 4],
    }


def row(record: dict) -> dict:
    """The record as Spark's struct: maps as pairs, a union with a field per branch."""
    number = [type(None), str, int, list].index(type(record["choice"]))
    members = {f"member{each}": record["choice"] if each + 1 == number else None for each in range(3)}
    return record | {
        "token": str(record["token"]),
        "labels": list(record["labels"].items()),
        "choice": members if number else None,
    }
