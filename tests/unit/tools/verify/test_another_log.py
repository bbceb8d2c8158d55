"""Whether the source still has the records that the ledger's offsets mean."""

from __future__ import annotations

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.entry import SourceProgress
from spark_kafka_eos.source_offset import Origin
from spark_kafka_eos.tools.verify.verification import _another_log
from tests.unit.reading.brokers import T0, T1, Brokers

U0 = TopicPartition("u", 0)


def read(brokers):
    """What the ledger has of a query that has read both topics to their ends."""
    origin = Origin(
        cluster="model",
        topic_ids={name: brokers.id_of(name) for name in ("t", "u")},
        leader_epochs=dict.fromkeys((T0, T1, U0), 0),
    )
    return SourceProgress(cluster="model", offsets={T0: 29, T1: 5, U0: 10}, origin=origin)


def filled():
    return Brokers(t=[(0, 29), (0, 5)], u=[(0, 10)])


def test_a_log_that_has_grown_under_other_leaders_is_what_the_query_read():
    brokers = filled()
    progress = read(brokers)
    assert _another_log(brokers.cluster(), "t", progress) == ""
    brokers.elect(T0)
    brokers.elect(T1)
    assert _another_log(brokers.cluster(), "t", progress) == ""


def test_a_topic_that_was_created_again_is_not_what_the_query_read():
    brokers = filled()
    progress = read(brokers)
    ids = [brokers.id_of("t")]
    brokers.create_again("t", (0, 29), (0, 5))
    ids.append(brokers.id_of("t"))
    assert _another_log(brokers.cluster(), "t", progress) == (
        "'t' is not what the query read: the topic was deleted and created again: its id was {} and is {}".format(*ids)
    )
    assert _another_log(brokers.cluster(), "u", progress) == "", "the other topic is still the same"


def test_a_log_that_was_truncated_and_filled_again_is_not_what_the_query_read():
    brokers = filled()
    progress = read(brokers)
    brokers.elect(T0, at=20)
    assert _another_log(brokers.cluster(), "t", progress) == (
        "t-0 is not what the query read: it read up to 29, and the log was truncated to 20 since"
    )
    assert _another_log(brokers.cluster(), "u", progress) == ""


def test_of_an_entry_that_does_not_say_which_topic_it_means_nothing_is_known():
    brokers = filled()
    assert _another_log(brokers.cluster(), "t", SourceProgress(cluster="model", offsets={T0: 29})) == ""
