"""The check of a soak finds whatever is done to an output that is right, and nothing in one that is."""

from dataclasses import asdict
from itertools import pairwise

import pytest

from lab.soak.check import (
    Copied,
    Figures,
    SourceRecord,
    expected_copies,
    expected_figures,
    judge_copies,
    judge_figures,
    judge_numbers,
    places_of,
    plan_of,
    succession,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.verify.history import HistoryEntry

# Two partitions; offset 2 of the first is a marker, offset 1 of the second was aborted.
SOURCE = [
    SourceRecord(0, 0, "a", 1),
    SourceRecord(0, 1, "b", 2),
    SourceRecord(0, 3, "a", 4),
    SourceRecord(1, 0, "a", 8),
    SourceRecord(1, 2, "c", 16),
    SourceRecord(1, 3, "c", 32),
]
PLAN = [{0: 2, 1: 0}, {0: 4, 1: 1}, {0: 5, 1: 5}]
COPIES = [
    (0, Copied(0, 0, "a", "1")),
    (0, Copied(0, 1, "b", "2")),
    (1, Copied(0, 3, "a", "4")),
    (1, Copied(1, 0, "a", "8")),
    (2, Copied(1, 2, "c", "16")),
    (2, Copied(1, 3, "c", "32")),
]
FIGURES = [
    (0, Figures("a", 1, 1, 0)),
    (0, Figures("b", 1, 2, 0)),
    (1, Figures("a", 3, 13, 0)),
    (2, Figures("c", 2, 48, 0)),
]


def faults(outcome):
    """What of an outcome is not 0, or not as it should be."""
    found = {name: figure for name, figure in asdict(outcome).items() if figure}
    return {name: figure for name, figure in found.items() if name not in ("batches", "expected", "found")}


def test_the_expected_rows_follow_from_source_and_plan():
    assert expected_copies(SOURCE, PLAN) == {row: batch for batch, row in COPIES}
    assert expected_figures(SOURCE, PLAN) == {row: batch for batch, row in FIGURES}


def test_correct_output_is_judged_correct():
    copies, figures = judge_copies(SOURCE, PLAN, COPIES), judge_figures(SOURCE, PLAN, FIGURES)
    assert (copies.batches, copies.expected, copies.found, faults(copies)) == (3, 6, 6, {})
    assert (figures.batches, figures.expected, figures.found, faults(figures)) == (3, 4, 4, {})
    assert copies.holds
    assert figures.holds


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(COPIES[:4], {"lost": 2}, id="a lost batch"),
        pytest.param(COPIES[2:], {"lost": 2}, id="a lost first batch"),
        pytest.param([*COPIES[:3], *COPIES[4:]], {"lost": 1, "torn": 1}, id="a torn batch"),
        pytest.param([*COPIES, *COPIES[4:]], {"duplicated": 2}, id="a batch written twice"),
        pytest.param([*COPIES, (3, COPIES[4][1])], {"duplicated": 1}, id="a record again in the next batch"),
        pytest.param([*COPIES, (2, Copied(1, 1, "a", "x64"))], {"aborted_visible": 1}, id="a copy of an aborted one"),
        pytest.param([*COPIES, (0, Copied(-1, -1, "a", ""))], {"aborted_visible": 1}, id="from nowhere"),
        pytest.param([*COPIES[:-1], (1, COPIES[-1][1])], {"wrong": 1}, id="in another batch than planned"),
        pytest.param([*COPIES[:-2], COPIES[-1], COPIES[-2]], {"wrong": 1}, id="out of order"),
        pytest.param(
            [*COPIES[:-1], (2, Copied(1, 3, "c", "33"))], {"lost": 1, "torn": 1, "wrong": 1}, id="another payload"
        ),
    ],
)
def test_what_is_done_to_the_stateless_output_is_found(rows, expected):
    outcome = judge_copies(SOURCE, PLAN, rows)
    assert faults(outcome) == expected
    assert not outcome.holds


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(FIGURES[:3], {"lost": 1}, id="a lost batch"),
        pytest.param(FIGURES[1:], {"lost": 1, "torn": 1}, id="a torn batch"),
        pytest.param([*FIGURES, FIGURES[2]], {"duplicated": 1}, id="a batch written twice"),
        pytest.param(
            [*FIGURES[:3], (2, Figures("c", 4, 96, 0))],
            {"lost": 1, "wrong": 1},
            id="a batch counted twice in the state",
        ),
        pytest.param(
            [*FIGURES[:2], (1, Figures("a", 2, 12, 0)), FIGURES[3]], {"lost": 1, "wrong": 1}, id="state that was lost"
        ),
        pytest.param(
            [*FIGURES[:2], (1, Figures("a", 4, 77, 1)), FIGURES[3]],
            {"lost": 1, "aborted_visible": 1},
            id="an aborted record counted",
        ),
        pytest.param([FIGURES[2], *FIGURES[:2], FIGURES[3]], {"wrong": 1}, id="a key's figures in the wrong order"),
    ],
)
def test_what_is_done_to_the_stateful_output_is_found(rows, expected):
    outcome = judge_figures(SOURCE, PLAN, rows)
    assert faults(outcome) == expected
    assert not outcome.holds


def test_a_source_record_that_no_batch_was_to_read_is_lost():
    assert faults(judge_copies(SOURCE, PLAN[:2], COPIES[:4])) == {"lost": 2}
    assert faults(judge_figures(SOURCE, PLAN[:2], FIGURES[:3])) == {"lost": 1}


def test_a_partition_that_a_later_batch_is_the_first_to_read_is_read_from_its_beginning():
    plan = [{0: 2}, {0: 4, 1: 1}, {0: 5, 1: 5}]
    assert judge_copies(SOURCE, plan, COPIES).holds


def batches(query, start, *ends, in_flight=None):
    """What a checkpoint holds: where its batches start and end in the one partition, and the one that was in flight."""
    edges = [start, *ends] if in_flight is None else [start, *ends, in_flight]
    return [
        HistoryEntry(
            batch_id=batch,
            event="committed" if batch < len(ends) else "planned",
            start=at(begin),
            end=at(end),
            query_id=query,
        )
        for batch, (begin, end) in enumerate(pairwise(edges))
    ]


def at(offset):
    return {TopicPartition("in", 0): offset}


def committed_of(*checkpoints):
    """The batches of each checkpoint that count, by where they end."""
    return [[end[0] for end in plan_of(entries)] for entries in succession(checkpoints)]


def test_the_batch_in_flight_was_committed_if_the_next_checkpoint_begins_where_it_ends():
    assert committed_of(batches("a", 0, 4, in_flight=9), batches("b", 9, 12)) == [[4, 9], [12]]


def test_the_batch_in_flight_was_not_committed_if_the_next_checkpoint_begins_before_it():
    assert committed_of(batches("a", 0, 4, in_flight=9), batches("b", 4, 12)) == [[4], [12]]
    assert committed_of(batches("a", 0, 4, in_flight=9), batches("b", 4, 9)) == [[4], [9]]


def test_a_checkpoint_that_was_lost_before_it_planned_anything_tells_nothing_of_the_previous_one():
    assert committed_of(batches("a", 0, 4, in_flight=9), [], batches("c", 9, 12)) == [[4, 9], [], [12]]


def test_a_checkpoint_that_was_lost_before_it_committed_anything_tells_of_the_previous_one():
    assert committed_of(batches("a", 0, 4, in_flight=9), batches("b", 9, in_flight=11), batches("c", 9, 12)) == [
        [4, 9],
        [],
        [12],
    ]


def test_the_batch_in_flight_of_the_last_checkpoint_does_not_count():
    assert committed_of(batches("a", 0, 4, in_flight=9)) == [[4]]


def test_what_counts_is_committed_and_starts_where_its_checkpoint_says():
    committed = succession([batches("a", 0, 4, in_flight=9), batches("b", 9, 12)])
    entries = [entry for entries in committed for entry in entries]
    assert [entry.start for entry in entries] == [at(0), at(4), at(9)]
    assert {entry.event for entry in entries} == {"committed"}


def test_batches_of_several_checkpoints_have_their_places_in_one_plan():
    committed = succession([batches("a", 0, 2, 4, in_flight=9), batches("b", 4, 6, 12)])
    assert plan_of(entry for entries in committed for entry in entries) == [{0: 2}, {0: 4}, {0: 6}, {0: 12}]
    assert places_of(committed) == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}


def test_output_of_an_uncommitted_batch_of_a_lost_checkpoint_is_wrong():
    committed = succession([batches("a", 0, 4, in_flight=9), batches("b", 4, 9)])
    places, plan = places_of(committed), plan_of(entry for entries in committed for entry in entries)
    source = [SourceRecord(0, offset, "a", offset) for offset in range(9)]
    once = [(places[0 if row < 4 else 1, 0], Copied(0, row, "a", str(row))) for row in range(9)]
    assert judge_copies(source, plan, once).holds
    late = [(places.get((0, 1), -1), row) for _, row in once[4:]]
    assert faults(judge_copies(source, plan, [*once[:4], *late])) == {"wrong": 5}
    assert faults(judge_copies(source, plan, [*once, *late])) == {"duplicated": 5}


NUMBERS = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]


@pytest.mark.parametrize(
    ("output", "deviations"),
    [
        (NUMBERS, {}),
        ([*NUMBERS, (0, 1)], {"duplicated": 1}),
        ([*NUMBERS[:3], *NUMBERS[4:]], {"lost": 1}),
        (NUMBERS[:-1], {"lost": 1}),
        ([(0, 1), (0, 0), (0, 2), (1, 0), (1, 1)], {"disordered": 1}),
        ([*NUMBERS, (0, 3)], {"wrong": 1}),
        ([*NUMBERS, (2, 0)], {"wrong": 1}),
        ([*NUMBERS[:-1], (0, 1)], {"lost": 1, "duplicated": 1}),
    ],
    ids=["right", "twice", "lost", "lost at the end", "disordered", "of no record", "of no partition", "other"],
)
def test_numbers_of_each_partition_are_there_once_and_in_order(output, deviations):
    outcome = judge_numbers([3, 2], output)
    counts = {name: count for name, count in asdict(outcome).items() if count and name not in ("expected", "found")}
    assert counts == deviations
    assert outcome.holds is not bool(deviations)
    assert (outcome.expected, outcome.found) == (5, len(output))
