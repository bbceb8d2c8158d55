"""Where an Avro value ends, one value at a time: for the few rows whose arrays are much longer than the others'.

Reading all rows' next item in one step is fast for many rows and slow for one. So a long array of few rows is walked
first, and then its items are read in one step, as if each were a row.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize

from spark_kafka_eos.registry.avro_schema import Array, Avro, Enum, Fixed, Map, Primitive, Record, Union

Extent = Callable[[memoryview, int], int]


class Damaged(ValueError):
    """A number, a length or a branch is impossible. Positions beyond the end raise IndexError, or are found later."""


def extent(avro: Avro) -> Extent:
    """The function from a value's start to the position after it."""
    match avro:
        case Primitive(name="null"):
            return _constant(0)
        case Primitive(name="boolean"):
            return _constant(1)
        case Primitive(name="float" | "double"):
            return _constant(calcsize(avro.name[0]))
        case Primitive(name="int" | "long") | Enum():
            return lambda data, at: _long(data, at)[1]
        case Primitive():
            return _text
        case Fixed():
            return _constant(avro.size)
        case Record():
            return _sequence([extent(field.type) for field in avro.fields])
        case Array():
            return _blocks(extent(avro.items))
        case Map():
            return _blocks(_sequence([_text, extent(avro.values)]))
        case Union():
            return _union([extent(branch) for branch in avro.branches])


def _constant(size: int) -> Extent:
    return lambda _, at: at + size


def _long(data: memoryview, at: int) -> tuple[int, int]:
    folded = shift = 0
    while True:
        byte = data[at]
        at += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (folded >> 1) ^ -(folded & 1), at
        shift += 7
        if shift == 70:
            raise Damaged


def _text(data: memoryview, at: int) -> int:
    length, at = _long(data, at)
    if not 0 <= length <= len(data) - at:
        raise Damaged
    return at + length


def _sequence(parts: list[Extent]) -> Extent:
    def sequence(data: memoryview, at: int) -> int:
        for part in parts:
            at = part(data, at)
        return at

    return sequence


def _blocks(item: Extent) -> Extent:
    def blocks(data: memoryview, at: int) -> int:
        while True:
            count, at = _long(data, at)
            if not count:
                return at
            if count < 0:
                size, at = _long(data, at)
                if not 0 <= size <= len(data) - at:
                    raise Damaged
            for _ in range(abs(count)):
                if at >= len(data):
                    raise Damaged
                at = item(data, at)

    return blocks


def _union(branches: list[Extent]) -> Extent:
    def union(data: memoryview, at: int) -> int:
        branch, at = _long(data, at)
        if not 0 <= branch < len(branches):
            raise Damaged
        return branches[branch](data, at)

    return union
