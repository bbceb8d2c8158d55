"""The table of KIP-98's data flow names code, failpoints, requests and states of the fault matrix that there are."""

from __future__ import annotations

import re

import pytest

from spark_kafka_eos.failpoints import POINTS
from spark_kafka_eos.kafka.protocol.versions import RANGES
from tests.faults.states import STATES
from tests.pages import ROOT, named

TABLE = (ROOT / "docs/tracing.md").read_text().partition("## The data flow of a transaction")[2]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("| ")][
    1:
]
BETWEEN_BROKERS = {"WriteTxnMarkers", "none"}


def quoted(column: int) -> set[str]:
    return {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[column])}


def test_every_step_is_there():
    steps = [row[0].split()[0] for row in ROWS]
    assert steps == ["1", "2", "3", "4.1", "4.2", "4.3", "4.4", "5.1", "5.2", "5.3"]


@pytest.mark.parametrize("name", sorted(quoted(4)))
def test_the_code_of_each_step_exists(name):
    assert callable(named(name))


def test_the_requests_are_those_that_the_connector_sends():
    assert {row[1] for row in ROWS} <= RANGES.keys() | BETWEEN_BROKERS


def test_every_failpoint_and_every_state_of_the_fault_matrix_is_in_the_table():
    assert quoted(5) == set(POINTS)
    assert quoted(6) == set(STATES)
