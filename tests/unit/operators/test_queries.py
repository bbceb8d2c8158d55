"""Ledger topics that nobody named are looked for in so many groups, whoever made these."""

from __future__ import annotations

from typing import cast

import pytest

from spark_kafka_eos.operators import queries
from spark_kafka_eos.operators.queries import QueryReader
from spark_kafka_eos.protocol.cluster import Cluster


@pytest.mark.parametrize(("others", "left"), [(0, 0), (100, 0), (101, 1), (150, 50)])
def test_at_most_so_many_groups_are_asked_and_the_rest_is_counted(monkeypatch, others, left):
    """Also while a transaction is open in a group: who waited for its end would wait for whoever opened it."""
    asked = []

    class Group:
        def __init__(self, _, name):
            self.name = name

        def fetch_all(self, *, require_stable):
            assert not require_stable
            asked.append(self.name)
            return {}

    names = ["a group", *(f"id-{number}.ledger" for number in range(others))]
    monkeypatch.setattr(queries, "group_ids", lambda _: names)
    monkeypatch.setattr(queries, "GroupCoordinator", Group)
    reader = QueryReader(cast("Cluster", None), ledger_topics=[])
    monkeypatch.setattr(reader, "_ledgers", {})
    assert reader.find() == left
    assert asked == names[1:101]
