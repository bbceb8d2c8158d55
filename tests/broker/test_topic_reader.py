"""The witness sees what its isolation level lets it see, and how far topics and groups are."""

from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import UnknownTopic
from spark_kafka_eos.testing.demo.flights import Flight
from spark_kafka_eos.testing.demo.flights_producer import Produced, produce
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.read_offsets import ends, group_offsets
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.reading import await_stable

pytestmark = pytest.mark.broker


@pytest.fixture
def sent(kafka: EmbeddedKafka, topic: Callable[..., str]) -> tuple[str, Produced]:
    """A topic with 100 flights in ten transactions, the tenth aborted first and sent again."""
    name = topic("flights", 2)
    flights = [
        Flight(id=n, month=1, time_hour="t", carrier=f"C{n % 5}", flight=n, origin="EWR", dest="IAH", dep_delay=n)
        for n in range(100)
    ]
    return name, produce(kafka.bootstrap, name, flights, size=10)


def test_the_producer_tells_what_it_committed_and_aborted(sent: tuple[str, Produced]) -> None:
    assert sent[1] == Produced(committed=100, aborted=10)


def test_read_committed_leaves_out_what_read_uncommitted_shows(
    kafka: EmbeddedKafka, sent: tuple[str, Produced]
) -> None:
    await_stable(kafka.bootstrap, sent[0])
    committed = [message.value() for message in read_topic(kafka.bootstrap, sent[0], "read_committed")]
    everything = [message.value() for message in read_topic(kafka.bootstrap, sent[0], "read_uncommitted")]
    assert len(committed) == 100
    assert not [value for value in committed if b'"aborted": true' in (value or b"")]
    assert len([value for value in everything if b'"aborted": true' in (value or b"")]) == 10


def test_reading_ends_at_an_open_transaction(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    name = topic("open")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"v")
    producer.flush()
    try:
        assert list(read_topic(kafka.bootstrap, name, "read_committed")) == []
        assert ends(kafka.bootstrap, name, "read_committed") == {0: 0}
        assert ends(kafka.bootstrap, name, "read_uncommitted") == {0: 1}
    finally:
        producer.abort_transaction()


def test_a_topic_that_is_not_there_is_named(kafka: EmbeddedKafka) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        list(read_topic(kafka.bootstrap, "no-such-topic", "read_committed"))


def test_a_groups_offsets_are_those_it_committed(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    name = topic("grouped", 2)
    committed = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 1, 7)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for answer in admin.alter_consumer_group_offsets([committed]).values():
        answer.result()
    assert group_offsets(kafka.bootstrap, name, name) == {1: 7}
