"""Invariants 1 and 2 by what records hold: equal multisets prove, different ones refute only a plain copy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.verify.contents import compare
from spark_kafka_eos.tools.verify.evidence import PartitionLog, source_partition
from spark_kafka_eos.tools.verify.findings import Invariant
from spark_kafka_eos.tools.verify.invariants import check
from spark_kafka_eos.tools.verify.outcomes import BatchKind, BatchTable
from spark_kafka_eos.tools.verify.provenance_bytes import PROVENANCE


def log(text, topic="out", number=0, *, start=0, stable=None):
    """A letter is a record, a capital one is aborted in the end; "-" is an offset that holds nothing any more."""
    held = [(start + at, letter) for at, letter in enumerate(text) if letter != "-"]
    rows = [(at, at + 1, 7, 0, letter.isupper(), BatchKind.DATA, 1) for at, letter in held]
    end = start + len(text)
    if any(letter.isupper() for letter in text):
        rows.append((end, end + 1, 7, 0, True, BatchKind.ABORT, 0))
        end += 1
    return PartitionLog(
        partition=TopicPartition(topic, number),
        batches=BatchTable.of(rows),
        offset=np.array([at for at, _ in held], np.int64),
        provenance=np.zeros(len(held), PROVENANCE),
        start=start,
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        contents=np.array([(0, ord(letter.lower())) for _, letter in held], np.uint64).reshape(-1, 2),
    )


def source(*texts, end=None, **more):
    logs = [log(text, "in", number, **more) for number, text in enumerate(texts)]
    return {
        each.partition.partition: source_partition(each, each.last_stable_offset if end is None else end)
        for each in logs
    }


def output(*texts, **more):
    return [log(text, "out", number, **more) for number, text in enumerate(texts)]


def found(finding):
    return [(each.kind, each.where, each.count) for each in finding.violations]


# -- once


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    ("origin", "logs"),
    [
        (source("abc"), output("abc")),
        (source("abc", "de"), output("bd", "ace")),
        (source("aab"), output("aab")),
        (source("aXb"), output("abQ")),
        (source("abc", end=2), output("ab")),
        (source("abc", stable=2), output("ab")),
        (source(""), output("")),
        (source("ab-", end=2), output("ab")),
    ],
)
def test_an_output_with_the_contents_of_its_source_holds_whoever_wrote_it(origin, logs, copy):
    once, _ = compare(logs, origin, copy=copy)
    assert (once.verdict, once.violations, once.checked) == ("holds", (), sum(log.committed.sum() for log in logs))
    assert once.note == "keys and values are those of the source, compared by digest"


@pytest.mark.parametrize("logs", [output("abx"), output("ab"), output("abcc"), output("")])
def test_a_job_that_transforms_is_not_told_from_a_loss(logs):
    for finding in compare(logs, source("abc"), copy=False):
        assert (finding.verdict, finding.violations) == ("not checked", ())


@pytest.mark.parametrize("copy", [False, True])
def test_a_partition_whose_records_are_all_missing_is_not_proven_to_be_copied_if_its_end_is_unknown(copy):
    origin = source("abc", "de")
    origin[1] = replace(origin[1], end=None)
    once = check(output("abc"), source=origin, copy=copy, readers={})[0]
    assert (once.verdict, once.unproven) == ("not checked", True)
    assert "how many of the 2 records of in-1 the query has read" in once.unchecked
    assert "those of the source" not in once.note


def test_the_number_of_differences_is_reported():
    once, _ = compare(output("axyaD"), source("abc", "D"), copy=False)
    assert (
        "2 of the source's records are not in the output, 3 of the output's records are not in the source"
        in once.unchecked
    )


@pytest.mark.parametrize("end", [None, 0, 1])
@pytest.mark.parametrize("copy", [False, True])
def test_records_that_the_query_is_not_known_to_have_read_are_not_said_to_be_missing_in_the_source(copy, end):
    origin = source("abc", "de")
    origin[1] = replace(origin[1], end=end)
    once, _ = compare(output("abcde"), origin, copy=copy)
    assert (once.verdict, once.violations) == ("not checked", ())
    unread = 1 if end == 1 else 2
    if copy:
        assert once.unchecked == f"{unread} may be copies of records that the query is not known to have read"
    else:
        said = f"0 of the output's records are not in the source, {unread} are in it, but the query is not known"
        assert said in once.unchecked


def test_what_a_plain_copy_lacks_is_named_with_a_few_examples():
    once, _ = compare(output("ai"), source("abcd", "efghi"), copy=True)
    assert found(once) == [("missing", "in-0@1", 7)]
    assert once.violations[0].also == ("in-0@2", "in-0@3")
    assert once.violations[0].what == "is not in the committed output"


def test_for_a_missing_record_the_number_of_equal_ones_is_reported():
    once, _ = compare(output("ab"), source("a", "bab", "a"), copy=True)
    assert found(once) == [("missing", "in-1@1", 3)]
    assert once.violations[0].what == "is not in the committed output often enough, only 1 equal"


def test_in_a_plain_copy_duplicates_are_named_at_the_later_copy_and_foreign_records_too():
    once, _ = compare(output("ab", "xba"), source("cba"), copy=True)
    assert found(once) == [
        ("missing", "in-0@0", 1),
        ("more than once", "out-1@1", 2),
        ("not in the source", "out-1@0", 1),
    ]
    assert once.violations[1].what == "is another copy of in-0@1, which is at out-0@1"
    assert once.violations[1].also == ("out-1@2",)


def test_what_is_only_in_an_aborted_attempt_is_lost_and_what_is_aborted_in_the_source_is_foreign():
    once, _ = compare(output("aBx"), source("abX"), copy=True)
    assert found(once) == [("missing", "in-0@1", 1), ("not in the source", "out-0@2", 1)]


@pytest.mark.parametrize("logs", [output("a", start=3), output("a-")])
def test_an_output_with_deleted_records_may_lack_records_but_may_not_repeat_any(logs):
    once, _ = compare(logs, source("ab"), copy=True)
    assert (once.verdict, once.violations) == ("not checked", ())
    assert once.unchecked == "in-0@1 is not in the committed output; but some of the output is deleted or compacted"
    once, _ = compare([*logs, log("a", number=1)], source("ab"), copy=True)
    assert found(once) == [("more than once", "out-1@0", 1)]


@pytest.mark.parametrize("origin", [source("bc", start=1), source("-bc")])
def test_a_source_that_is_no_longer_whole_may_have_had_what_is_more_but_not_less(origin):
    once, _ = compare(output("abcc"), origin, copy=True)
    assert (once.verdict, once.violations) == ("not checked", ())
    assert "but some of the source is deleted or compacted" in once.unchecked
    once, _ = compare(output("ac"), origin, copy=True)
    assert found(once) == [("missing", "in-0@1", 1)]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    ("origin", "logs", "gone"),
    [
        (source("bc", start=1), output("bc"), 1),
        (source("a-c"), output("ac"), 1),
        (source("", "", start=30), output("", ""), 60),
        (source("abc", end=5), output("abc"), 2),  # truncated
        (source("abc", end=3, stable=2), output("ab"), 1),
    ],
)
def test_what_the_query_read_and_the_source_no_longer_has_is_not_known_to_be_in_the_output(origin, logs, gone, copy):
    once, _ = compare(logs, origin, copy=copy)
    assert (once.verdict, once.violations, once.note) == ("not checked", (), "")
    assert once.unchecked == (
        f"of the offsets that are compared, the source no longer has {gone}: whether the output has what was there is "
        "not known"
    )


def test_what_the_query_has_not_read_may_be_gone():
    once, _ = compare(output("ab"), source("ab-c", end=2), copy=True)
    assert once.verdict == "holds"


def test_what_may_be_a_copy_of_a_later_record_refutes_nothing_and_proves_nothing():
    once, _ = compare(output("aba"), source("abac", end=2), copy=True)
    assert (once.verdict, once.violations) == ("not checked", ())
    assert once.unchecked == "1 may be copies of records that the query is not known to have read"
    once, _ = compare(output("abaa"), source("abac", end=2), copy=True)
    assert found(once) == [("more than once", "out-0@3", 1)]


letters = st.lists(st.text("abcd", max_size=6), min_size=1, max_size=3)


@given(letters, letters)
def test_it_counts_as_counters_do(of_source, of_output):
    wanted, there = Counter("".join(of_source)), Counter("".join(of_output))
    once, _ = compare(output(*of_output), source(*of_source), copy=True)
    assert (once.verdict == "holds") == (wanted == there)
    missing = sum(each.count for each in once.violations if each.kind == "missing")
    assert missing == (wanted - there).total()
    assert sum(each.count for each in once.violations) - missing == (there - wanted).total()


# -- order


@pytest.mark.parametrize("logs", [output("abcd"), output("ac", "bd"), output("cadb"), output("cd", "ab")])
def test_each_source_partitions_records_are_in_order_in_each_output_partition(logs):
    _, order = compare(logs, source("ab", "cd"), copy=True)
    assert (order.verdict, order.violations) == ("holds", ())
    assert order.checked == 4


def test_a_record_after_a_later_one_is_out_of_order_in_a_plain_copy():
    logs = output("acb", "d")
    _, order = compare(logs, source("abcd"), copy=True)
    assert found(order) == [("out of order", "out-0@2", 1)]
    assert order.violations[0].what == "is a copy of in-0@1, after that of a later record, in-0@2, at out-0@1"
    once, order = compare(logs, source("abcd"), copy=False)
    assert (once.verdict, order.verdict) == ("holds", "not checked")
    assert "the job may reorder records" in order.unchecked


def test_a_record_that_may_be_a_copy_of_one_that_the_source_no_longer_has_is_not_proven_to_be_out_of_order():
    _, order = compare(output("acb"), source("-abc"), copy=True)
    assert (order.verdict, order.violations) == ("not checked", ())
    assert order.unchecked.endswith("but some of the source is deleted or compacted")


def test_of_records_that_are_alike_the_order_is_not_known_and_of_the_others_it_is():
    _, order = compare(output("aabc"), source("abac"), copy=True)
    assert (order.verdict, order.checked) == ("not checked", 2)
    assert order.unchecked == "the source records of 2 records are ambiguous"
    _, order = compare(output("aacb"), source("abac"), copy=True)
    assert found(order) == [("out of order", "out-0@3", 1)]


@given(st.permutations("abcdef"), st.integers(0, 6))
def test_any_order_is_judged_as_sorting_does(shuffled, cut):
    text = "".join(shuffled)
    parts = text[:cut], text[cut:]
    _, order = compare(output(*parts), source("abcdef"), copy=True)
    assert (order.verdict == "holds") == all(list(part) == sorted(part) for part in parts)


# -- as a whole


def test_a_plain_copy_is_proven_without_its_batches_being_known():
    findings = check(output("ab", "c"), source=source("abc"), readers={})
    assert [each.verdict for each in findings[:3]] == ["holds", "holds", "not checked"]
    assert [each.invariant for each in findings if each.unproven] == []


def test_a_source_that_was_named_and_could_not_be_compared_is_no_success():
    findings = check(output("xyz"), source=source("abc"), readers={})
    assert [each.invariant for each in findings if each.unproven] == [Invariant.ONCE]


def test_an_empty_output_of_a_source_that_is_not_is_a_loss_only_of_a_copy():
    assert check(output(""), source=source("ab"), readers={})[0].unproven
    assert found(check(output(""), source=source("ab"), copy=True, readers={})[0]) == [("missing", "in-0@0", 2)]


# -- evidence


def test_what_a_source_shows_ends_at_the_last_stable_offset_and_leaves_out_what_is_aborted_or_gone():
    (found,) = [source_partition(log("aB-cd", "in", start=10, stable=14), 13)]
    assert (found.start, found.end, found.visible.tolist()) == (10, 13, [True, False, False, True])
    assert (found.gone.tolist(), found.visible_contents[:, 1].tolist()) == ([12], [ord("a"), ord("c")])
    assert not found.whole


def test_a_log_that_begins_within_a_record_batch_has_no_records_before_its_start():
    whole = log("abc", "in")
    cut = PartitionLog(
        partition=whole.partition,
        batches=whole.batches,
        offset=whole.offset,
        provenance=whole.provenance,
        start=1,
        high_watermark=3,
        last_stable_offset=3,
        contents=whole.contents,
    )
    found = source_partition(cut, 3)
    assert (found.visible.tolist(), found.visible_contents[:, 1].tolist()) == ([True, True], [ord("b"), ord("c")])
    assert not cut.whole and whole.whole
