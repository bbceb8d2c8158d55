"""The threat model names a test for each protection, and says so where nothing protects."""

from __future__ import annotations

import re

import pytest

from tests.pages import ROOT

MODEL = (ROOT / "docs" / "security.md").read_text().partition("\n## Threat model\n")[2]
_CELLS = r"^\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|$"
ROWS = [tuple(map(str.strip, row)) for row in re.findall(_CELLS, MODEL, re.MULTILINE)][2:]


def test_the_table_is_read():
    assert len(ROWS) > 15
    assert len(ROWS) == MODEL.count("\n|") - 2


@pytest.mark.parametrize("row", ROWS, ids=[row[1][:40] for row in ROWS])
def test_what_stops_somebody_is_shown_by_a_test(row):
    *_, stops, shown = row
    assert ("::" in shown) != stops.startswith("Nothing") or "notices" in stops
