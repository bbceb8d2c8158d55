"""A follower reads on, whatever becomes of its consumer."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from lab.soak.evidence import client
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.testing import Proxy
from spark_kafka_eos.tools.verify import follower
from spark_kafka_eos.tools.verify.follower import Follower
from tests.producing import transact
from tests.waiting import until

pytestmark = pytest.mark.broker


def test_a_consumer_that_has_stopped_fetching_is_replaced_by_one_that_goes_on_where_it_was(kafka, monkeypatch):
    monkeypatch.setattr(follower, "_STALLED_SECONDS", 1.0)
    topic = kafka.create_topic("followed")
    with Proxy(kafka.bootstrap) as proxy, Follower(client(proxy.bootstrap), topic, 1) as reader:
        transact(kafka.bootstrap, topic, [b"%d" % number for number in range(5)], "commit")
        until(lambda: reader.records == 5, seconds=30)
        lost = proxy.add("Fetch:drop-response")  # librdkafka waits for it for a minute, and fetches nothing meanwhile
        until(lambda: lost.fired, seconds=30)
        transact(kafka.bootstrap, topic, [b"%d" % number for number in range(5, 9)], "commit")
        (seen,) = reader.stop({TopicPartition(topic, 0): 11}, timeout=10.0).values()
    assert (seen.start, seen.end) == (0, 11)
    assert seen.offset.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_follower_that_gets_no_new_consumer_says_so(kafka, monkeypatch):
    monkeypatch.setattr(follower, "_STALLED_SECONDS", 0.0)
    topic = kafka.create_topic("followed-no-more")
    reader = Follower(client(kafka.bootstrap), topic, 1)

    def refused(_config):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    monkeypatch.setattr(follower, "Consumer", refused)
    with reader, pytest.raises(ToolFailed, match="a follower failed: librdkafka cannot be used with these options"):
        reader.stop({TopicPartition(topic, 0): 1})
