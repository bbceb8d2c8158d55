"""What the stream reader makes of Spark's calls, without Spark and without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_kafka_eos.model import UNRESOLVED
from spark_kafka_eos.options import source_options
from spark_kafka_eos.spark.source import KafkaEosStreamReader

START, END = {name: dict(offsets) for name, offsets in UNRESOLVED.items()}, {"t": {"0": 5}}


class Positions:
    def __init__(self, options):
        pass

    def initial(self):
        return dict(START)

    def latest(self, start, *, limited):
        return END


@pytest.fixture
def done():
    """The ends that were confirmed, in order."""
    return []


@pytest.fixture
def reader(done):
    class ConsumedOffsets:
        def __init__(self, options):
            pass

        def done(self, end):
            done.extend([] if end == UNRESOLVED else [end])

    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"}
    doubles: Any = {"positions": Positions, "consumed": ConsumedOffsets}
    return KafkaEosStreamReader(source_options(given), **doubles)


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
