"""A stream's reader as Spark 4.0 and 4.1 call it, run by run on one checkpoint, with kills, against the model of Kafka.

`reading.next_start` says what these releases do; tests/spark/test_releases.py has them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.spark.source import KafkaEosStreamReader
from tests.unit.reading.brokers import Brokers, ranges


class OlderSpark:
    """A query of Spark 4.0 or 4.1. `batches` are those that were committed: what each has read, `{partition: (start,
    end)}`.
    """

    def __init__(self, brokers, *, shows=True, **options):
        self.shows = shows  # where the query is, at a restart
        self.brokers, self.options = brokers, {"subscribe": "t", "startingOffsets": "earliest"} | options
        self.offsets, self.batches = [], []  # the checkpoint: offsets/<n> as text; commits/<n>

    def reader(self):
        options = source_options({"kafka.bootstrap.servers": "broker:9092"} | self.options)
        return KafkaEosStreamReader(
            options, planner=lambda options: OffsetPlanner(options, self.brokers.cluster(), clock=self.brokers.clock)
        )

    def run(self, triggers=1, *, dies=""):
        """A process of the query. It `dies` in its last trigger: when a batch is "planned", or when it has "run"."""
        reader = self.reader()
        if self.offsets and self.shows:
            last = json.loads(self.offsets[-1])
            assert reader.partitions(last, last) == []
        if len(self.offsets) > len(self.batches):
            self._batch(reader, dies if triggers == 0 else "")
        for trigger in range(triggers):
            end = json.dumps(reader.latestOffset())
            if self.offsets[-1:] != [end]:
                self.offsets.append(end)
                self._batch(reader, dies if trigger == triggers - 1 else "")
        return self

    def _batch(self, reader, dies):
        if dies == "planned":
            return
        start = json.loads(self.offsets[-2]) if len(self.offsets) > 1 else reader.initialOffset()
        read = ranges([each.value for each in reader.partitions(start, json.loads(self.offsets[-1]))])
        if dies != "run":
            self.batches.append(read)
            if len(self.batches) > 1:
                reader.commit(start)

    def read(self):
        """`{partition: (start, end)}` of all batches. Each goes on where the one before has ended."""
        found: dict[int, tuple[int, int]] = {}
        for batch in self.batches:
            for partition, (start, end) in batch.items():
                first, last = found.get(partition, (start, start))
                assert start == last, f"partition {partition}: {self.batches}"
                found[partition] = (first, end)
        return found

    def sizes(self):
        return [sum(end - start for start, end in batch.values()) for batch in self.batches]


def test_a_limit_holds_from_the_first_batch_on():
    query = OlderSpark(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="40").run(5)
    assert query.batches == [{0: (0, 40)}, {0: (40, 80)}, {0: (80, 100)}]
    assert len(query.offsets) == 3, "nothing new is no batch"


def test_and_in_the_first_batch_after_a_restart():
    brokers = Brokers(t=[(0, 50)])
    query = OlderSpark(brokers, maxOffsetsPerTrigger="40").run(5)
    brokers.has(t=[(0, 150)])
    query.run(5)
    assert query.batches == [{0: (0, 40)}, {0: (40, 50)}, {0: (50, 90)}, {0: (90, 130)}, {0: (130, 150)}]


@pytest.mark.parametrize("dies", ["planned", "run"])
@pytest.mark.parametrize("killed_in", [1, 2])
def test_a_batch_that_was_killed_runs_again_and_the_next_one_is_limited(dies, killed_in):
    query = OlderSpark(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="40").run(killed_in, dies=dies)
    query.run(0, dies=dies).run(5)
    assert query.batches == [{0: (0, 40)}, {0: (40, 80)}, {0: (80, 100)}]


def test_a_limit_in_bytes_holds_as_well():
    query = OlderSpark(Brokers(t=[(0, 100)]), maxBytesPerTrigger="4000").run(5)
    assert query.read() == {0: (0, 100)}
    assert len(query.batches) >= 3
    assert max(query.sizes()) <= 40


def test_a_batch_waits_for_its_least_number_of_offsets_but_the_first_of_a_process_does_not():
    brokers = Brokers(t=[(0, 10)])
    query = OlderSpark(brokers, minOffsetsPerTrigger="50", maxTriggerDelay="15m").run(2)
    brokers.has(t=[(0, 20)])
    reader = query.reader()
    last = json.loads(query.offsets[-1])
    reader.partitions(last, last)
    brokers.has(t=[(0, 10)])
    assert reader.latestOffset() == last
    brokers.has(t=[(0, 59)])
    assert reader.latestOffset() == last
    brokers.has(t=[(0, 60)])
    assert reader.latestOffset() != last


@pytest.mark.parametrize(
    ("options", "reads"),
    [
        ({"startingOffsets": "earliest"}, {0: (3, 100)}),
        ({"startingOffsets": "latest-10"}, {0: (90, 100)}),
        ({"startingOffsets": '{"t": {"0": 7}}'}, {0: (7, 100)}),
        ({"startingTimestamp": "40"}, {0: (40, 100)}),
        ({"startingOffsets": "latest"}, {}),
    ],
)
def test_a_new_query_starts_where_its_options_say(options, reads):
    assert OlderSpark(Brokers(t=[(3, 100)]), **options).run().batches == [reads]


def test_an_end_by_time_stays_where_the_checkpoint_has_it():
    brokers = Brokers(t=[(0, 100)])
    query = OlderSpark(brokers, endingTimestamp="60").run(2)
    brokers.has(t=[(70, 100)])
    assert query.run(2).read() == {0: (0, 60)}


def test_a_first_batch_that_is_limited_is_said_to_be_the_only_one_with_some_triggers(caplog):
    query = OlderSpark(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="40")
    with caplog.at_level(logging.WARNING, "spark_kafka_eos.spark.source"):
        query.run(2)
        [warned] = caplog.records
        assert "it ends after one micro-batch, and leaves 60 offsets" in warned.getMessage()
        caplog.clear()
        query.run(2)
    assert caplog.records == [], "what is left is less than the limit"


def test_a_spark_that_asks_before_it_shows_where_the_query_is_stops_before_it_records_the_end():
    """Of a query with `spark.sql.streaming.triggerAvailableNowWrapper.enabled`."""
    query = OlderSpark(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="40").run(2)
    reader, last = query.reader(), json.loads(query.offsets[-1])
    reader.latestOffset()
    with pytest.raises(ConfigurationError, match="triggerAvailableNowWrapper"):
        reader.partitions(last, last)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(0, 1), st.integers(1, 40)),
        st.tuples(st.just("run"), st.integers(0, 3), st.sampled_from(["", "planned", "run"])),
    ),
    max_size=20,
)


def played(steps, query):
    """What was produced: `{partition: (0, end)}`."""
    produced: Counter[int] = Counter()
    for what, first, second in steps:
        if what == "produce":
            produced[first] += second
            query.brokers.has(t=[(0, produced[0]), (0, produced[1])])
        else:
            query.run(first, dies=second)
    query.run(produced.total() + 2)
    return {partition: (0, count) for partition, count in produced.items()}


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, limit=st.integers(2, 30))
def test_whatever_is_produced_and_killed_each_offset_is_read_once_and_no_batch_exceeds_the_limit(steps, limit):
    query = OlderSpark(Brokers(t=[(0, 0), (0, 0)]), maxOffsetsPerTrigger=str(limit))
    assert played(steps, query) == query.read()
    assert max(query.sizes()) <= limit


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, limit=st.integers(2, 30))
def test_a_spark_that_never_shows_where_a_query_is_after_a_restart_is_refused_before_it_reads_anything_twice(
    steps, limit
):
    """No release that was looked at does that; vendors' may."""
    brokers = Brokers(t=[(0, 0), (0, 0)])
    query = OlderSpark(brokers, shows=False, maxOffsetsPerTrigger=str(limit), failOnDataLoss="false")
    try:
        assert played(steps, query) == query.read()
    except ConfigurationError:
        assert query.read(), "each offset once"
