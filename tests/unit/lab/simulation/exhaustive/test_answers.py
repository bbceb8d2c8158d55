"""Which questions of chance are choices, and which have one answer."""

from __future__ import annotations

import pytest

from lab.simulation.exhaustive.answers import Answers
from lab.simulation.exhaustive.scenario import Bound, Scenario
from lab.simulation.network import KINDS


def answers(choose=lambda _what, _options: 0, *, version=2, batches=1):
    scenario = Scenario(way="sink", transaction_version=version, batches=batches)
    return Answers(scenario, Bound(1, 1, 1), choose, lambda _what: 1)


def test_the_scenario_answers_what_kind_of_history_it_is():
    said = answers(version=1, batches=2)
    assert said.choose("transaction.version", (1, 2)) == 1
    assert said.choose("way", ("driver", "sink")) == "sink"
    assert said.choose("records", (2, 3)) == 2
    assert said.choose("number of faults", range(9)) == 1


def test_a_question_that_is_not_known_is_an_error():
    with pytest.raises(KeyError):
        answers().choose("something new", (1, 2))
    with pytest.raises(KeyError):
        answers().happens("something new", 0.5)


def test_every_fault_that_changes_something_is_a_choice_at_a_write_and_at_a_read():
    def kinds(api):
        offered: list[int] = []

        def last_option(_what, options):
            offered.append(options)
            return options - 1

        last = answers(last_option)
        assert last.happens(f"fault at {api}", 0.1)
        last.kind("kind of fault", KINDS)
        return offered

    assert kinds("EndTxn") == [2, 5]
    assert kinds("OffsetFetch") == [2, 3]


def test_nothing_happens_to_a_request_that_only_looks_up_brokers():
    def never(what, _options):
        raise AssertionError(what)

    assert not answers(never).happens("fault at Metadata", 0.1)
    assert not answers(never).happens("fault at connect", 0.1)


def test_as_many_markers_are_late_as_the_bound_allows():
    late = answers(lambda _what, _options: 1)
    assert late.choose("marker's delay", (0.0, 0.02)) == 0.02
    assert late.choose("marker's delay", (0.0, 0.02)) == 0.0


def test_each_source_goes_to_its_own_partition_and_in_the_next_attempt_to_the_other_one():
    attempts = iter([1, 1, 2, 2])
    scenario = Scenario(way="executors", transaction_version=2)
    said = Answers(scenario, Bound(0, 0), lambda _what, _options: 0, lambda _what: next(attempts))
    places = [said.choose(f"placement of in-{source}", range(3)) for source in (0, 1, 0, 1)]
    assert places == [1, 0, 0, 1]
