"""The part of a transaction that an operator was shown is the one that ends, and none of unknown outcome is aborted."""

from __future__ import annotations

from typing import cast

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts
from spark_kafka_eos.tools.operators import ending
from spark_kafka_eos.tools.operators.ending import HangingPart
from spark_kafka_eos.tools.operators.survey import Survey, TransactionListing

AT = TopicPartition("out", 0)
CLUSTER = cast("Cluster", None)


def hanging(producer_id, epoch, facts=None):
    """What a survey finds if this producer's transaction hangs from offset 5 on."""
    state = ProducerState(partition=AT, producer_id=producer_id, epoch=epoch, start_offset=5)
    listing = facts and TransactionListing(
        transactional_id="id", producer_id=facts.producer_id, state=facts.state, coordinator=1
    )
    return Survey(
        taken_ms=0,
        listings=(listing,) if listing else (),
        transactions={"id": facts} if facts else {},
        producers={AT: (state,)},
        complete=True,
        transaction_version=2,
    )


def owned(epoch, state):
    return TransactionFacts(
        transactional_id="id",
        coordinator=1,
        state=state,
        producer_id=1,
        epoch=epoch,
        timeout_ms=1,
        started_ms=None,
        described_ms=0,
        partitions=(),
    )


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("then", [(2, 0), (1, 1)], ids=["another producer's", "a later one of the same producer"])
def test_what_starts_at_the_same_offset_by_the_time_of_the_answer_gets_no_marker(monkeypatch, commit, then):
    found = iter([hanging(1, 0), hanging(*then)])
    monkeypatch.setattr(ending, "survey", lambda *_, **__: next(found))
    monkeypatch.setattr(ending, "committed_in", lambda *_, **__: None)
    part = HangingPart(CLUSTER, AT, 5, commit=commit)
    assert part.judge().abort
    assert "producer 1, epoch 0" in part.plan()
    decision = part.judge()
    assert not decision.abort
    assert decision.reason.startswith("another transaction starts there now: of producer {}, epoch {}".format(*then))


def unknown(*_, **__):
    raise ToolFailed("not known", action="")


@pytest.mark.parametrize(
    ("facts", "aborts", "said"),
    [
        (None, None, ""),
        (owned(9, "Empty"), None, ""),
        (owned(1, "CompleteAbort"), True, "no coordinator will end it"),
        (owned(1, "CompleteCommit"), False, "was committed"),
        (owned(0, "Empty"), False, "still has its producer epoch"),
    ],
    ids=["no coordinator has it", "of an earlier epoch", "was aborted", "was committed", "its owner could go on"],
)
def test_what_no_ledger_and_no_coordinator_knows_the_outcome_of_is_not_aborted(monkeypatch, facts, aborts, said):
    monkeypatch.setattr(ending, "survey", lambda *_, **__: hanging(1, 0, facts))
    monkeypatch.setattr(ending, "committed_in", unknown)
    part = HangingPart(CLUSTER, AT, 5, commit=False)
    if aborts is None:
        with pytest.raises(ToolFailed, match="not known"):
            part.judge()
    else:
        decision = part.judge()
        assert (decision.abort, said in decision.reason) == (aborts, True), decision
