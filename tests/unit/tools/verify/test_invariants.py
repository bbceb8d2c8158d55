"""Each invariant on small logs: it holds where all is well, and each way to break it is named with its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.tools.verify.evidence import Ledger, PartitionLog, Seen, SourcePartition
from spark_kafka_eos.tools.verify.findings import Invariant
from spark_kafka_eos.tools.verify.history import HistoryEntry
from spark_kafka_eos.tools.verify.invariants import check
from spark_kafka_eos.tools.verify.outcomes import BatchKind, BatchTable
from spark_kafka_eos.tools.verify.provenance_bytes import pack, unpack

IN = TopicPartition("in", 0)


@dataclass
class Data:
    """A record batch: copies of these source offsets, made in micro-batch `batch` under `producer` and `epoch`."""

    offsets: Sequence[int]
    batch: int = 0
    producer: int = 1
    epoch: int = 0
    source: int = 0
    bare: bool = False


@dataclass
class Marker:
    kind: BatchKind = BatchKind.COMMIT
    producer: int = 1


COMMIT = Marker()
ABORT = Marker(BatchKind.ABORT)


def log(*batches, number=0, start=0, last_stable_offset=None, name="out"):
    """A partition of `name` with these record batches from offset `start` on; a number of offsets holds nothing."""
    at, rows, values = start, [], []
    offsets: list[int] = []
    for each in batches:
        if isinstance(each, int):
            at += each
            continue
        size = len(each.offsets) if isinstance(each, Data) else 1
        if isinstance(each, Data):
            rows.append((at, at + size, each.producer, each.epoch, True, BatchKind.DATA, size))
            offsets += range(at, at + size)
            packed = unpack(pack(each.source, np.array(each.offsets), each.batch))
            values.append(np.zeros_like(packed) if each.bare else packed)
        else:
            rows.append((at, at + 1, each.producer, 0, True, each.kind, 0))
        at += size
    return PartitionLog(
        partition=TopicPartition(name, number),
        batches=BatchTable.of(rows),
        offset=np.array(offsets, np.int64),
        provenance=np.concatenate([unpack(pack(0, 0, 0))[:0], *values]),
        start=start,
        high_watermark=at,
        last_stable_offset=at if last_stable_offset is None else last_stable_offset,
    )


def source(visible="xxxxxx", end=None, number=0, start=0):
    """Source offsets from 10 on: `x` has a record, `.` has none, nor have those before; before `start` all is gone."""
    visible = ("." * 10 + visible)[start:]
    return SourcePartition(
        partition=TopicPartition("in", number),
        start=start,
        end=start + len(visible) if end is None else end,
        visible=np.array([each == "x" for each in visible], np.bool_),
    )


def honest(*logs):
    """A reader that was shown exactly what is committed."""
    return {
        each.partition: Seen(start=0, end=each.last_stable_offset, offset=each.committed_offset.copy()) for each in logs
    }


def done(batch, start=None, end=None, **fields):
    start, end = (None if at is None else {IN: at} for at in (start, end))
    return HistoryEntry(batch_id=batch, event="committed", start=start, end=end, **fields)


def checked(*logs, origin="whole", **more):
    """The findings, by invariant; by default the source has offsets 10 to 15 and one reader is honest."""
    sources = {0: source()} if origin == "whole" else origin
    found = check(list(logs), source=sources, **{"readers": {"us": honest(*logs)}, **more})
    assert [each.invariant for each in found] == list(Invariant)[:-1]  # without a table
    return {each.invariant: each for each in found}


def violations(findings):
    """(invariant, kind, where, count) of all of them."""
    return [(f.invariant, v.kind, v.where, v.count) for f in findings.values() for v in f.violations]


GOOD = [
    log(Data([10, 12]), COMMIT, Data([13], batch=1, epoch=1), ABORT, Data([13], batch=1, epoch=2), COMMIT),
    log(Data([11]), COMMIT, Data([14, 15], batch=1, epoch=2), COMMIT, number=1),
]
HISTORY = [
    done(0, 10, 13, producer_id=1, epoch=0),
    HistoryEntry(batch_id=1, event="aborted", producer_id=1, epoch=1),
    done(1, 13, 16, producer_id=1, epoch=2),
]


def test_where_all_is_well_everything_holds_and_says_how_much_was_checked():
    findings = checked(*GOOD, history=HISTORY, ledger=Ledger(batch_id=1, transaction_state="CompleteCommit"))
    assert {f.verdict for f in findings.values()} == {"holds"}
    assert [(f.checked, f.unit) for f in findings.values()] == [
        (6, "records"), (6, "records"), (2, "batches"), (6, "readings"), (2, "batches"), (2, "partitions")
    ]  # fmt: skip


def unproven(findings):
    return [each.invariant for each in findings.values() if each.unproven]


def test_without_provenance_the_first_three_are_neither_checked_nor_requested():
    plain = log(Data([1, 2], bare=True), COMMIT)
    findings = checked(plain, origin=None)
    assert [f.verdict for f in findings.values()] == [*["not checked"] * 3, "holds", "not checked", "holds"]
    assert unproven(findings) == []


@pytest.mark.parametrize("origin", [None, "whole"])
@pytest.mark.parametrize("end", [COMMIT, ABORT])
def test_where_only_some_values_have_provenance_nothing_is_concluded_from_it(origin, end):
    mixed = log(Data([10, 11, 11]), COMMIT, Data([0], epoch=1, bare=True), end)
    findings = checked(mixed, origin=origin)
    assert violations(findings) == []
    assert unproven(findings) == [Invariant.ONCE, Invariant.ORDER, Invariant.IDENTITY]
    assert {findings[each].unchecked for each in list(Invariant)[:3]} == {
        "1 of 4 values have no provenance, for example out-0@4"
    }


def test_where_the_sources_values_have_provenance_nothing_is_concluded_from_the_outputs():
    origin = {0: replace(source(), traced=1)}
    findings = checked(log(Data([1, 1], 5), COMMIT, Data([1], 5, epoch=1), COMMIT), origin=origin)
    assert violations(findings) == []
    assert unproven(findings) == [Invariant.ONCE, Invariant.ORDER, Invariant.IDENTITY]
    assert "set --copy to compare the contents" in findings[Invariant.ONCE].unchecked


def test_an_output_of_two_topics_has_each_record_in_one_of_them():
    good = log(Data([10, 12, 13, 15]), COMMIT)
    dead = replace(log(Data([11, 14]), COMMIT, name="dead"), dead_letters=2)
    assert {each.verdict for each in checked(good, dead, history=[done(0, 10, 16)]).values()} == {"holds"}
    again = replace(log(Data([11, 12]), COMMIT, name="dead"), dead_letters=2)
    assert violations(checked(good, again)) == [
        (Invariant.ONCE, "more than once", "dead-0@1", 1), (Invariant.ONCE, "missing", "in-0@14", 1)
    ]  # fmt: skip


def test_dead_letters_are_in_no_order():
    """What cannot be written is found later than what cannot be decoded."""
    good = log(Data([10, 12, 13, 15]), COMMIT)
    dead = replace(log(Data([14, 11]), COMMIT, name="dead"), dead_letters=2)
    finding = checked(good, dead)[Invariant.ORDER]
    assert (finding.verdict, finding.checked, finding.note) == ("holds", 4, "dead letters are in no order")


def test_dead_letters_beside_values_without_provenance_are_compared_by_contents():
    """Of the dead letters alone the origin is known, which proves nothing about the others."""
    contents = np.arange(12, dtype=np.uint64).reshape(6, 2)
    origin = {0: replace(source(), contents=contents)}
    good = replace(log(Data([10, 12, 13, 15], bare=True), COMMIT), contents=contents[[0, 2, 3, 5]])
    dead = replace(log(Data([11, 14]), COMMIT, name="dead"), contents=contents[[1, 4]], dead_letters=2)
    finding = checked(good, dead, origin=origin)[Invariant.ONCE]
    assert (finding.verdict, finding.checked) == ("holds", 6)
    assert "compared by digest" in finding.note


def test_without_a_batch_in_the_values_or_a_history_there_is_nothing_to_compare_the_ledger_with():
    plain = log(Data([1, 2], bare=True), COMMIT)
    finding = checked(plain, origin=None, ledger=Ledger(batch_id=3))[Invariant.LEDGER]
    assert (finding.verdict, finding.asked) == ("not checked", False)
    finding = checked(plain, origin=None, ledger=Ledger(batch_id=3), history=[done(3)])[Invariant.LEDGER]
    assert (finding.verdict, finding.asked) == ("holds", True)


def test_without_a_source_duplicates_are_found_and_a_loss_cannot_be():
    twice = log(Data([10, 11]), COMMIT, Data([13, 11, 10], batch=1, epoch=1), COMMIT)
    assert violations(checked(twice, origin=None))[0] == (Invariant.ONCE, "more than once", "out-0@5", 2)


# -- 1


def test_a_record_that_is_not_there_is_named_with_the_place_of_its_aborted_copy():
    findings = checked(log(Data([10, 12, 13, 14]), COMMIT, Data([11], epoch=1), ABORT), origin={0: source(end=15)})
    assert violations(findings) == [(Invariant.ONCE, "missing", "in-0@11", 1)]
    (violation,) = findings[Invariant.ONCE].violations
    assert violation.what == "is not in the committed output, only at out-0@5 (aborted)"


def test_a_duplicate_is_named_at_its_later_copy():
    again = Data([11, 12], batch=1, epoch=1)
    findings = checked(log(Data([10, 11, 12, 13, 14, 15]), COMMIT), log(again, COMMIT, number=1))
    assert violations(findings) == [(Invariant.ONCE, "more than once", "out-1@0", 2)]
    (violation,) = findings[Invariant.ONCE].violations
    assert violation.what == "is another copy of in-0@11, which is at out-0@1"


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (Data([12]), "out-0@0"),  # a hole in the source: aborted there, or compacted
        (Data([17]), "out-0@0"),
        (Data([10], source=3), "out-0@0"),
    ],
)
def test_a_record_that_the_source_does_not_have_is_foreign(data, where):
    findings = checked(log(data, Data([10, 11, 13]), COMMIT), origin={0: source("xx.x")})
    assert (Invariant.ONCE, "not in the source", where, 1) in violations(findings)


def test_the_later_batchs_copy_is_the_duplicate_in_any_position():
    findings = checked(log(Data([11], batch=1, epoch=1), COMMIT), log(Data([10, 11]), COMMIT, number=1), origin=None)
    assert violations(findings)[0] == (Invariant.ONCE, "more than once", "out-0@0", 1)


GONE = [
    (Data([9, 9, 12]), {0: replace(source("xx.x", start=10), gone=np.array([12]))}, "out-0@1", 3),
    (Data([9, 12, 12]), {0: replace(source("xx.x", start=10), gone=np.array([12]))}, "out-0@2", 3),
    (Data([9, 8, 12]), {0: replace(source("xx.x", start=10), gone=np.array([12]))}, None, 3),
]


@pytest.mark.parametrize(("data", "origin", "twice", "gone"), GONE)
def test_a_copy_of_what_the_source_no_longer_has_is_not_foreign_unless_it_is_there_twice(data, origin, twice, gone):
    finding = checked(log(data, Data([10, 11, 13]), COMMIT), origin=origin)[Invariant.ONCE]
    assert [(each.kind, each.where) for each in finding.violations] == ([("more than once", twice)] if twice else [])
    copied = f"{gone} are copies of records that the source no longer has"
    assert finding.note == f"{copied}; compared up to the committed offsets"


def test_a_source_that_has_everything_has_lost_nothing_before_its_start():
    whole = SourcePartition(partition=IN, start=0, end=2, visible=np.ones(2, np.bool_))
    findings = checked(log(Data([0, 1, -1]), COMMIT), origin={0: whole})
    assert violations(findings)[0] == (Invariant.ONCE, "not in the source", "out-0@2", 1)


@pytest.mark.parametrize("output", [log(Data([10, 12, 13, 14, 15]), COMMIT, start=1),
                                    log(Data([10, 12, 13]), 1, Data([14, 15]), COMMIT)])  # fmt: skip
def test_what_is_not_in_an_output_that_is_no_longer_whole_is_not_proven_to_be_lost(output):
    findings = checked(output, history=[done(0, 10, 16)])
    assert violations(findings) == []
    assert unproven(findings) == [Invariant.ONCE, Invariant.IDENTITY]
    assert findings[Invariant.ONCE].unchecked == (
        "in-0@11 is not in the committed output; but some of the output is deleted or compacted"
    )


def test_a_batchs_records_are_not_counted_where_the_source_no_longer_has_what_it_was_to_read():
    history = [done(0, 8, 12), done(1, 12, 16)]
    output = log(Data([8, 9, 10, 11]), COMMIT, Data([12, 13, 14], 1, epoch=1), COMMIT)
    findings = checked(output, origin={0: source(end=15, start=10)}, history=history)
    assert violations(findings) == [(Invariant.IDENTITY, "wrong count", "batch 1", 1)]
    assert findings[Invariant.IDENTITY].unchecked == "", "the output has a copy of each"


HOLE = np.array([12])


@pytest.mark.parametrize(
    ("output", "origin"),
    [
        (log(Data([9, 10, 11]), COMMIT, Data([12, 13, 14, 15], 1, epoch=1), COMMIT), source(start=10)),
        (log(Data([10, 11, 13]), COMMIT, Data([14, 15], 1, epoch=1), COMMIT), replace(source("xx.xxx"), gone=HOLE)),
        (log(Data([10, 11, 12, 13]), COMMIT, Data([14], 1, epoch=1), COMMIT), source("xxxxx", end=16)),
        (log(Data([11, 12, 13]), COMMIT, Data([14, 15], 1, epoch=1), COMMIT, start=1), source()),
    ],
    ids=["deleted", "compacted", "truncated", "output deleted"],
)  # fmt: skip
def test_a_batch_of_which_some_is_gone_is_not_known_to_have_all_that_was_planned(output, origin):
    ends = (8, 12, 16) if origin.start else (10, 14, 16)
    findings = checked(output, origin={0: origin}, history=[done(0, *ends[:2]), done(1, *ends[1:])])
    assert violations(findings) == []
    assert unproven(findings) == [Invariant.ONCE, Invariant.IDENTITY]
    assert findings[Invariant.IDENTITY].unchecked.startswith(
        "of 1 of 2 batches it is not known whether all planned records are there: "
    )


def test_a_batch_that_has_more_than_was_planned_has_it_whatever_is_gone():
    output = log(Data([8, 9, 10, 11, 12]), COMMIT, Data([13, 14, 15], 1, epoch=1), COMMIT)
    findings = checked(output, origin={0: source(start=10)}, history=[done(0, 8, 12), done(1, 13, 16)])
    assert (Invariant.IDENTITY, "wrong count", "batch 0", 1) in violations(findings)


@pytest.mark.parametrize(
    ("copies", "origin", "gone", "without"),
    [
        ([], source("xxx", start=10), 10, 10),
        ([4, 8], source("xxx", start=10), 10, 8),
        ([*range(9), 8], source("xxx", start=10), 10, 1),
        ([], replace(source("x.xx"), gone=np.array([11])), 1, 1),
        ([], source("xxx", end=15), 2, 2),  # its end was truncated
        ([14], source("xxx", end=15), 2, 1),
        ([], source("xxx", end=1 << 50), (1 << 50) - 13, (1 << 50) - 13),  # to which somebody has set the group
    ],
)
def test_an_offset_that_the_source_no_longer_has_is_not_known_to_be_copied_unless_it_is(copies, origin, gone, without):
    records = 10 + np.flatnonzero(origin.visible[10 - origin.start :])
    finding = checked(log(Data([*copies, *records]), COMMIT), origin={0: origin})[Invariant.ONCE]
    assert [each.kind for each in finding.violations] == ["more than once"] * (len(set(copies)) < len(copies))
    assert finding.unchecked == (
        f"of the offsets that are compared, the source no longer has {gone:,}, and the output has no copy of "
        f"{without:,} of these: whether they had records is not known"
    )


@pytest.mark.parametrize(
    ("copies", "origin"),
    [
        (range(10), source("xxx", start=10)),
        ([11], replace(source("x.xx"), gone=np.array([11]))),
        ([13, 14], source("xxx", end=15)),
        ([], replace(source("xxx.", end=13), gone=np.array([13]))),  # which the query has not read
    ],
)
def test_what_the_source_no_longer_has_and_the_output_has_is_there(copies, origin):
    records = 10 + np.flatnonzero(origin.visible[10 - origin.start :])
    finding = checked(log(Data([*copies, *records]), COMMIT), origin={0: origin})[Invariant.ONCE]
    assert (finding.verdict, finding.unchecked) == ("holds", "")
    assert finding.note.startswith(
        f"{len(copies)} are copies of records that the source no longer has" if copies else ""
    )


@pytest.mark.parametrize(
    "logs", [GOOD, [log(Data([10], bare=True), COMMIT)], [log()]], ids=["traced", "plain", "empty"]
)
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("origin", ["whole", None])
def test_a_doubt_about_what_must_be_there_is_no_success(logs, copy, origin):
    contents = np.arange(12, dtype=np.uint64).reshape(6, 2)
    if origin:
        origin = {0: replace(source(), contents=contents)}
        logs = [replace(each, contents=contents[: len(each.offset)]) for each in logs]
    finding = checked(*logs, origin=origin, copy=copy, doubt="the topic was created again")[Invariant.ONCE]
    assert finding.asked and finding.verdict != "holds"
    assert finding.unchecked.startswith("the topic was created again")


def test_a_source_that_is_not_what_the_query_read_is_not_compared_and_duplicates_are_found_all_the_same():
    twice = log(Data([10, 11, 10]), COMMIT)
    findings = checked(twice, origin=None, copy=True, doubt="the topic was created again")
    assert violations(findings)[0] == (Invariant.ONCE, "more than once", "out-0@2", 1)
    assert findings[Invariant.IDENTITY].verdict == "holds"


def test_gaps_in_the_source_are_not_missing_records():
    assert violations(checked(log(Data([10, 11, 13]), COMMIT), origin={0: source("xx.x")})) == []


def test_records_after_the_committed_end_may_be_missing_or_present():
    assert violations(checked(log(Data([10, 11]), COMMIT), origin={0: source(end=12)})) == []
    assert violations(checked(log(Data([10, 11, 12]), COMMIT), origin={0: source(end=12)})) == []


def test_how_many_source_records_need_not_be_there_yet_is_said():
    some = checked(log(Data([10, 11]), COMMIT), origin={0: source("xxx.x", end=12)}, up_to="the group's")
    assert some[Invariant.ONCE].verdict == "holds"
    assert some[Invariant.ONCE].note == "compared up to the group's, after which the source has 2 records"
    assert checked(*GOOD, up_to="its end")[Invariant.ONCE].note == "compared up to its end"
    assert checked(*GOOD, origin=None)[Invariant.ONCE].note == ""


def test_what_must_be_there_of_a_partition_without_a_known_end_is_not_checked():
    def unknown(number, visible="xxxx"):
        return replace(source(visible, number=number), end=None)

    some = log(Data(range(10, 16)), COMMIT, Data([10], 1, epoch=1, source=1), COMMIT)
    findings = checked(some, origin={0: source(), 1: unknown(1), 2: unknown(2, "...."), 3: unknown(3)})
    assert violations(findings) == [] and unproven(findings) == [Invariant.ONCE]
    assert findings[Invariant.ONCE].unchecked == (
        "it is not known how many of the 8 records of in-1, in-3 the query has read"
    )
    twice = log(Data(range(10, 16)), COMMIT, Data([10, 10], 1, epoch=1, source=1), COMMIT)
    assert violations(checked(twice, origin={0: source(), 1: unknown(1)})) == [
        (Invariant.ONCE, "more than once", "out-0@8", 1)
    ]
    assert unproven(checked(*GOOD, origin={0: source(), 1: unknown(1, "....")})) == [], "it has no records"
    deleted = checked(*GOOD, origin={0: source(), 1: replace(source("....", number=1, start=12), end=None)})
    assert deleted[Invariant.ONCE].unchecked == (
        "it is not known how many of the 0 records of in-1 the query has read, nor of those that are deleted or "
        "compacted"
    )


# -- 2


def test_a_record_after_a_later_one_of_its_partition_is_out_of_order():
    findings = checked(
        log(Data([10, 12]), Data([7], source=1), Data([11, 13]), Data([5], source=1), Data([14, 15]), COMMIT),
        origin={0: source(), 1: SourcePartition(partition=IN, start=5, end=5, visible=np.array([True, False, True]))},
    )
    assert violations(findings) == [(Invariant.ORDER, "out of order", "out-0@3", 2)]
    (violation,) = findings[Invariant.ORDER].violations
    assert violation.what == (
        "is offset 11 of source partition 0 (batch 0), after a later record, offset 12 at out-0@1"
    )


def test_many_records_of_several_partitions_are_in_order_when_each_partition_is():
    runs = [Data(range(k, k + 10), source=number) for k in range(0, 2_000, 10) for number in (2, 0, 1)]
    assert violations(checked(log(*runs, COMMIT), origin=None)) == []


def test_order_is_kept_for_each_pair_of_partitions_only():
    logs = log(Data([14, 15]), Data([10], source=70_000), COMMIT), log(Data([10, 11, 12, 13]), COMMIT, number=1)
    findings = checked(*logs, origin={0: source(), 70_000: source(end=10)})
    assert violations(findings) == []


# -- 3


def test_a_batch_under_two_identities_and_an_identity_of_two_batches_are_named():
    torn = log(Data([10, 11]), COMMIT), log(Data([12], epoch=1), COMMIT, Data([13, 14, 15], batch=1), COMMIT, number=1)
    assert violations(checked(*torn)) == [
        (Invariant.IDENTITY, "several identities", "out-1@0", 1),
        (Invariant.IDENTITY, "several batches", "out-1@2", 1),
    ]


@pytest.mark.parametrize("producers", [(1, 2), (2, 1)])
def test_one_batch_of_two_producers_is_named_also_within_a_partition(producers):
    batches = [each for p in producers for each in (Data([10 + p], producer=p), Marker(producer=p))]
    findings = checked(log(*batches), origin=None)
    assert (Invariant.IDENTITY, "several identities", "out-0@2", 1) in violations(findings)


def test_an_attempt_aborted_before_it_had_an_identity_says_nothing_about_records_without_one():
    history = [HistoryEntry(batch_id=0, event="aborted")]
    plain = log(Data(range(10, 16), producer=-1, epoch=-1), Marker(producer=-1))
    assert violations(checked(plain, history=history)) == []


def test_writes_without_a_producer_are_of_no_identity():
    plain = log(Data([10, 11], producer=-1, epoch=-1), Marker(producer=-1), Data([12], 1, -1, -1), Marker(producer=-1))
    assert Invariant.IDENTITY not in [each[0] for each in violations(checked(plain))]


def test_an_aborted_attempt_must_not_be_committed():
    history = [HistoryEntry(batch_id=0, event="aborted", producer_id=1, epoch=0)]
    assert violations(checked(log(Data(range(10, 16)), COMMIT), history=history)) == [
        (Invariant.IDENTITY, "given up", "out-0@0", 1)
    ]


def test_an_output_that_begins_later_than_its_source_lacks_what_is_before_it():
    """As of a query with `startingOffsets` after the source's first record."""
    later = checked(log(Data([12, 13, 14, 15]), COMMIT))
    assert violations(later) == [(Invariant.ONCE, "missing", "in-0@10", 2)]


def test_a_query_that_committed_only_its_batch_0_cannot_be_told_from_the_one_after_it_without_a_history():
    output = log(Data([10, 11]), COMMIT, Data([12, 13], epoch=1), COMMIT, Data([14, 15], 1, epoch=2), COMMIT)
    assert [each[1] for each in violations(checked(output, ledger=Ledger(batch_id=1)))] == ["several identities"]
    history = [
        done(0, 10, 12, query_id="first"),
        done(0, 12, 14, query_id="second"),
        done(1, 14, 16, query_id="second"),
    ]
    assert violations(checked(output, history=history, ledger=Ledger(batch_id=1))) == []


def test_a_batch_must_be_committed_under_the_identity_that_its_driver_noted():
    history = [done(0, 10, 16, producer_id=1, epoch=5)]
    assert violations(checked(log(Data(range(10, 16)), COMMIT), history=history)) == [
        (Invariant.IDENTITY, "other identity", "out-0@0", 1)
    ]


def test_each_batch_has_exactly_the_records_that_it_was_to_read():
    history = [done(0, 10, 12), done(1, 12, 16)]
    findings = checked(log(Data([10, 11, 12]), COMMIT, Data([13, 14, 15], batch=1, epoch=1), COMMIT), history=history)
    assert violations(findings) == [
        (Invariant.IDENTITY, "not as planned", "out-0@2", 1),
        (Invariant.IDENTITY, "wrong count", "batch 0", 2),
    ]


def test_a_batch_reads_a_partition_that_is_new_from_its_start():
    history = [done(0, 10, 13), HistoryEntry(batch_id=1, event="committed", start={IN: 13},
                                             end={IN: 13, TopicPartition("in", 1): 12})]  # fmt: skip
    findings = checked(
        log(Data([10, 11, 12]), COMMIT, Data([10, 11], batch=1, epoch=1, source=1), COMMIT),
        origin={0: source(end=13), 1: source(end=12, number=1)},
        history=history,
    )
    assert violations(findings) == []


# -- 4


def reader(*offsets, start=0, end=7):
    return {TopicPartition("out", 0): Seen(start=start, end=end, offset=np.array(offsets, np.int64))}


SOME_BATCHES = [Data([10, 11]), COMMIT, Data([12], epoch=1), ABORT, Data([12], epoch=2), COMMIT]
SOME = log(*SOME_BATCHES)
OPEN = log(Data([10, 11]), COMMIT, Data([12], epoch=1), last_stable_offset=3)


@pytest.mark.parametrize(
    ("output", "shown", "expected"),
    [
        (SOME, [0, 1, 5], []),
        (SOME, [0, 5], [("hidden", "out-0@1", 1)]),
        (SOME, [0, 1], [("hidden", "out-0@5", 1)]),
        (SOME, [0, 1, 3, 5], [("shown", "out-0@3", 1)]),
        (SOME, [0, 1, 2, 5], [("shown", "out-0@2", 1)]),
        (SOME, [0, 1, 5, 6], [("shown", "out-0@6", 1)]),
        (SOME, [0, 1, 1, 5], [("shown again", "out-0@1", 1)]),
        (SOME, [1, 0, 5], [("shown again", "out-0@0", 1)]),
        (OPEN, [0, 1], []),
        (OPEN, [0, 1, 3], [("shown", "out-0@3", 1)]),
    ],
)
def test_a_reader_must_be_shown_all_that_is_committed_and_nothing_else(output, shown, expected):
    findings = checked(output, readers={"us": honest(output), "someone": reader(*shown)})
    found = findings[Invariant.VISIBILITY].violations
    assert [(v.kind, v.where, v.count) for v in found] == expected
    assert all("someone" in violation.what for violation in found)


def test_what_is_committed_after_an_open_transaction_is_not_to_be_shown_yet():
    held = log(Data([10]), COMMIT, Data([11], producer=2), Data([12], epoch=1), COMMIT, last_stable_offset=2)
    findings = checked(held, readers={"someone": reader(0, end=5)})
    assert findings[Invariant.VISIBILITY].verdict == "holds"
    findings = checked(held, readers={"someone": reader(0, 3, end=5)})
    assert [v.what for v in findings[Invariant.VISIBILITY].violations] == [
        "was shown to someone, but it is committed, not yet stable"
    ]


def test_what_a_reader_was_shown_of_what_retention_has_deleted_since_is_not_held_against_it():
    late = log(*SOME_BATCHES, start=100)
    findings = checked(late, readers={"someone": reader(40, 41, 100, 101, 105, end=107)})
    assert findings[Invariant.VISIBILITY].verdict == "holds"


def test_a_reader_answers_only_for_what_it_read():
    findings = checked(SOME, readers={"someone": reader(1, start=1, end=3)})
    assert findings[Invariant.VISIBILITY].verdict == "holds"


def test_a_last_stable_offset_beyond_an_open_transaction_is_found():
    findings = checked(log(Data([10, 11]), COMMIT, Data([12], epoch=1), last_stable_offset=4))
    assert [v.kind for v in findings[Invariant.VISIBILITY].violations] == ["not stable"]


def test_without_readers_visibility_is_not_checked():
    assert checked(SOME, readers={})[Invariant.VISIBILITY].verdict == "not checked"


# -- 5


@pytest.mark.parametrize(
    ("history", "stands", "expected"),
    [
        ([done(0, 10, 13), done(1, 13, 16)], 1, []),
        ([done(0, end=13), done(1, end=16)], 1, []),
        ([], 1, []),
        ([done(0, 10, 13), done(2, 13, 16)], 2, [("batch ids", "batch 2")]),
        ([done(0, 10, 13), done(1, 13, 16), done(1, 13, 16)], 1, [("batch ids", "batch 1")]),
        ([done(0, 10, 13), done(1, 14, 16)], 1, [("gap", "batch 1")]),
        ([done(0, 10, 13), done(1, 12, 16)], 1, [("gap", "batch 1")]),
        ([done(0, 10, 13), done(1, 13, 16)], 2, [("not in the ledger", "batch 1")]),
        ([], 0, [("ahead of the ledger", "batch 1")]),
        ([], None, [("ahead of the ledger", "batch 1")]),
    ],
)
def test_batches_follow_one_another_without_a_gap_and_the_ledger_has_the_last(history, stands, expected):
    findings = checked(*GOOD, history=history, ledger=Ledger(batch_id=stands))
    assert [(v.kind, v.where) for v in findings[Invariant.LEDGER].violations] == expected


@pytest.mark.parametrize(
    ("history", "ledger", "note"),
    [
        (HISTORY, Ledger(batch_id=1), ""),
        (None, Ledger(batch_id=1), "without a history only the last batch is compared"),
        (HISTORY, None, "without a transactional.id the ledger is not read"),
    ],
)
def test_what_of_the_batches_was_not_compared_is_said(history, ledger, note):
    finding = checked(*GOOD, history=history, ledger=ledger)[Invariant.LEDGER]
    assert (finding.verdict, finding.note) == ("holds", note)


def entry(serial, batch=1, **fields):
    return LedgerEntry(**{"query_id": "q", "batch_id": batch, "digest": "d", "serial": serial, **fields})


@pytest.mark.parametrize(
    ("record", "pointer", "expected"),
    [
        (None, None, []),
        (entry(7), entry(7), []),
        (entry(7), None, []),  # expired
        (entry(7), entry(6, 0), []),  # expired and committed again by a transaction whose record alone is left
        (None, entry(0), []),  # of a release that wrote no records
        (entry(6, 0), entry(7), [("behind its pointer", "commit 7")]),
        (None, entry(7), [("behind its pointer", "commit 7")]),
        (entry(7), entry(7, digest="other"), [("not its pointer's", "commit 7")]),
        (entry(7), entry(7, query_id="other"), [("not its pointer's", "commit 7")]),
        (entry(7, 0), entry(7), [("not its pointer's", "commit 7")]),
    ],
)
@pytest.mark.parametrize("history", [[], [done(0, 10, 13), done(1, 13, 16)]], ids=["alone", "with history"])
def test_the_ledgers_record_is_the_one_that_its_pointer_speaks_of_or_a_later_one(record, pointer, expected, history):
    ledger = Ledger(batch_id=1, record=record, pointer=pointer)
    finding = checked(*GOOD, history=history, ledger=ledger)[Invariant.LEDGER]
    assert [(v.kind, v.where) for v in finding.violations] == expected


def test_a_record_that_was_lost_is_named_where_values_do_not_tell_batches_or_start_again():
    lost = Ledger(batch_id=1, record=entry(6, 0), pointer=entry(7))
    plain = log(Data([1, 2], bare=True), COMMIT)
    finding = checked(plain, origin=None, ledger=lost)[Invariant.LEDGER]
    assert finding.verdict == "violated" and finding.unchecked
    assert str(finding.violations[0]) == (
        "commit 7 is batch 1 of query q in the ledger's group, but the ledger topic has commit 6 as its last "
        "(batch 0): it lost records"
    )
    first = Data([10]), COMMIT, Data([11], 1, epoch=1), COMMIT, Data([12], 2, epoch=2), COMMIT
    anew = log(*first, Data([13, 14], 0, epoch=3), COMMIT, Data([15], 1, epoch=4), COMMIT)
    finding = checked(anew, ledger=lost)[Invariant.LEDGER]
    assert finding.verdict == "violated" and "restart" in finding.unchecked


@pytest.mark.parametrize("history", [[], [HistoryEntry(batch_id=0, event="planned")]])
@pytest.mark.parametrize("ledger", [None, Ledger(batch_id=1)])
@pytest.mark.parametrize("logs", [GOOD, [log(Data([1, 2], bare=True), COMMIT)]], ids=["traced", "plain"])
def test_a_history_that_was_given_and_has_no_committed_batch_is_no_success(history, ledger, logs):
    findings = checked(*logs, origin=None, history=history, ledger=ledger)
    assert violations(findings) == [] and unproven(findings) == [Invariant.LEDGER]
    assert findings[Invariant.LEDGER].unchecked == "the history has no committed batch"
    assert unproven(checked(*logs, origin=None, ledger=ledger)) == []


@pytest.mark.parametrize("logs", [log(Data([1, 2], bare=True), COMMIT), log(Data([10]), ABORT), log()])
def test_a_transactional_id_of_which_the_ledger_has_no_entry_is_no_success(logs):
    findings = checked(logs, origin=None, ledger=Ledger(batch_id=None, transactional_id="typo"))
    assert violations(findings) == [] and unproven(findings) == [Invariant.LEDGER]
    assert findings[Invariant.LEDGER].unchecked == "the ledger has no entry of 'typo'"


# -- 6


def test_an_open_transaction_is_named_at_its_first_record():
    findings = checked(OPEN, ledger=Ledger(batch_id=0, transaction_state="Ongoing"))
    assert [(v.kind, v.where) for v in findings[Invariant.HEALED].violations] == [
        ("open transaction", "out-0@3"),
        ("held readers", "out-0@3"),
        ("transaction state", "the transactional.id"),
    ]


def test_a_transaction_of_which_the_coordinator_says_nothing_is_not_known_to_have_ended():
    ledger = Ledger(batch_id=1, transactional_id="id", undescribed="TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)")
    findings = checked(*GOOD, ledger=ledger)
    assert violations(findings) == [] and unproven(findings) == [Invariant.HEALED]
    assert findings[Invariant.HEALED].unchecked == (
        "the coordinator does not say whether 'id' has a transaction open: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)"
    )


def test_an_empty_topic_violates_nothing_but_what_is_due():
    assert violations(checked(log(), origin=None)) == []
    assert violations(checked(log(Data([10]), ABORT))) == [(Invariant.ONCE, "missing", "in-0@10", 6)]


def test_a_query_that_continues_where_another_ended_begins_with_batch_0_again():
    history = [
        done(0, 10, 12, query_id="first", producer_id=1, epoch=0),
        done(0, 12, 14, query_id="second", producer_id=1, epoch=1),
        done(1, end=16, query_id="second", producer_id=1, epoch=2),
    ]
    first, last = (Data([10, 11]), COMMIT), (COMMIT, Data([14, 15], 1, epoch=2), COMMIT)
    output = log(*first, Data([12, 13], 0, epoch=1), *last)
    assert violations(checked(output, history=history, ledger=Ledger(batch_id=1))) == []
    again = log(*first, Data([12], 0, epoch=1), Data([13], 0, epoch=3), *last)
    assert [each[1] for each in violations(checked(again, history=history))] == ["several identities", "other identity"]


def test_without_a_history_batches_that_start_again_are_neither_torn_nor_ahead_of_the_ledger():
    first = Data([10]), COMMIT, Data([11], 1, epoch=1), COMMIT, Data([12], 2, epoch=2), COMMIT
    output = log(*first, Data([13, 14], 0, epoch=3), COMMIT, Data([15], 1, epoch=4), COMMIT)
    findings = checked(output, ledger=Ledger(batch_id=1))
    assert violations(findings) == []
    assert unproven(findings) == [Invariant.IDENTITY]
    assert findings[Invariant.LEDGER].verdict == "not checked"
    one_more = log(*first, Data([13], 0, epoch=3), COMMIT, Data([14, 15], 1, epoch=3), COMMIT)
    assert [each[1] for each in violations(checked(one_more, ledger=Ledger(batch_id=1)))] == ["several batches"]


def test_the_ledger_of_a_successor_may_have_a_batch_before_its_predecessors_last():
    history = [
        done(0, 10, 12, query_id="first"),
        done(1, 12, 14, query_id="first"),
        done(0, 14, 16, query_id="second"),
    ]
    first = Data([10, 11]), COMMIT, Data([12, 13], 1, epoch=1), COMMIT
    output = log(*first, Data([14, 15], 0, epoch=2), COMMIT)
    assert violations(checked(output, history=history, ledger=Ledger(batch_id=0))) == []


def test_records_that_do_not_say_their_batch_are_not_ahead_of_the_ledger():
    plain = log(Data([1, 2], bare=True), COMMIT)
    assert violations(checked(plain, origin=None, ledger=Ledger(batch_id=None))) == []
