"""KAFKA-17754: what a late EndTxn does to the next transaction, of librdkafka and of the connector."""

from __future__ import annotations

import pytest

from lab.commands.chaos import outcome_table
from lab.replay import CASES, Outcome, replay

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("either_kafka", ["kafka39"], indirect=True, ids=["TV1"])
def test_a_late_end_tears_librdkafkas_next_transaction_and_not_the_connectors(either_kafka):
    outcomes = list(replay(either_kafka))
    committed_early, lost = {"first", "early"}, {"late"}
    assert [(each.client, each.torn, each.seen) for each in outcomes] == [
        ("librdkafka", True, committed_early),
        ("librdkafka", True, lost),
        ("spark-kafka-eos", False, {"first"}),
        ("spark-kafka-eos", False, {"early", "late"}),
    ]
    assert outcome_table(outcomes).row_count == 4


def test_what_should_be_visible_follows_from_the_ends():
    assert [case.expected for case in CASES] == [{"first"}, {"early", "late"}]
    assert Outcome(client="c", case=CASES[0], seen={"first", "early"}).torn
