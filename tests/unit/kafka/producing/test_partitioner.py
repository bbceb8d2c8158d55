import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from spark_kafka_eos.errors import ConfigurationError, InvalidRow
from spark_kafka_eos.kafka.producing.partitioner import Partitioner


def chosen(keys: list[bytes | None], partitions: int, *, name: str = "murmur2", start: int = 0) -> list[int]:
    numbers: list[int] = Partitioner(name, start=start).partition("t", pa.array(keys, pa.binary()), partitions).tolist()
    return numbers


@given(st.lists(st.binary(max_size=12), max_size=30), st.integers(1, 200))
def test_a_key_goes_where_the_java_client_sends_it(keys: list[bytes], partitions: int) -> None:
    assert chosen(list(keys), partitions) == [(reference(key) & 0x7FFFFFFF) % partitions for key in keys]


def test_the_empty_key_is_a_key() -> None:
    assert chosen([b"", b""], 7) == [(reference(b"") & 0x7FFFFFFF) % 7] * 2


def test_a_keys_partition_does_not_depend_on_where_the_spread_begins() -> None:
    assert chosen([b"a", None, b"b"], 5, start=3)[::2] == chosen([b"a", b"b"], 5)


def test_rows_without_a_key_are_spread_in_equal_runs() -> None:
    assert chosen([None] * 8, 4) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_spread_begins_at_the_given_partition_and_goes_round() -> None:
    assert chosen([None] * 4, 4, start=6) == [2, 3, 0, 1]


def test_few_rows_without_a_key_take_turns_over_the_calls() -> None:
    partitioner, one = Partitioner("murmur2"), pa.array([None], pa.binary())
    assert [partitioner.partition("t", one, 3).tolist() for _ in range(4)] == [[0], [1], [2], [0]]


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 1_000))
def test_the_spread_is_even_and_each_partition_has_one_run(rows: int, partitions: int, start: int) -> None:
    numbers = np.array(chosen([None] * rows, partitions, start=start))
    counts = np.bincount(numbers, minlength=partitions)
    assert counts.max() - counts.min() <= 1
    assert np.count_nonzero(np.diff(numbers)) == min(rows, partitions) - 1


def test_few_rows_without_a_key_stay_together_over_the_calls() -> None:
    partitioner = Partitioner(start=1, least_run=3)

    def spread(rows: int) -> list[int]:
        numbers: list[int] = partitioner.partition("t", pa.nulls(rows, pa.binary()), 4).tolist()
        return numbers

    assert [spread(2), spread(2), spread(1), spread(4)] == [[1, 1], [1, 2], [2], [2, 3, 3, 3]]
    assert spread(12) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 9), st.integers(1, 20))
def test_runs_have_their_least_length_and_the_spread_is_even_in_the_long_run(
    calls: list[int], partitions: int, least_run: int
) -> None:
    partitioner = Partitioner(least_run=least_run)
    rows = [pa.nulls(count, pa.binary()) for count in calls]
    numbers = np.concatenate([[], *(partitioner.partition("t", few, partitions) for few in rows)]).astype(int)
    if len(numbers) and all(count < least_run * partitions for count in calls):
        edges = np.flatnonzero(np.diff(numbers)) + 1
        assert set(np.diff([0, *edges])) <= {least_run}
        counts = np.bincount(numbers, minlength=partitions)
        assert counts.max() - counts.min() <= least_run


def test_keyed_and_keyless_rows_may_be_mixed() -> None:
    numbers = chosen([None, b"a", None, b"a"], 2)
    assert numbers[1] == numbers[3]
    assert sorted(numbers[::2]) == [0, 1]


def test_an_explicit_partition_wins_over_the_key() -> None:
    keys, explicit = pa.array([b"a", b"b"]), pa.array([2, 0], pa.int32())
    assert Partitioner().partition("t", keys, 3, explicit).tolist() == [2, 0]


def test_a_null_partition_lets_the_key_decide() -> None:
    keys, explicit = pa.array([b"a", b"b", None]), pa.array([None, 0, None], pa.int32())
    by_key = (reference(b"a") & 0x7FFFFFFF) % 3
    assert Partitioner(start=1).partition("t", keys, 3, explicit).tolist() == [by_key, 0, 1]


def test_a_column_of_null_partitions_lets_every_key_decide() -> None:
    keys, explicit = pa.array([b"a", b"b"]), pa.array([None, None], pa.int32())
    assert Partitioner().partition("t", keys, 3, explicit).tolist() == chosen([b"a", b"b"], 3)


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1])
def test_a_partition_out_of_range_names_the_topic_and_the_limit(number: int) -> None:
    keys, explicit = pa.array([b"a", b"b", b"c"]), pa.array([0, number, None], pa.int32())
    with pytest.raises(InvalidRow, match=rf"partition {number} of topic 'orders', which has 3 \(0 to 2\)"):
        Partitioner().partition("orders", keys, 3, explicit)


def test_consistent_is_the_crc_32_of_the_key() -> None:
    assert chosen([b"a", b"librdkafka", None, b""], 10, name="consistent") == [
        zlib.crc32(b"a") % 10, zlib.crc32(b"librdkafka") % 10, 0, 0,
    ]  # fmt: skip


def test_round_robin_does_not_look_at_keys() -> None:
    assert chosen([b"a", b"a", b"a", None], 2, name="roundrobin") == [0, 0, 1, 1]


def test_no_rows_have_no_partitions() -> None:
    for name in ("murmur2", "consistent", "roundrobin"):
        assert chosen([], 3, name=name) == []


def test_partitions_are_32_bit_integers() -> None:
    keys = pa.array([b"a", None])
    for explicit in (None, pa.array([0, 1], pa.int64()), pa.array([0, None], pa.int32())):
        assert Partitioner().partition("t", keys, 2, explicit).dtype == np.int32


def test_an_unknown_partitioner_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="murmur2, consistent, roundrobin"):
        Partitioner("random")
