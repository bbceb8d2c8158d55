"""When Kafka is asked how long records wait."""

from __future__ import annotations

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe.lateness import Lateness

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_record_at_an_offset_stays_as_old_as_it_is():
    lateness = Lateness(10.0)
    assert lateness.to_ask({T0: 5}, 100.0) == {T0: 5}
    lateness.answered({T0: 5}, {T0: 90_500}, 100.0)
    assert lateness.to_ask({T0: 5}, 1_000.0) == {}
    assert lateness.since([T0]) == {T0: 90.5}


def test_a_query_that_reads_on_is_looked_at_now_and_then_and_keeps_the_older_answer_until_then():
    lateness = Lateness(10.0)
    lateness.answered({T0: 5}, {T0: 90_000}, 100.0)
    assert lateness.to_ask({T0: 6}, 109.0) == {}
    assert lateness.since([T0]) == {T0: 90.0}
    assert lateness.to_ask({T0: 7}, 110.0) == {T0: 7}


def test_what_could_not_be_read_is_unknown_and_asked_again_later():
    lateness = Lateness(10.0)
    lateness.answered({T0: 5}, {}, 100.0)
    assert lateness.since([T0]) == {}
    assert lateness.to_ask({T0: 5}, 109.0) == {}
    assert lateness.to_ask({T0: 5}, 110.0) == {T0: 5}


def test_a_partition_that_was_read_to_its_end_is_forgotten():
    lateness = Lateness(10.0)
    lateness.answered({T0: 5, T1: 5}, {T0: 90_000, T1: 90_000}, 100.0)
    assert lateness.to_ask({T1: 5}, 101.0) == {}
    assert lateness.to_ask({T0: 5, T1: 5}, 102.0) == {T0: 5}
