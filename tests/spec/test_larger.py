"""The same as test_exhausted within larger bounds, which take minutes."""

from __future__ import annotations

import pytest

from lab.specification.models import LARGER, Model
from lab.specification.timeline import timeline
from lab.specification.tlc import SPECIFICATION, check, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize("model", LARGER, ids=str)
def test_every_state_within_larger_bounds_keeps_what_is_promised(model, cell):
    result = check(model, large=True)
    cell("specification", str(model), "states", f"{result.distinct:,}")
    assert result.violated is None, "\n".join(timeline(result.steps))
    assert result.distinct > 10_000


def test_it_would_be_noticed_if_the_end_first_added_something():
    text = (SPECIFICATION / "Waiting.tla").read_text().replace("EndFirst <- FALSE", "EndFirst <- TRUE")
    fenced_at_once = Model(end_first=True).configuration(EndFirst="FALSE")
    assert "Error: Action property" in run("Waiting", fenced_at_once, generated={"Waiting": text})
