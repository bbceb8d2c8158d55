"""The model's transaction coordinators behind their requests: who is known, what is described, what is refused."""

from __future__ import annotations

from types import SimpleNamespace as Request

import pytest

from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from tests.transacting import ModelSide

ID = "id"


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def side(request):
    return ModelSide(request.param)


def described(side):
    """State, producer id, epoch and age in milliseconds, ten seconds after the world began."""
    found = describe.transaction(side.cluster, ID, now_ms=10_000)
    assert isinstance(found, TransactionFacts | None)
    return found and (found.state, found.producer_id, found.epoch, found.age_ms)


def test_a_transactional_id_is_described_from_its_first_owner_on(side):
    assert described(side) is None
    _, *held = side.init(ID)
    assert described(side) == ("Empty", 1, 0, None)
    side.world.now = 4.0
    if side.version < 2:
        side.add(ID, held, 0)
    side.produce(ID, held, 0, 0, [b"a"])
    assert described(side) == ("Ongoing", 1, 0, pytest.approx(6_000, abs=20))
    side.end(ID, held, commit=False)
    ended = ("CompleteAbort", 1, 0 if side.version < 2 else 1, pytest.approx(6_000, abs=20))
    assert described(side) == ended
    _, *held = side.init(ID)
    assert described(side) == ("Empty", 1, ended[2] + 1, ended[3] if side.version < 2 else None)
    side.end(ID, held, commit=False)
    assert described(side)[0] == ("Empty" if side.version < 2 else "CompleteAbort")


def test_partitions_that_still_lack_a_marker_are_reported():
    waiting = []
    side = ModelSide(1, later=lambda _why, action: waiting.append(action))
    _, *held = side.init(ID)
    side.add(ID, held, 0, 1)
    side.join(ID, held, "group")

    def told():
        node = side.kafka.coordinated_by[ID]
        (state,) = side.kafka.handle(
            node, "DescribeTransactions", 0, Request(transactional_ids=[ID])
        ).transaction_states
        return state.transaction_state, [(topic.topic, topic.partitions) for topic in state.topics]

    assert told() == ("Ongoing", [("__consumer_offsets", [0]), ("out", [0, 1])])
    side.end(ID, held, commit=True)
    assert told() == ("PrepareCommit", [("__consumer_offsets", [0]), ("out", [0, 1])])
    waiting.pop(0)()
    waiting.pop(0)()
    assert told() == ("PrepareCommit", [("out", [1])])
    waiting.pop(0)()
    assert told() == ("CompleteCommit", [])


def test_only_the_coordinator_describes_a_transactional_id(side):
    side.init(ID)
    other = side.kafka.coordinated_by[ID] ^ 1
    (state,) = side.kafka.handle(other, "DescribeTransactions", 0, Request(transactional_ids=[ID])).transaction_states
    assert state.error_code == 16


def test_an_unknown_transactional_id_has_no_transactions(side):
    held = (7, 0)
    assert side.add(ID, held, 0) == [49]
    assert side.join(ID, held, "group") == 49
    assert side.end(ID, held, commit=False) == (49,)
    assert side.produce(ID, held, 0, 0, [b"a"]) == (49, -1)
    assert described(side) is None


def test_a_transaction_spans_no_topic_that_is_not_there():
    side = ModelSide(1)
    _, *held = side.init(ID)
    side.kafka.topics.create("gone", 1)
    side.topic = "gone"
    assert side.add(ID, held, 0, 1) == [55, 3]
    assert described(side)[0] == "Empty"
