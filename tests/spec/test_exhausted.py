"""TLC visits every state of the specification within small bounds: all that must hold holds in each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.specification.models import EVERY_RUN, SECOND_LOCKS
from lab.specification.timeline import timeline
from lab.specification.tlc import check


@pytest.mark.parametrize("model", EVERY_RUN, ids=str)
def test_every_state_within_the_bounds_keeps_what_is_promised(model, cell):
    result = check(model)
    cell("specification", str(model), "states", f"{result.distinct:,}")
    assert result.violated is None, "\n".join(timeline(result.steps))
    assert result.distinct > 1_000


@pytest.mark.parametrize(("guard", "model"), [(g, model) for g, models in SECOND_LOCKS.items() for model in models])
def test_a_second_lock_is_not_needed_while_the_first_one_holds(guard, model):
    assert check(replace(model, without=(guard,))).violated is None
