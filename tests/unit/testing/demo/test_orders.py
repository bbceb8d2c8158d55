"""The input of the proof: how many records are bad, and in which way."""

from __future__ import annotations

from collections import Counter

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.testing.demo.orders import EVERY, LARGEST, WAYS, Ids, expected, value_of, way_of

IDS = Ids(versions=(1, 2, 3), other=4)


def test_one_value_in_a_hundred_is_bad_and_each_way_is_equally_frequent():
    records = EVERY * len(WAYS) * 3
    ways = Counter(map(way_of, range(records)))
    assert ways.pop(None) == records - 3 * len(WAYS)
    assert ways == dict.fromkeys(WAYS, 3)
    assert expected(records) == {
        Cause.NOT_FRAMED: 6, Cause.UNDECODABLE: 6, Cause.UNKNOWN_SCHEMA: 3, Cause.WRONG_SCHEMA: 3, Cause.TOO_LARGE: 3
    }  # fmt: skip


def test_good_values_have_the_ids_of_all_three_versions():
    assert {value_of(number, IDS)[:5] for number in range(EVERY // 2)} == {bytes([0, 0, 0, 0, n]) for n in (1, 2, 3)}


def test_each_way_is_what_it_says():
    bad = {way_of(number): value_of(number, IDS) for number in range(EVERY // 2, EVERY * len(WAYS), EVERY)}
    assert (bad["no magic byte"][0], len(bad["too short"]), bad["wrong schema"][4]) == (7, 3, 4)
    assert bad["unknown schema"][1:5] not in {value.to_bytes(4, "big") for value in range(5)}
    assert len(bad["too large"]) > LARGEST > max(len(value) for way, value in bad.items() if way != "too large")
