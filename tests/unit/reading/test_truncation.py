"""A log that is truncated between the planning of a batch and its reading: what its tasks read, and what comes next."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_eos.errors import DataLoss
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from tests.model_kafka import KafkaModel
from tests.unit.reading.brokers import OPEN, T0, json_of, recorded

GIVEN = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "startingOffsets": "earliest"}
TOLERANT = {"failOnDataLoss": "false"}
ONE_BY_ONE = {"kafka.max.partition.fetch.bytes": "1", "kafka.fetch.max.bytes": "1"}


class Brokers(KafkaModel):
    """The model of Kafka; its log has ten records, `old0` to `old9`, each in a record batch."""

    def __init__(self):
        super().__init__(topics={"t": 1}, nodes=1)
        self.write("old", 0, 10)

    def write(self, name, first, end):
        for number in range(first, end):
            value = f"{name}{number}".encode()
            batch = bytes(encode(pa.nulls(1, pa.binary()), pa.array([value]), 7))
            self.partitions[T0].append_plain((value,), batch=batch, leader_epoch=self.topics.leader_epoch[T0])

    def elect(self):
        self.topics.leader_epoch[T0] += 1
        self.world.now += 10

    def loses(self, at, *, end):
        """An unclean election loses what follows `at`; the new leader writes other records up to `end`."""
        self.elect()
        self.partitions[T0].truncate(at)
        self.write("new", at, end)


class Query:
    """A stream from its beginning, which may be started again, with other options too."""

    def __init__(self, brokers):
        self._brokers = brokers
        self.start()

    def start(self, **given):
        self.options = source_options(GIVEN | given)
        self.source = OffsetPlanner(self.options, self._brokers.cluster(), clock=self._brokers.clock)

    def plan(self, start):
        return recorded(self.source.latest(start, limited=False))

    def read(self, start, end):
        return rows(self._brokers, self.options, self.source.batch(start, end))


def rows(brokers, options, tasks):
    return [
        value.decode()
        for task in tasks
        for batch in read(task, options, brokers.cluster())
        for value in batch["value"].to_pylist()
    ]


def values(name, first, end):
    return [f"{name}{number}" for number in range(first, end)]


@pytest.fixture
def brokers():
    return Brokers()


@pytest.fixture
def planned(brokers):
    """A query that has read ten records, and has planned the next twenty: where that batch starts and ends."""
    query = Query(brokers)
    start = query.plan(OPEN)
    assert query.read(OPEN, start) == values("old", 0, 10)
    brokers.write("old", 10, 30)
    return query, start, query.plan(start)


@pytest.mark.parametrize("at", [20, 10, 5], ids=["in the batch", "at its start", "before it"])
def test_a_log_truncated_after_a_batch_was_planned_is_data_loss(brokers, planned, at):
    query, start, end = planned
    tasks = query.source.batch(start, end)
    brokers.loses(at, end=40)
    with pytest.raises(DataLoss, match=f"truncated .* those from {max(at, 10)} on are of leader epoch 1"):
        rows(brokers, query.options, tasks)
    with pytest.raises(DataLoss, match=f"t-0 from {max(at, 10)} to 30 .the log was truncated to {at}, and has other"):
        query.source.batch(start, end)


@pytest.mark.parametrize("given", [{}, ONE_BY_ONE], ids=["one answer", "an answer for each record"])
def test_of_a_log_truncated_after_a_batch_was_planned_each_new_record_is_read_once_on_request(brokers, planned, given):
    query, start, end = planned
    query.start(**TOLERANT, **given)
    tasks = query.source.batch(start, end)
    brokers.loses(20, end=40)
    assert rows(brokers, query.options, tasks) == values("old", 10, 20)
    back = query.plan(end)
    assert query.read(end, back) == []
    assert back == json_of(t=[20])
    assert query.read(back, query.plan(back)) == values("new", 20, 40)


def test_of_a_log_truncated_while_it_is_read_each_new_record_is_read_once_on_request(brokers, planned):
    query, start, end = planned
    query.start(**TOLERANT, **ONE_BY_ONE)
    fetches = 0

    def meet(_request, answer):
        nonlocal fetches
        fetches += 1
        if fetches == 15:
            brokers.loses(20, end=40)
        return answer()

    tasks = query.source.batch(start, end)
    brokers.meets["Fetch"] = meet
    assert rows(brokers, query.options, tasks) == values("old", 10, 24)
    back = query.plan(end)
    assert query.read(end, back) == []
    assert query.read(back, query.plan(back)) == values("new", 20, 40)


def test_an_election_that_loses_nothing_is_none_whenever_it_comes(brokers, planned):
    query, start, end = planned
    tasks = query.source.batch(start, end)
    for process in (query.source, OffsetPlanner(query.options, brokers.cluster(), clock=brokers.clock)):
        brokers.elect()
        brokers.write("later", 30, 32)
        tasks += process.batch(start, end)
    assert rows(brokers, query.options, tasks) == 3 * values("old", 10, 30)


def test_a_batch_whose_checkpoint_has_no_epochs_is_read_as_before(brokers):
    brokers.elect()
    brokers.write("later", 10, 20)
    query = Query(brokers)
    assert query.read(json_of(t=[5]), json_of(t=[15])) == values("old", 5, 10) + values("later", 10, 15)


@pytest.mark.parametrize("given", [{}, TOLERANT], ids=["strict", "tolerant"])
def test_actions_of_one_batch_read_do_not_read_two_logs(brokers, given):
    options = source_options(GIVEN | given, streaming=False)
    tasks = OffsetPlanner(options, brokers.cluster(), clock=brokers.clock).batch_read()
    assert rows(brokers, options, tasks) == values("old", 0, 10)
    brokers.loses(6, end=20)
    if given:
        assert rows(brokers, options, tasks) == values("old", 0, 6)
    else:
        with pytest.raises(DataLoss, match="those from 6 on are of leader epoch 1"):
            rows(brokers, options, tasks)
