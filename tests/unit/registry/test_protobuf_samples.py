"""Any file's messages are read as Protobuf's own classes read them, and written as these write them."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.decoding import _pass
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import Group
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from tests.unit.registry.protobuf_samples import Sample, is_map, row_of

VALUES = 4  # of each file
READ = "read and written"


def same(one: Any, other: Any) -> bool:
    """Whether two rows are equal, not a number too, and -0.0 another one than 0.0."""
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def comparable(message: Descriptor, row: dict[str, Any]) -> dict[str, Any]:
    """A row of the column, with maps in order and texts of JSON parsed."""
    return {field.name: _value(field, row[field.name]) for field in message.fields}


def _value(field: FieldDescriptor, value: Any) -> Any:
    if value is None:
        return None
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return sorted((key, _single(inner, each)) for key, each in value)
    return [_single(field, each) for each in value] if field.is_repeated else _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}:
        return json.loads(value)
    return comparable(field.message_type, value) if isinstance(value, dict) else value


def read(text: SchemaText, target: QuerySchema, values: list[bytes]) -> pa.StructArray:
    """The column of framed values of a schema."""
    group = Group(7, np.arange(len(values)), 5)
    column, faults = _pass(pa.array(values, pa.binary()), group, format_of(target).reader(text))
    assert faults == {}
    column.validate(full=True)
    return column


def check(seed: int) -> str:
    chance = random.Random(seed)
    sample = Sample(chance)
    target = QuerySchema(sample.text, sample.message.full_name)
    try:
        kind = format_of(target)
    except UnsupportedSchema as error:
        return str(error)
    prefix = SchemaId("PROTOBUF", 7, None, _create_index_array(sample.message)).id_to_bytes()
    messages = [sample.value() for _ in range(VALUES)]
    values = [prefix + each.SerializeToString(deterministic=True) for each in messages]

    # What a writer may choose in another way: fields in several pieces, fields of a later one, whether they are packed.
    merged = [one + other.SerializeToString() for one, other in zip(values, reversed(messages), strict=True)]
    both = [sample.type.FromString(each.SerializeToString()) for each in messages]
    for one, other in zip(both, reversed(messages), strict=True):
        one.MergeFrom(other)
    later = [value + b"\xca\xf7\x02\x01x" * chance.randrange(3) + b"\xd0\xf7\x02\x05" for value in values]  # 6009, 6010
    column = read(sample.text, target, values + merged + later)
    repacked = sample.repacked()
    others = [prefix + repacked.type.FromString(each.SerializeToString()).SerializeToString() for each in messages]

    expected = [row_of(each) for each in (*messages, *both, *messages, *messages)]
    rows = column.to_pylist() + read(repacked.text, target, others).to_pylist()
    for row, wanted in zip(rows, expected, strict=True):
        assert same(comparable(sample.message, row), wanted), f"seed {seed}: {wanted}"
    assert kind.write(column[:VALUES], prefix[:5]).to_pylist() == values, f"seed {seed}: written"
    return READ


@pytest.mark.parametrize(
    "seeds",
    [
        range(2_000),
        *(
            pytest.param(
                range(2_000 + 20_000 * part, 22_000 + 20_000 * part),
                marks=[pytest.mark.slow, pytest.mark.timeout(3_600)],
            )
            for part in range(5)
        ),
    ],
    ids=lambda seeds: f"{len(seeds)} from {seeds.start}",
)
def test_messages_of_any_file_are_read_and_written_as_protobufs_own_classes_do(seeds, cell):
    outcomes = Counter(map(check, seeds))
    read_and_written = outcomes.pop(READ)
    cell("Protobuf files, with Protobuf's own classes", f"{len(seeds):,} files", READ, f"{read_and_written:,}")
    assert all("unfolds to more" in refusal for refusal in outcomes), outcomes
    assert read_and_written > 0.95 * len(seeds)
