"""Headers that name the schema of a key or a value are left out where it is encoded anew."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.schema_headers import without_schema


def test_headers_that_name_the_schema_are_left_out_of_some_rows() -> None:
    stale = "__value_schema_id"
    lists = [
        [{"key": stale, "value": b"1"}, {"key": "a", "value": None}, {"key": stale, "value": b"2"}],
        [{"key": stale, "value": b"3"}],
        None,
        [],
        [{"key": stale, "value": b"4"}],
    ]
    column = pa.array(lists, HEADERS)
    which = pa.array([True, True, True, True, False])
    left_out = without_schema(column, "value", which)
    left_out.validate(full=True)
    assert left_out.to_pylist() == [[{"key": "a", "value": None}], [], None, [], lists[4]]
    assert without_schema(column[1:], "value", which[1:]).to_pylist() == left_out.to_pylist()[1:]
    assert without_schema(column, "key", which) is column
    large = column.cast(pa.large_list(HEADERS.value_type))
    assert without_schema(large, "value", which).to_pylist() == left_out.to_pylist()


@pytest.mark.parametrize(("column", "other"), [("key", "value"), ("value", "key")])
def test_what_serializers_of_other_registries_say_of_the_encoding_is_left_out(column: str, other: str) -> None:
    names = ("globalId", "contentId", "contentHash", "groupId", "artifactId", "version", "encoding", "msgType")
    left_out = [
        *(f"apicurio.{column}.{name}" for name in names),
        f"{column}.schema.version.id",
        "com.ibm.eventstreams.schemaregistry.schema.id",
        "com.ibm.eventstreams.schemaregistry.encoding",
    ]
    kept = [f"apicurio.{other}.globalId", f"{other}.schema.version.id", "content-encoding", "apicurio"]
    types = [("content-type", value) for value in (b"avro/binary+0f", b"text/plain", None)]
    row = [{"key": name, "value": value} for name, value in (*((name, b"x") for name in (*left_out, *kept)), *types)]
    result = without_schema(pa.array([row], HEADERS), column, pa.array([True])).to_pylist()
    assert result == [row[len(left_out) : -3] + row[-2:]]
