"""The cases of the test suites of Spark's own Kafka connector, on both connectors; the run ends with a table of them.

Cases and harness are in `peer/`. Twenty run each time, all of them with `make test-slow PART=peer`.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.spark.peer import batch_reads, clients, frames, losses, offsets, refusals, starts, streams, writes
from tests.spark.peer.case import CASES, Case, differs, outcome, shown
from tests.spark.peer.connector import BUILT_IN, OURS, Connector

pytestmark = [pytest.mark.spark, pytest.mark.broker]

MODULES = (batch_reads, clients, frames, losses, offsets, refusals, starts, streams, writes)  # each adds its cases
TABLE = "what the suites of Spark's own Kafka connector demand, on both connectors"


def parameters():
    for case in CASES:
        yield pytest.param(case, id=case.sentence, marks=() if case.in_every_run else pytest.mark.slow)


@pytest.mark.parametrize("case", [*parameters()])
def test_both_connectors_do_what_the_case_says(case: Case, spark, kafka, tmp_path, cell, request):
    differences = []
    for form, expected in ((BUILT_IN, case.demand), (OURS, case.here)):
        folder = tmp_path / form
        folder.mkdir()
        secured = partial(request.getfixturevalue, "secured")
        connector = Connector(form=form, spark=spark, kafka=kafka, folder=folder, secured=secured)
        try:
            difference = differs(expected, outcome(case.run, connector))
        finally:
            connector.close()
        differences += [f"{form}: {difference}"] if difference else []
        cell(TABLE, case.sentence, form, shown(expected))
    cell(TABLE, case.sentence, "1 demanded", shown(case.demand))
    cell(TABLE, case.sentence, "2 verdict", case.verdict)
    assert not differences, "\n".join(differences)
