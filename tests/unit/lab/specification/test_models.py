"""The page on the specification has what TLC checks: every invariant, and every model with its bounds."""

from __future__ import annotations

import re

from lab.specification.models import EVERY_RUN, INVARIANTS, LARGER, TABLE_INVARIANTS, WEAKENED
from lab.specification.real_time import (
    REAL_TIME_EVERY_RUN,
    REAL_TIME_INVARIANTS,
    REAL_TIME_LARGER,
    REAL_TIME_WEAKENED,
)
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "specification.md").read_text()


def test_the_page_has_every_invariant_that_is_checked_and_no_other():
    rows = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| [A-Z][^|`]", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*INVARIANTS, *TABLE_INVARIANTS, *REAL_TIME_INVARIANTS}


def test_the_page_has_every_model_of_every_run_and_then_of_the_larger_bounds():
    assert re.findall(r"^\| (TV[12][^|]*) \| [\d,]+ \| \d+ \|$", PAGE, re.MULTILINE) == [*map(str, EVERY_RUN + LARGER)]


def test_the_page_has_every_guard_with_what_is_violated_without_it():
    rows = re.findall(r"^\| (`\w+`(?: and `\w+`)?) \| `(\w+)` \| \d+ \|$", PAGE, re.MULTILINE)
    assert {tuple(re.findall(r"`(\w+)`", guards)): invariant for guards, invariant in rows} == {
        guards: invariant for guards, (_, invariant) in WEAKENED.items()
    }


def test_the_page_has_every_model_of_tasks_that_run_on_and_then_those_of_the_larger_bounds():
    models = re.findall(r"^\| (real-time[^|]*) \| [\d,]+ \| \d+ \|$", PAGE, re.MULTILINE)
    assert models == [*map(str, REAL_TIME_EVERY_RUN + REAL_TIME_LARGER)]


def test_the_page_has_every_guard_of_tasks_that_run_on_with_what_is_violated_without_it():
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \d+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert dict(rows) == {guard: invariant for guard, (_, invariant) in REAL_TIME_WEAKENED.items()}
