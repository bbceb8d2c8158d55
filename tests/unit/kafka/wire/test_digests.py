from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.wire.digests import digests

fields = st.none() | st.sampled_from([b"", b"a", b"b", b"ab", b"\0", b"\xff" * 4, b"a" * 300])
records = st.lists(st.tuples(fields, fields), max_size=40)


def of(rows):
    key, value = (pa.array([row[field] for row in rows], pa.binary()) for field in (0, 1))
    return [tuple(each) for each in digests(key, value).tolist()]


@given(records)
def test_digests_are_the_same_of_records_that_are(rows):
    found = of(rows)
    assert len(found) == len(rows)
    for row, digest in zip(rows, found, strict=True):
        assert [other == row for other in rows] == [other == digest for other in found]


@given(records, st.integers(0, 40))
def test_a_records_digest_does_not_depend_on_its_neighbours_or_on_the_slice_it_is_in(rows, start):
    key, value = (pa.array([row[field] for row in rows], pa.binary()) for field in (0, 1))
    assert [tuple(each) for each in digests(key[start:], value[start:]).tolist()] == of(rows)[start:]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((b"a", b"b"), (b"ab", b"")),
        ((None, b"a"), (b"", b"a")),
        ((b"a", None), (b"a", b"")),
        ((b"a", None), (None, b"a")),
    ],
)
def test_where_the_key_ends_and_what_is_null_makes_a_difference(one, other):
    assert len(set(of([one, other]))) == 2
