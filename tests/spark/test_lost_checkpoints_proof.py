"""Drivers that are killed and lose their checkpoints: the next one continues from Kafka, and the copy is exact."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from lab.commands.chaos import chaos

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def prove(kafka_version: str, records: int, kills: int) -> None:
    arguments = ["lost-checkpoints", "--records", str(records), "--kills", str(kills), "--kafka-version", kafka_version]
    result = CliRunner().invoke(chaos, arguments)
    print(result.output)
    assert result.exit_code == 0, result.output
    figures = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(r"^(\w.*?) {2,}([\d,]+)$", result.output, re.MULTILINE)
    }
    assert figures["source records"] == figures["copied"] == records
    assert figures["drivers killed"] == figures["checkpoints lost"] == kills
    hits = {name.removeprefix("killed: "): number for name, number in figures.items() if name.startswith("killed: ")}
    assert sum(hits.values()) == kills
    assert hits["half appended"] >= 1
    assert "1 once: holds" in result.output
    assert "2 order: holds" in result.output


# In every run, tests/faults/test_two_clusters.py kills drivers and deletes their checkpoints, and
# test_kafka_is_the_checkpoint.py has Spark go on without one.
def test_killed_drivers_that_lose_their_checkpoints_lose_and_repeat_no_record(kafka_version: str) -> None:
    prove(kafka_version, 5_000, 2)


@pytest.mark.timeout(7_200)
def test_a_hundred_kills_each_with_the_loss_of_the_checkpoint(kafka_version: str) -> None:
    prove(kafka_version, 200_000, 100)
