"""Many seeds: in one process or in several the same, and what the command shows of them."""

from __future__ import annotations

from typer.testing import CliRunner

from lab.simulation.run import run
from spark_kafka_eos.cli import main as cli
from tests.seeded_bugs import BUGS


def test_two_processes_find_what_one_finds():
    done: list[int] = []
    alone, together = run(range(600)), run(range(600), jobs=2, progress=done.append)
    assert (together.seeds, together.faults, together.outcomes) == (alone.seeds, alone.faults, alone.outcomes)
    assert done in ([100, 600], [500, 600])


def test_the_command_sums_up_what_went_wrong_and_was_correct():
    answer = CliRunner().invoke(cli.app, ["chaos", "simulate", "--seeds", "100", "--jobs", "1"])
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.output.split())  # as if a line had no end
    assert "100 in" in shown
    assert "driver killed" in shown
    assert "wrong histories" in shown
    assert "TxnOffsetCommit" in shown


def test_a_seed_is_replayed_line_by_line():
    answer = CliRunner().invoke(cli.app, ["chaos", "simulate", "--seed", "7"])
    assert answer.exit_code == 0, answer.output
    assert "InitProducerId v" in answer.output
    assert "EndTxn v" in answer.output
    assert answer.output.rstrip().endswith("seed 7: exactly once")


def test_a_seed_is_replayed_under_the_conditions_that_are_asked_for():
    answer = CliRunner().invoke(
        cli.app, ["chaos", "simulate", "--seed", "7", "--no-verification", "--classic-groups", "--expiry"]
    )
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[0].endswith("--no-verification --classic-groups --expiry")


def test_a_seed_with_a_wrong_history_is_named_with_the_way_to_replay_it():
    arguments = ["chaos", "simulate", "--seeds", "2000", "--jobs", "1", "--no-verification"]
    with BUGS["no-epoch-bump"]():
        answer = CliRunner().invoke(cli.app, arguments)
    assert answer.exit_code == 1
    assert "replay it with: python -m lab simulate --seed" in answer.output
    assert answer.output.rstrip().endswith("--no-verification")
