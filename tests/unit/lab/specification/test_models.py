"""The page on the specification has what TLC checks: every invariant, and every model with its bounds."""

from __future__ import annotations

import re

from lab.specification.models import EVERY_RUN, INVARIANTS, LARGER, TABLE_INVARIANTS, WEAKENED
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "specification.md").read_text()


def test_the_page_has_every_invariant_that_is_checked_and_no_other():
    rows = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| [A-Z][^|`]", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*INVARIANTS, *TABLE_INVARIANTS}


def test_the_page_has_every_model_of_every_run_and_then_of_the_larger_bounds():
    assert re.findall(r"^\| (TV[12][^|]*) \| [\d,]+ \| \d+ \|$", PAGE, re.MULTILINE) == [*map(str, EVERY_RUN + LARGER)]


def test_the_page_has_every_guard_with_what_is_violated_without_it():
    rows = re.findall(r"^\| (`\w+`(?: and `\w+`)?) \| `(\w+)` \| \d+ \|$", PAGE, re.MULTILINE)
    assert {tuple(re.findall(r"`(\w+)`", guards)): invariant for guards, invariant in rows} == {
        guards: invariant for guards, (_, invariant) in WEAKENED.items()
    }
