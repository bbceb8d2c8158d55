"""A broker for real runs, of each transaction protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.real_runs.broker import WatchedBroker, watched_broker


@pytest.fixture(scope="module", params=["kafka_version", "tv1_version"], ids=["TV2", "TV1"])
def watched(request: pytest.FixtureRequest) -> Iterator[WatchedBroker]:
    with watched_broker(request.getfixturevalue(request.param)) as broker:
        yield broker
