import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.producing.sequences import next_sequence

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


@given(st.integers(0, LAST), st.integers(1, LAST))
def test_the_wrap_is_the_java_clients(sequence: int, records: int) -> None:
    """What is left after 2^31 - 1 starts again from 0."""
    wrapped = sequence + records if sequence <= LAST - records else records - (LAST - sequence) - 1
    assert next_sequence(sequence, records) == wrapped
