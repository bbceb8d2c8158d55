import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.core.sequences import base_sequences, next_sequence

LAST = 2**31 - 1


@pytest.mark.parametrize(
    ("base", "records", "following"),
    [
        (0, 0, 0),
        (0, 1, 1),
        (5, 100, 105),
        (LAST - 1, 1, LAST),
        (LAST, 1, 0),
        (LAST, 2, 1),
        (LAST - 9, 10, 0),
        (LAST - 9, 20, 10),
    ],
)
def test_a_sequence_follows_and_wraps_to_0(base: int, records: int, following: int) -> None:
    assert next_sequence(base, records) == following


def test_the_first_batch_of_an_epoch_has_sequence_0() -> None:
    assert base_sequences([3, 4, 5]).tolist() == [0, 3, 7]


def test_sequences_are_32_bit_integers() -> None:
    assert base_sequences([1]).dtype == np.int32


def test_no_batches_have_no_sequences() -> None:
    assert base_sequences([]).tolist() == []


@given(st.integers(0, LAST), st.lists(st.integers(1, LAST), max_size=20))
def test_each_batch_follows_the_one_before(first: int, counts: list[int]) -> None:
    sequence = first
    for base, records in zip(base_sequences(counts, first).tolist(), counts, strict=True):
        assert base == sequence
        # As the Java client counts: what is left after 2^31 - 1 starts again from 0.
        sequence = sequence + records if sequence <= LAST - records else records - (LAST - sequence) - 1
        assert next_sequence(base, records) == sequence
