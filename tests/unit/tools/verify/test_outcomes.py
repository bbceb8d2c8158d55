"""The log's own word on its transactions, checked against the rule itself, applied one batch at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.tools.verify.outcomes import BatchKind, BatchTable, Outcome, outcomes

KINDS = {
    "data": BatchKind.DATA,
    "plain": BatchKind.DATA,
    "commit": BatchKind.COMMIT,
    "abort": BatchKind.ABORT,
    "other": BatchKind.OTHER,
}


def log(*batches):
    """(what, producer id) of each batch; every one has two offsets."""
    whats = [what for what, _ in batches]
    base = np.arange(0, 2 * len(batches), 2)
    return BatchTable(
        base_offset=base,
        next_offset=base + 2,
        producer_id=np.array([producer for _, producer in batches], np.int64),
        epoch=np.zeros(len(batches), np.int64),
        transactional=np.array([what != "plain" for what in whats], np.bool_),
        kind=np.array([KINDS[what] for what in whats], np.int8),
        records=np.array([2 * (what in ("data", "plain")) for what in whats], np.int64),
    )


def names(found):
    return [Outcome(outcome).name.lower() for outcome in found.of]


def test_a_marker_decides_all_that_its_producer_has_appended_since_the_one_before():
    found = outcomes(
        log(("data", 1), ("data", 2), ("data", 1), ("abort", 1), ("data", 1), ("commit", 2), ("commit", 1))
    )
    assert names(found) == ["aborted", "committed", "aborted", "control", "committed", "control", "control"]
    assert found.open == {}
    assert found.last_stable_offset(14) == 14


def test_what_no_marker_ended_is_open_and_holds_the_last_stable_offset():
    found = outcomes(log(("data", 1), ("commit", 1), ("data", 2), ("plain", 9), ("data", 1)))
    assert names(found) == ["committed", "control", "open", "committed", "open"]
    assert found.open == {2: 4, 1: 8}
    assert found.last_stable_offset(10) == 4


def test_plain_data_and_markers_that_end_nothing_are_no_part_of_a_transaction():
    found = outcomes(log(("plain", 1), ("data", 1), ("other", 1), ("abort", 3), ("commit", 1)))
    assert names(found) == ["committed", "committed", "control", "control", "control"]


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 3)), max_size=30))
def test_it_is_the_rule_looked_up_batch_by_batch(batches):
    expected = []
    for at, (what, producer) in enumerate(batches):
        ends = [w for w, p in batches[at + 1 :] if p == producer and w in ("commit", "abort")]
        if what in ("commit", "abort", "other"):
            expected.append("control")
        elif what == "plain":
            expected.append("committed")
        else:
            expected.append({"commit": "committed", "abort": "aborted"}[ends[0]] if ends else "open")
    assert names(outcomes(log(*batches))) == expected
