"""Bad records of seven kinds, drivers and executors that are killed: good records and dead letters are the source."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from lab.commands.chaos import chaos

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.slow]


def prove(kafka_version: str, records: int, kills: int) -> None:
    arguments = ["dead-letters", "--records", str(records), "--kills", str(kills), "--cluster"]
    result = CliRunner().invoke(chaos, [*arguments, "--append-mode", "executors", "--kafka-version", kafka_version])
    print(result.output)
    assert result.exit_code == 0, result.output
    figures = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(r"^(\w.*?) {2,}([\d,]+)$", result.output, re.MULTILINE)
    }
    assert figures["source records"] == records
    assert (figures["good"], figures["dead letters"]) == (records - records // 100, records // 100)
    assert (figures["missing"], figures["more than once"]) == (0, 0)
    assert (figures["executors killed"], figures["drivers killed"]) == ((kills + 1) // 2, kills // 2)


def test_a_killed_executor_and_a_killed_driver_lose_and_repeat_no_record_good_or_bad(kafka_version: str) -> None:
    prove(kafka_version, 20_000, 2)


@pytest.mark.timeout(7_200)
def test_a_million_records_and_a_hundred_kills(kafka_version: str) -> None:
    prove(kafka_version, 1_000_000, 100)
