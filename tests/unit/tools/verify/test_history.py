from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.verify.history import HistoryEntry, committed, from_lines, to_line

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
offsets = st.none() | st.dictionaries(st.sampled_from([A, B]), st.integers(0, 2**62))
entries = st.builds(
    HistoryEntry,
    batch_id=st.integers(0, 2**62),
    event=st.sampled_from(["planned", "committed", "skipped", "aborted"]),
    start=offsets,
    end=offsets,
    producer_id=st.integers(-1, 2**62),
    epoch=st.integers(-1, 2**15),
    time_ms=st.integers(-1, 2**41),
    query_id=st.text(max_size=5),
)


def done(batch, **fields):
    return HistoryEntry(batch_id=batch, event="committed", **fields)


@given(st.lists(entries, max_size=5))
def test_what_is_written_is_read_back(written):
    assert list(from_lines(to_line(entry) for entry in written)) == written


@pytest.mark.parametrize(
    "line",
    ['{"batch": 1, "verdict": "com', "[]", '{"batch": 1}', '{"batch": 1, "verdict": "done"}', '{"verdict": "planned"}',
     '{"batch": 1, "verdict": "planned", "end": {"in": 5}}', '{"batch": null, "verdict": "planned"}'],
)  # fmt: skip
def test_a_line_that_is_not_an_entry_is_named(line):
    with pytest.raises(ValueError, match="line 2 of the history"):
        list(from_lines([to_line(done(0)), line]))


def test_a_start_that_was_not_recorded_is_the_end_of_the_previous_batch():
    end, other = {A: 10}, {A: 20}
    found = committed(
        [
            done(0, end=end),
            HistoryEntry(batch_id=1, event="aborted"),
            done(1, end=other),
            done(3, end=other),
            done(4, start=end, end=other),
        ]
    )
    assert [entry.batch_id for entry in found] == [0, 1, 3, 4]
    assert [entry.start for entry in found] == [None, end, None, end]
