"""The same as test_exhausted within larger bounds, which take minutes."""

from __future__ import annotations

import pytest

from lab.specification.models import LARGER
from lab.specification.timeline import timeline
from lab.specification.tlc import check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize("model", LARGER, ids=str)
def test_every_state_within_larger_bounds_keeps_what_is_promised(model, cell):
    result = check(model, large=True)
    cell("specification", str(model), "states", f"{result.distinct:,}")
    assert result.violated is None, "\n".join(timeline(result.steps))
    assert result.distinct > 10_000
