"""A kill that hits no process is not counted as one that was survived."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from lab import killed
from lab.killed import KilledQuery
from spark_kafka_eos.errors import ToolFailed


class Drivers:
    """In the place of all drivers: how many processes each attempt to kill an executor hits. Then there are some."""

    def __init__(self, *executors: int, runs: bool = True) -> None:
        self.executors, self.running = list(executors), runs
        self.attempts = 0

    def __call__(self, *_: object, **__: object) -> Drivers:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def kill(self) -> int:
        return 5 if self.running else 0

    def kill_an_executor(self) -> int:
        self.attempts += 1
        return self.executors.pop(0) if self.executors else 3

    def wait(self, *, timeout: float) -> None:
        pass


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Drives a query on a cluster whose batches go on, with these drivers."""
    monkeypatch.setattr("lab.killed.time.sleep", lambda _: None)
    monkeypatch.setattr(killed, "spark_home", lambda folder: folder)
    monkeypatch.setattr(KilledQuery, "_advances", lambda *_: True)

    def driving(drivers: Drivers) -> KilledQuery:
        monkeypatch.setattr(killed, "Driver", drivers)
        query = KilledQuery(
            job=tmp_path,
            arguments=[],
            checkpoint=tmp_path / "checkpoint",
            folder=tmp_path,
            kills=4,
            cluster=True,
            seed=1,
            say=lambda _: None,
        )
        query.drive()
        return query

    return driving


def test_a_kill_of_an_executor_waits_for_one(drive):
    drivers = Drivers(0, 0, 3)
    assert drive(drivers).killed == {"executor": 2, "driver": 2}
    assert drivers.attempts == 4


def test_a_driver_that_has_ended_is_not_killed(drive):
    with pytest.raises(ToolFailed, match="the source ended 4 kills too early"):
        drive(Drivers(0, runs=False))


def test_an_executor_that_never_comes_is_an_error(drive, monkeypatch):
    monkeypatch.setattr(killed, "_TIMEOUT", 0.0)
    with pytest.raises(ToolFailed, match="no executor to kill"):
        drive(Drivers(*[0] * 10))
