"""Hypothesis without its deadline: how long an example takes shows how busy the machine is, not a fault. A fixture for
tests that measure CPU time.
"""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

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
