"""All histories up to a bound: none is left out, none is run twice, and what goes on alike is found to be the same."""

from __future__ import annotations

import itertools

import pytest
from typer.testing import CliRunner

from lab.__main__ import app
from lab.simulation.exhaustive.explore import explore, replay, timeline
from lab.simulation.exhaustive.scenario import Bound, Scenario
from tests.seeded_bugs import BUGS

ONE_SWITCH, ONE_LATE_MARKER = Bound(1, 0), Bound(0, 0, 1)


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def scenario(request):
    return Scenario(way="sink", transaction_version=request.param)


def test_without_anything_that_may_go_wrong_there_is_one_history(scenario):
    explored = explore(scenario, Bound(0, 0))
    assert (explored.histories, explored.ended, len(explored.ends)) == (1, 1, 1)
    assert explored.outcomes == {"finished": 1}
    assert explored.complete


def test_a_successor_starts_at_each_step(scenario):
    explored = explore(scenario, ONE_SWITCH)
    steps = explore(scenario, Bound(0, 0)).states
    assert explored.departures == {0: 1, 1: steps}
    assert explored.faults["zombie"] == steps
    assert explored.outcomes["ProducerFenced"]
    assert explored.violations == []


def test_what_is_not_run_because_it_was_met_before_would_have_ended_like_a_history_that_was(scenario):
    for bound in (ONE_SWITCH, ONE_LATE_MARKER):
        pruned, whole = explore(scenario, bound), explore(scenario, bound, prune=False)
        assert pruned.complete and whole.complete
        assert pruned.ends == whole.ends
        assert whole.histories == whole.ended >= pruned.histories


def test_a_late_marker_arrives_before_each_step_that_follows_and_at_the_end(scenario):
    explored = explore(scenario, ONE_LATE_MARKER, prune=False)
    markers = 5  # of two partitions, the ledger's and two groups
    assert explored.departures[1] == markers
    assert explored.departures[2] == explored.histories - 1 - markers
    assert explored.violations == []


def test_the_same_choices_are_the_same_history(scenario):
    bound = Bound(1, 1)
    assert replay(scenario, bound, ()).trace == replay(scenario, bound, ()).trace
    interrupted = replay(scenario, bound, ((8, 1),))
    assert interrupted.trace == replay(scenario, bound, ((8, 1),)).trace
    assert interrupted.trace != replay(scenario, bound, ()).trace


def test_it_stops_after_as_many_histories_as_were_asked_for_and_says_so(scenario):
    explored = explore(scenario, Bound(0, 1), most=40)
    assert explored.histories == 40
    assert not explored.complete
    assert explored.violations == []


def test_the_first_history_that_is_wrong_has_the_fewest_departures_and_is_shown_step_by_step():
    scenario, bound = Scenario(way="executors", transaction_version=2), Bound(0, 1)
    with BUGS["no-barrier"]():
        (violation,) = explore(scenario, bound).violations
        history = replay(scenario, bound, violation.choices)
    assert len(violation.choices) == 1
    assert history.wrong == violation.wrong
    steps = timeline(history)
    assert any("FAULT executor lost" in line for line in steps)
    assert any(" Produce v" in line for line in steps)
    assert not any(" Metadata v" in line for line in steps)
    assert replay(scenario, bound, violation.choices).wrong == []


def test_the_command_shows_what_was_explored():
    answer = CliRunner().invoke(app, ["explore", "--faults", "0", "--way", "sink", "--jobs", "1"])
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.output.split())
    assert "TV1, unverified, sink, 1 batch" in shown
    assert shown.count(" right") == 3


def test_the_command_fails_and_shows_the_first_history_that_is_wrong():
    with BUGS["no-barrier"]():
        answer = CliRunner().invoke(app, ["explore", "--switches", "0", "--way", "executors", "--jobs", "1"])
    assert answer.exit_code == 1
    assert "FAULT executor lost" in answer.output


def test_two_processes_explore_what_one_explores():
    from lab.simulation.exhaustive.run import run, scenarios

    asked = scenarios(["sink"], 1)
    alone = {each.scenario: each for each in run(asked, ONE_SWITCH)}
    together = {each.scenario: each for each in run(asked, ONE_SWITCH, jobs=2)}
    assert alone.keys() == together.keys() == set(asked)
    for scenario in asked:
        one, other = alone[scenario], together[scenario]
        assert (one.histories, one.ends, one.departures) == (other.histories, other.ends, other.departures)


def test_bounds_are_compared_in_everything_that_they_limit():
    for left, right in itertools.product(itertools.product(range(2), repeat=3), repeat=2):
        assert Bound(*left).covers(Bound(*right)) == all(a >= b for a, b in zip(left, right, strict=True))
