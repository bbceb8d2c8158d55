"""How the proof's outcome is judged and shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from lab.dead_letters.query import DEAD, GOOD
from lab.dead_letters.run import Proof, Settings, table
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant, Violation
from spark_kafka_eos.tools.verify.verification import Report

LOST = Violation(kind="missing", where="orders-0@7", what="is not there", count=3)


def report(*violations):
    once = CheckedInvariant(invariant=Invariant.ONCE, checked=100, violations=violations, asked=True)
    return Report(topics={GOOD: 99, DEAD: 1}, findings=(once,), uncommitted=0, readers=(), seconds=1.0)


PROOF = Proof(
    records=100, killed={"driver": 2}, batches=5, redone=1, made={"too-large": 1}, dead_letters={"too-large": 1},
    report=report(), seconds=9.0,
)  # fmt: skip


def shown(proof):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table(proof))
    return captured.get()


def test_it_holds_if_the_outputs_are_the_source_and_every_cause_is_the_expected_one():
    assert PROOF.holds and "holds, after 9 s" in shown(PROOF)
    lost = replace(PROOF, report=report(LOST))
    assert not lost.holds and lost.wrong("missing") == 3
    assert "violated" in shown(lost) and "orders-0@7 is not there" in shown(lost)
    assert not replace(PROOF, dead_letters={"other": 1}).holds
    assert not replace(PROOF, records=101).holds, "the query has not read to the end"


@pytest.mark.parametrize(("records", "kills"), [(20_000, 2), (1_000_000, 100)])
def test_the_source_lasts_until_the_last_kill(records, kills):
    settings = Settings(records=records, kills=kills, cluster=True, seed=0, kafka_version="")
    assert records / settings.offsets_per_trigger > 3 * kills
