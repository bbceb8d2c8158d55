"""How much may be staged: never so much that the file system becomes full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.appending.staging_space import Space, allowance

GB = 1 << 30


@pytest.mark.parametrize(("total", "reserve"), [(2 * GB, GB // 10), (20 * GB, GB), (1_000 * GB, GB), (0, 0)])
def test_a_twentieth_stays_free_and_at_most_a_gigabyte(total, reserve):
    assert Space(free=total, total=total).reserve == reserve


@pytest.mark.parametrize(("needed", "goes_on"), [(0, True), (4 * GB, True), (4 * GB + 1, False)])
def test_what_would_leave_less_free_is_refused(needed, goes_on):
    assert (allowance(Space(free=5 * GB, total=100 * GB), needed) is not None) is goes_on


def test_a_disk_that_others_filled_is_refused_whatever_is_needed():
    assert allowance(Space(free=GB - 1, total=100 * GB), 0) is None


def test_a_file_system_that_does_not_tell_has_no_limit():
    assert allowance(None, 10**15) == 10**15


def test_the_next_look_comes_before_64_tasks_have_written_what_stays_free():
    assert allowance(Space(free=50 * GB, total=100 * GB), 1_000) == GB // 64


@given(st.integers(0, 10**13), st.integers(0, 10**13), st.integers(0, 10**13))
def test_what_is_allowed_covers_the_need_and_leaves_the_reserve(total, free, needed):
    space = Space(free=min(free, total), total=total)
    allowed = allowance(space, needed)
    if allowed is None:
        assert space.free - needed < space.reserve
    else:
        assert needed <= allowed <= space.free - space.reserve
