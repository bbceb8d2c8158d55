"""The bounds for what others choose hold at their edges, in a time that does not matter; the page has them all."""

from __future__ import annotations

import json
import re
import time

import pyarrow as pa
import pytest

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry.client import MOST_REFERENCES, Registry, SchemaText
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema
from tests.bounds import BOUNDS, refer, register
from tests.pages import ROOT


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.what)
def test_what_is_at_the_edge_of_a_bound_takes_little_time(bound, without_collector):
    began = time.process_time()
    bound.edge()
    assert time.process_time() - began < bound.seconds


def test_the_page_has_each_bound_with_its_value_and_its_reason():
    page = (ROOT / "docs" / "security.md").read_text().partition("## Bounds")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [0-9.]+ m?s \|$", page, re.MULTILINE)
    assert rows == [(bound.what, bound.value, bound.why) for bound in BOUNDS]


def test_a_schema_with_too_many_references_is_a_fault_of_its_rows_and_is_asked_for_once(server):
    named = [refer(server, f"R{number}") for number in range(MOST_REFERENCES + 1)]
    number = register(server, "any-value", '"long"', named)
    values = pa.array([b"\0" + number.to_bytes(4, "big") + b"\2"] * 3, pa.binary())
    for _ in range(2):
        found = decode(values, None, Registry.of(server.url), QuerySchema(SchemaText("AVRO", '"long"')))
        assert {fault.cause for fault in found.faults.values()} == {Cause.INCOMPATIBLE}
        assert "refers to more than 100 others" in found.faults[0].message
    reads = [request for request in server.requests if request.startswith("GET")]
    assert len(reads) == 1 + MOST_REFERENCES


def test_references_that_go_round_in_a_circle_end(server):
    for name, other in (("one", "two"), ("two", "one")):
        text = json.dumps({"type": "fixed", "name": name, "size": 4})
        register(server, name, text, [{"name": other, "subject": other, "version": 1}])
    number = register(server, "any-value", '"long"', [{"name": "one", "subject": "one", "version": 1}])
    values = pa.array([b"\0" + number.to_bytes(4, "big") + b"\2"], pa.binary())
    found = decode(values, None, Registry.of(server.url), QuerySchema(SchemaText("AVRO", '"long"')))
    assert found.values.to_pylist() == [1]
