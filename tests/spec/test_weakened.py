"""Every guard is needed: without it, TLC finds a behaviour that violates an invariant, and the page shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.specification.models import GUARDS, TABLE_GUARDS, WEAKENED, weakened
from lab.specification.timeline import timeline
from lab.specification.tlc import check

SLOW = [pytest.mark.slow, pytest.mark.timeout(3_600)]
# That the check can fail at all. The others can change only with spec/.
IN_EVERY_RUN = {("ReadAgain",), ("FenceTable",)}
PAGE = Path(__file__).parents[2] / "docs" / "counterexamples.md"


def shown() -> dict[tuple[str, ...], tuple[str, list[str]]]:
    """The page's invariants and timelines, by what is left out."""
    found = re.findall(
        r"^Without (.+?), `(\w+)` is\s+violated\..*?^```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return {tuple(re.findall(r"`(\w+)`", names)): (invariant, told.splitlines()) for names, invariant, told in found}


@pytest.mark.parametrize(
    "without",
    [pytest.param(each, marks=() if each in IN_EVERY_RUN else SLOW, id=" and ".join(each)) for each in WEAKENED],
)
def test_without_the_guard_tlc_finds_a_behaviour_that_violates_the_invariant(without, cell):
    model, invariant = weakened(without)
    result = check(model)
    assert result.violated == invariant
    told = timeline(result.steps)
    cell("weakened guards", " and ".join(without), invariant, f"{len(told)} steps")
    assert told[0].split()[1:3] == ["run", "1"]
    assert len(told) == len(result.steps) - 1 > 5
    assert shown()[without] == (invariant, told), "make lab RUN='spec --without …' prints what the page should show"


def test_the_page_has_every_counterexample():
    assert {without: invariant for without, (invariant, _) in shown().items()} == {
        without: invariant for without, (_, invariant) in WEAKENED.items()
    }


def test_each_guard_of_the_specification_is_taken_out_somewhere():
    assert {guard for without in WEAKENED for guard in without} == {*GUARDS, *TABLE_GUARDS}
