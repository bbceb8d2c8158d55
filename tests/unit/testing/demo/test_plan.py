"""Every plan can be played: kills in the middle of different batches, in order, and a driver that does the rest."""

from itertools import pairwise

import pytest

from spark_kafka_eos.failpoints import POINTS
from spark_kafka_eos.testing.demo.plan import plan

BATCHES = {True: 6, False: 18}  # that January and the year come to, at least
everywhere = pytest.mark.parametrize(
    ("fast", "cluster"), [(fast, on) for fast in (True, False) for on in (True, False)]
)


@everywhere
def test_the_kills_are_in_batches_of_their_own_one_after_another(fast: bool, cluster: bool) -> None:
    kills = [kill for life in plan(fast=fast, cluster=cluster).lives for kill in (life.executor, life.driver) if kill]
    assert all(one.batch < other.batch for one, other in pairwise(kills))
    assert kills[-1].batch < BATCHES[fast]
    assert {kill.point for kill in kills} <= set(POINTS)


@everywhere
def test_each_driver_but_the_last_is_killed(fast: bool, cluster: bool) -> None:
    *dying, last = plan(fast=fast, cluster=cluster).lives
    assert all(life.driver for life in dying)
    assert last.driver is None


@pytest.mark.parametrize("fast", [True, False])
def test_only_on_a_cluster_executors_are_killed_at_least_two_and_in_the_middle_of_an_append(fast: bool) -> None:
    assert plan(fast=fast, cluster=False).executor_kills == ()
    kills = plan(fast=fast, cluster=True).executor_kills
    assert len(kills) >= 2
    assert {kill.point for kill in kills} == {"half appended"}
