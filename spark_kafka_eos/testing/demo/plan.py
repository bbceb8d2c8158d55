"""What the demo sends, and where it kills: a few plans, each of which runs several drivers in sequence."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_eos.testing.driver import Kill


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One driver: where it loses an executor, and where it is killed; without `driver`, it runs to the end."""

    executor: Kill | None = None
    driver: Kill | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """How much is sent, and which process is killed where. `month` None is the whole year."""

    month: int | None
    flights_per_transaction: int
    offsets_per_trigger: int
    lives: tuple[Life, ...]

    @property
    def driver_kills(self) -> tuple[Kill, ...]:
        return tuple(life.driver for life in self.lives if life.driver is not None)

    @property
    def executor_kills(self) -> tuple[Kill, ...]:
        return tuple(life.executor for life in self.lives if life.executor is not None)


def plan(*, fast: bool, cluster: bool) -> DemoPlan:
    """The year in 18 batches, or with `fast`, January in 6; only a cluster has executors to kill."""
    if fast:
        return DemoPlan(
            month=1,
            flights_per_transaction=500,
            offsets_per_trigger=5_000,
            lives=_FAST_CLUSTER if cluster else _FAST,
        )
    return DemoPlan(
        month=None,
        flights_per_transaction=2_000,
        offsets_per_trigger=20_000,
        lives=_FULL_CLUSTER if cluster else _FULL,
    )


_FAST = (
    Life(driver=Kill(point="half appended", batch=1)),
    Life(driver=Kill(point="offsets committed", batch=3)),
    Life(),
)
_FULL = (
    Life(driver=Kill(point="half appended", batch=3)),
    Life(driver=Kill(point="offsets committed", batch=8)),
    Life(driver=Kill(point="ended", batch=13)),
    Life(),
)
_FAST_CLUSTER = (
    Life(executor=Kill(point="half appended", batch=1), driver=Kill(point="offsets committed", batch=3)),
    Life(executor=Kill(point="half appended", batch=4)),
)
_FULL_CLUSTER = (
    Life(executor=Kill(point="half appended", batch=3), driver=Kill(point="offsets committed", batch=6)),
    Life(executor=Kill(point="half appended", batch=8), driver=Kill(point="ended", batch=11)),
    Life(executor=Kill(point="half appended", batch=14)),
)
