"""Faults at the requests of whoever reads, looks a transaction up or creates a topic: they pass, and are counted."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import CreateTopicsRequest

from lab.simulation.chance import Seeded
from lab.simulation.shown import codes_in, shown, shown_answer
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import describe, offsets
from tests.transacting import ModelSide

ID = "id"
OUT = TopicPartition("out", 0)
TOPIC = CreateTopicsRequest.CreatableTopic(
    name="ledger", num_partitions=3, replication_factor=1, assignments=[], configs=[]
)


def transacted(**given):
    """A model in which one transaction was committed."""
    side = ModelSide(2, **given)
    _, *held = side.init(ID)
    side.produce(ID, held, 0, 0, [b"a"])
    side.end(ID, held, commit=True)
    return side


def fetch(side):
    ranges = [OffsetRange(partition=OUT, start=0, end=2)]
    return [fetched.next_offset for fetched in Fetcher(side.cluster, isolation_level="read_uncommitted").fetch(ranges)]


@pytest.mark.parametrize("kind", ["request lost", "answer lost", "request delayed", "passing error"])
@pytest.mark.parametrize(
    ("api", "ask", "answer"),
    [
        ("Fetch", fetch, [2]),
        ("ListOffsets", lambda side: offsets.latest(side.cluster, [OUT]), {OUT: 2}),
        ("DescribeTransactions", lambda side: side.state(ID)[0][0], "CompleteCommit"),
    ],
    ids=["Fetch", "ListOffsets", "DescribeTransactions"],
)
def test_a_reading_request_is_answered_in_the_end(api, ask, answer, kind):
    side = transacted(kinds={kind: 1})
    side.world.allow(faults=3, share=1.0)
    assert ask(side) == answer
    assert side.world.met[api, kind]


def test_a_topic_may_be_created_though_the_broker_says_that_it_could_not_be_in_time():
    request = CreateTopicsRequest(topics=[TOPIC], timeout_ms=1_000, validate_only=False)
    met = set()
    for seed in range(20):
        side = ModelSide(2, kinds={"passing error": 1})
        side.world.chance = Seeded(seed)
        connection = side.cluster.connection(0)
        side.world.allow(faults=1, share=1.0)
        (first,), (second,) = (codes_in(connection.call(request)) for _ in range(2))
        met.add((first, second))
    assert met == {(7, 0), (7, 36)}


def test_requests_and_answers_are_shown():
    side = transacted()
    told: list[str] = []

    def note(api, ask):
        side.world.trace = []
        ask()
        told.extend(line.split("  ")[-1].strip() for line in side.world.trace if f" {api} v" in line)

    note("Fetch", lambda: fetch(side))
    note("ListOffsets", lambda: offsets.latest(side.cluster, [OUT]))
    note("DescribeTransactions", lambda: describe.transaction(side.cluster, ID, now_ms=0))
    size = len(side.read(0, 0).records)
    assert told == [
        f"Fetch v16 (0 from 0) -> 0 ({size} bytes; stable up to 2 of 2)",
        "ListOffsets v7 -> 0 (2)",
        "DescribeTransactions v0 -> 0 (CompleteCommit, id 1, epoch 1)",
    ]
    request = CreateTopicsRequest(topics=[TOPIC], timeout_ms=1_000, validate_only=False)
    assert shown("CreateTopics", 7, request) == "CreateTopics v7"
    assert shown_answer(side.kafka.handle(0, "CreateTopics", 7, request)) == "0"
