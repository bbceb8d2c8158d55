"""Hypothesis without its deadline: how long an example takes shows how busy the machine is, not a fault. A fixture for
tests that measure CPU time.
"""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from spark_kafka_eos.appending import private_folders
from tests.unit.scripted_broker import answers, broker, lost, old_broker  # noqa: F401 - fixtures
from tests.unit.scripted_peer import connect, peer  # noqa: F401 - fixtures

settings.register_profile("without deadline", deadline=None)  # else as the profile in force: `ci` where CI is set
settings.load_profile("without deadline")


@pytest.fixture
def without_collector() -> Iterator[None]:
    """No garbage collection: it would examine the objects of all tests that ran before in this process."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let a folder be another user's: as root by giving it away, else by being somebody else than who made it."""

    def given(folder: Path) -> None:
        if os.geteuid() == 0:
            os.chown(folder, 4_321, 4_321)
        else:
            monkeypatch.setattr(private_folders, "this_user", lambda: os.geteuid() + 1)

    return given
