"""Many seeds: in one process or in several the same, and what the command shows of them."""

from __future__ import annotations

from typer.testing import CliRunner

from lab.__main__ import app
from lab.simulation.run import run
from tests.seeded_bugs import BUGS


def test_two_processes_find_what_one_finds(monkeypatch):
    monkeypatch.setattr("lab.simulation.run._CHUNK", 50)
    done: list[int] = []
    alone, together = run(range(60)), run(range(60), jobs=2, progress=done.append)
    assert (together.seeds, together.faults, together.outcomes) == (alone.seeds, alone.faults, alone.outcomes)
    assert done in ([10, 60], [50, 60])


def test_the_command_sums_up_what_went_wrong_and_was_correct():
    answer = CliRunner().invoke(app, ["simulate", "--seeds", "20", "--jobs", "1"])
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.output.split())  # as if a line had no end
    assert "20 in" in shown
    assert "driver killed" in shown
    assert "wrong histories" in shown
    assert "TxnOffsetCommit" in shown


def test_a_seed_is_replayed_line_by_line():
    answer = CliRunner().invoke(app, ["simulate", "--seed", "7"])
    assert answer.exit_code == 0, answer.output
    assert "InitProducerId v" in answer.output
    assert "EndTxn v" in answer.output
    assert answer.output.rstrip().endswith("seed 7: exactly once")


def test_a_seed_is_replayed_under_the_conditions_that_are_asked_for():
    answer = CliRunner().invoke(app, ["simulate", "--seed", "7", "--no-verification", "--classic-groups", "--expiry"])
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[0].endswith("--no-verification --classic-groups --expiry")


def test_a_seed_with_a_wrong_history_is_named_with_the_way_to_replay_it():
    arguments = ["simulate", "--seeds", "2000", "--jobs", "1", "--no-verification"]
    with BUGS["no-epoch-bump"]():
        answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 1
    assert "replay it with: python -m lab simulate --seed" in answer.output
    assert answer.output.rstrip().endswith("--no-verification")
