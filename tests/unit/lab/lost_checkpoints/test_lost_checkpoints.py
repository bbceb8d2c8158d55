"""The command of the proof, how long its source lasts, and how its outcome is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lab.commands.chaos import chaos
from lab.killed import BETWEEN, KilledQuery
from lab.lost_checkpoints.run import Settings, table
from spark_kafka_eos.failpoints import POINTS
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant
from spark_kafka_eos.tools.verify.verification import Report


@pytest.mark.parametrize(("records", "kills"), [(5_000, 2), (200_000, 100)])
def test_the_source_lasts_until_the_last_kill(records, kills):
    settings = Settings(records=records, kills=kills, seed=0, kafka_version="")
    assert records / settings.offsets_per_trigger > 5 * kills


@pytest.mark.parametrize("holds", [True, False])
def test_the_command_passes_its_options_and_fails_if_the_copy_is_not_exact(holds):
    given = []

    def prove(settings, _):
        given.append(settings)
        return holds

    arguments = ["lost-checkpoints", "--records", "1000", "--kills", "7", "--seed", "3", "--kafka-version", "3.9.1"]
    result = CliRunner().invoke(chaos, arguments, obj=prove)
    assert result.exit_code == (0 if holds else 1)
    assert given == [Settings(records=1_000, kills=7, seed=3, kafka_version="3.9.1")]


def query(folder: Path, kills: int) -> KilledQuery:
    return KilledQuery(
        job=folder,
        arguments=[],
        checkpoint=folder / "checkpoint",
        folder=folder,
        kills=kills,
        seed=0,
        say=print,
        lose_checkpoint=True,
    )


def test_every_third_driver_is_killed_at_a_failpoint_and_25_kills_reach_each_of_them(tmp_path: Path):
    killed = query(tmp_path, 25)
    points = []
    for number in range(30):
        killed.killed["driver"] = number
        points.append(killed._point())
    held = [point.point for point in points if point]
    assert sorted(held) == sorted(POINTS)
    assert held[0] == "half appended"
    assert [number for number, point in enumerate(points) if point] == list(range(1, 25, 3))


def test_the_table_counts_batches_of_checkpoints_that_are_gone(tmp_path: Path):
    killed = query(tmp_path, 2)
    killed.killed["driver"] = 2
    killed.hits.update([BETWEEN, "half appended"])
    killed._batches_lost = 3
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / "1").touch()
    once = CheckedInvariant(invariant=Invariant.ONCE, checked=100, asked=True)
    report = Report(topics={"copy": 100}, findings=(once,), uncommitted=4, readers=(), seconds=1.0)
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table(Settings(records=100, kills=2, seed=0, kafka_version=""), killed, report, 9.0))
    lines = {" ".join(line.split()) for line in captured.get().splitlines()}
    assert killed.batches == 5
    assert {f"killed: {BETWEEN} 1", "killed: half appended 1"} < lines
    assert "holds, after 9 s" in captured.get()
    assert "1 once: holds" in captured.get()
