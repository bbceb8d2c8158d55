"""A soak's report shows every figure, and that one of them is off."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from lab.bench.machine import machine
from lab.soak.check import QueryOutcome
from lab.soak.faults import Injected
from lab.soak.report import (
    Progress,
    QuerySide,
    Soaked,
    faults,
    page,
    rates,
    remarks,
    rows,
    summary,
    table,
    write,
)
from lab.soak.schedule import FaultKind, PlannedFault

RIGHT = QueryOutcome(batches=80, expected=1_000, found=1_000, lost=0, duplicated=0, torn=0, aborted_visible=0, wrong=0)


def side(name="stateless", **changes):
    found = QuerySide(name=name, drivers=3, ended=(), redone=1, lost=0, outcome=RIGHT, violated=())
    return replace(found, **changes)


@pytest.fixture(scope="module")
def soaked():
    happened = [
        Injected(fault=PlannedFault(at=1, kind=kind, target="1"), at=float(at), until=at + 2.0)
        for at, kind in enumerate(FaultKind)
    ]
    return Soaked(
        seed=4711,
        minutes=5,
        brokers=3,
        kafka_version="4.3.1",
        machine=machine(),
        faults=tuple(happened),
        samples=tuple(
            Progress(seconds=float(at), source=50 * at, outputs=(40 * at, 4 * at, 30 * at)) for at in range(30)
        ),
        records=1_000,
        aborted=100,
        sides=(side(), side("stateful"), side("mirror", lost=2)),
        hanging=0,
        drained=True,
    )


def shown(soaked):
    console = Console(width=120)
    with console.capture() as out:
        console.print(table(soaked))
    return out.get()


def test_a_right_outcome_holds_and_shows_every_zero(soaked):
    assert soaked.holds
    assert summary(soaked) == (
        "faults injected 7, records 1,000 in and 3,000 out, lost 0, duplicated 0, torn 0, aborted visible 0, hanging 0"
    )
    names = [row.name for row in rows(soaked) if row.expected is not None]
    assert names == [
        *("records out", "lost", "duplicated", "torn", "aborted visible", "wrong", "invariants violated", "hanging")
    ]
    assert shown(soaked).count(" ok ") == len(names)
    assert "WRONG" not in shown(soaked)


@pytest.mark.parametrize("name", ["lost", "duplicated", "torn", "aborted_visible", "wrong"])
def test_a_wrong_figure_of_any_query_is_reported(soaked, name):
    off = replace(RIGHT, **{name: 2})
    for sides in ((side(outcome=off), side()), (side(), side(outcome=off))):
        found = replace(soaked, sides=sides)
        assert not found.holds
        assert shown(found).count("WRONG") == 1
        assert name == "wrong" or f"{name.replace('_', ' ')} 2" in summary(found)


def test_an_invariant_that_is_violated_is_reported_with_its_place(soaked):
    found = replace(soaked, sides=(side(violated=("ledger: batch 3 is missing",)), side("stateful")))
    assert not found.holds
    assert list(remarks(found)) == ["stateless: ledger: batch 3 is missing"]


def test_a_transaction_that_hangs_and_a_query_that_got_stuck_are_reported(soaked):
    assert not replace(soaked, hanging=1).holds
    stuck = replace(soaked, drained=False)
    assert not stuck.holds
    assert "did not reach the end" in next(remarks(stuck))


def test_a_soak_of_nothing_proves_nothing(soaked):
    idle = side(outcome=replace(RIGHT, batches=0, expected=0, found=0))
    for found, what in (
        (replace(soaked, records=0), "records"),
        (replace(soaked, faults=()), "faults"),
        (replace(soaked, sides=(idle, side("stateful"))), "batches of stateless"),
    ):
        assert not found.holds
        assert list(remarks(found)) == [f"There were no {what}: nothing is proved."]


def test_why_drivers_ended_by_themselves_is_a_remark_and_no_fault(soaked):
    found = replace(soaked, sides=(side(ended=("ProducerFenced: x", "ProducerFenced: x")), side("stateful")))
    assert found.holds
    assert list(remarks(found)) == ["stateless: drivers that ended by themselves: 2 (ProducerFenced: x)"]


def test_the_kinds_of_faults_are_counted(soaked):
    assert "broker killed 1, broker paused 1, checkpoint lost 1, connections cut 1" in faults(soaked)


def test_the_page_is_in_one_piece_and_the_json_has_all_figures(soaked, tmp_path):
    path = write(soaked, tmp_path / "new" / "folder")
    text = path.read_text()
    assert "data:image/png;base64,iVBOR" in text
    assert 'src="http' not in text
    assert "5 minutes of faults: exactly once" in text
    assert "Seed 4711" in text
    found = json.loads((path.parent / "soak.json").read_text())
    assert found["holds"] is True
    assert found["kinds"] == dict.fromkeys((kind.value for kind in FaultKind), 1)
    assert found["sides"][1]["outcome"]["expected"] == 1_000


def test_the_page_shows_what_is_wrong_and_escapes_what_drivers_printed(soaked):
    text = page(replace(soaked, sides=(side(ended=("<script>",)), side("stateful")), hanging=1))
    assert "NOT exactly once" in text
    assert text.count("<b>WRONG</b>") == 1
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_throughput_is_per_second_and_in_intervals(soaked):
    assert rates(soaked.samples, 10) == [(10.0, 50.0, (40.0, 4.0, 30.0)), (20.0, 50.0, (40.0, 4.0, 30.0))]
    assert rates(()) == []
