"""What the stream reader makes of Spark's calls, without Spark and without a broker."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_kafka_eos.model import UNRESOLVED
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading import group_offsets as consumed
from spark_kafka_eos.reading import positions
from spark_kafka_eos.spark.source import KafkaEosStreamReader

START, END = {name: dict(offsets) for name, offsets in UNRESOLVED.items()}, {"t": {"0": 5}}


@pytest.fixture
def done(monkeypatch):
    """The ends that were confirmed, in order."""
    ends = []

    class Positions:
        def __init__(self, options):
            pass

        def initial(self):
            return dict(START)

        def latest(self, start, *, limited):
            return END

    class ConsumedOffsets:
        def __init__(self, options):
            pass

        def done(self, end):
            ends.extend([] if end == UNRESOLVED else [end])

    monkeypatch.setattr(positions, "Positions", Positions)
    monkeypatch.setattr(consumed, "ConsumedOffsets", ConsumedOffsets)
    return ends


@pytest.fixture
def reader():
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"}
    return KafkaEosStreamReader(source_options(given))


def test_a_new_querys_first_start_is_no_end_of_a_batch(done, reader):
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert done == []


def test_the_start_of_a_next_batch_is_the_end_of_one_that_is_done(done, reader):
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.latestOffset(END, ReadAllAvailable())
    assert done == [END]


def test_a_query_that_starts_again_confirms_what_was_done_before(done, reader):
    reader.latestOffset(END, ReadAllAvailable())
    assert done == [END]


def test_what_spark_commits_is_done(done, reader):
    reader.commit(END)
    assert done == [END]
