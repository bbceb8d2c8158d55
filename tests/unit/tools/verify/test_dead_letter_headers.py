"""Where a dead letter comes from, by its headers; and what an output of several topics proves with it."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.tools.verify.provenance_bytes import MAGIC
from spark_kafka_eos.tools.verify.scan import unpack_headers
from tests.letters import headers_of


def letter(**fields):
    return headers_of(DeadLetter(cause=Cause.UNDECODABLE, **{"topic": "in", "partition": 3, "offset": 7, **fields}))


def unpacked(*records):
    """(partition, offset, batch) of each record with these headers; None for one that is no dead letter of `in`."""
    headers = pa.array([[{"key": k, "value": v} for k, v in record] for record in records], HEADERS)
    for start in range(len(records) + 1):  # a slice has an offset
        found = unpack_headers(headers[start:], "in")
        assert len(found) == len(records) - start
    found = unpack_headers(headers, "in")
    return [tuple(map(int, list(row)[1:4])) if row["magic"] == MAGIC else None for row in found]


def test_the_headers_say_partition_offset_and_batch():
    own = [("trace", b"1"), ("trace", None)]
    assert unpacked(own, [*own, *letter(batch_id=5)], [], letter(offset=8)) == [None, (3, 7, 5), None, (3, 8, -1)]


def test_of_a_record_that_was_put_aside_twice_the_last_time_counts():
    assert unpacked([*letter(topic="before", batch_id=1), *letter(offset=9)]) == [(3, 9, -1)]
    assert unpacked([*letter(), *letter(topic="other")]) == [None]


def test_a_dead_letter_of_another_topic_or_of_no_known_place_has_no_origin_here():
    elsewhere: list[dict[str, object]] = [{"topic": "other"}, {"topic": None}, {"partition": None}, {"offset": None}]
    impossible: list[dict[str, object]] = [{"partition": 1 << 31}, {"offset": -1}]
    beyond = [(name, b"9223372036854775808" if value == b"7" else value) for name, value in letter(offset=7)]
    assert unpacked(*(letter(**fields) for fields in elsewhere + impossible), beyond) == [None] * 7


def test_nothing_has_no_origin():
    assert len(unpack_headers(pa.array([], HEADERS), "in")) == 0
