"""A day out of a year on a real broker: what filters on time make a batch read fetch."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.fetch import Fetcher
from spark_kafka_eos.core.filters import Condition, wanted
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.positions import Positions
from tests.producing import KEEP

pytestmark = pytest.mark.broker

HOUR, DAY, YEAR = 3_600_000, 86_400_000, 365 * 86_400_000
NEW_YEAR = 1_735_689_600_000  # 2025-01-01
MARCH = NEW_YEAR + 59 * DAY


@pytest.fixture(scope="module")
def year(kafka):
    """A topic with a record of 1 kB for each hour of a year, 24 a record batch; every other one is older than the one
    before it, by half an hour."""
    name = kafka.create_topic("year", 1, KEEP)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 24, "linger.ms": 1_000})
    for number, time in enumerate(range(NEW_YEAR, NEW_YEAR + YEAR, HOUR)):
        producer.produce(name, bytes(1_000), timestamp=time + HOUR * 3 // 4 * (-1) ** number)
        producer.poll(0)
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def fetched(kafka, year):
    """`fetched(low, high, **options)`: offsets that are read for a filter on time, and the bytes that it takes."""

    def run(low, high, **more):
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": year, "pushDownFilters": "true"}
        options = source_options(given | more, streaming=False)
        asked = wanted(
            [
                Condition(column="timestamp", operator=">=", values=(low * 1_000,)),
                Condition(column="timestamp", operator="<", values=(high * 1_000,)),
            ]
        )
        with Positions(options) as positions, Cluster(options.client) as cluster:
            start, end = positions.narrowed(positions.starting(), positions.ending(), asked)
            ranges = [one for task in positions.tasks(start, end) for one in task]
            size = sum(part.buffer.nbytes for part in Fetcher(cluster).fetch(ranges))
        return [(one.start, one.end) for one in ranges], size

    return run


def test_a_day_out_of_a_year_fetches_about_a_day(fetched):
    [(start, end)], size = fetched(MARCH, MARCH + DAY, maxTimestampDelay="1h")
    assert start == 59 * 24
    assert end == 60 * 24 + 2, "one hour more, as a record might be that late"
    assert size < 200_000, "of nine megabytes"


def test_without_a_bound_on_the_delay_it_fetches_from_that_day_on(fetched):
    [(start, end)], _ = fetched(MARCH, MARCH + DAY)
    assert (start, end) == (59 * 24, 365 * 24)


def test_a_time_after_the_last_record_fetches_nothing(fetched):
    assert fetched(NEW_YEAR + 2 * YEAR, NEW_YEAR + 3 * YEAR) == ([], 0)
