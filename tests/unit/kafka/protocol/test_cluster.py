"""Leaders, coordinators and connections, against a scripted broker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from spark_kafka_eos.errors import BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster, shared_cluster
from spark_kafka_eos.kafka.protocol.metadata import PartitionDescription
from spark_kafka_eos.kafka.reserved_topics import ReservedTopics
from spark_kafka_eos.options import ClientOptions


def no_leader(answers, topic_id):
    return described(answers, topic_id, leader_id=-1, leader_epoch=5, error_code=5)


def described(answers, topic_id, **partition):
    """An answer on topic orders, which has one partition."""
    topic = answers.Metadata.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(partition_index=0, **partition)
    return answers.Metadata(
        brokers=[answers.Metadata.MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[topic(name="orders", topic_id=topic_id, error_code=0, partitions=[partition])],
    )


def test_a_topic_is_described_with_its_id_and_leaders(broker):
    described = broker.cluster().topic("orders")
    assert described.id == broker.topic_id
    assert described.partitions == dict.fromkeys((0, 1), PartitionDescription(leader=1, leader_epoch=5))


def test_a_topic_is_looked_up_once(broker):
    cluster = broker.cluster()
    cluster.topic("orders")
    cluster.leader(TopicPartition("orders", 1))
    assert len(broker.sent("Metadata")) == 1


def test_a_topic_is_looked_up_again_after_five_minutes_so_that_new_partitions_are_noticed(broker):
    cluster = broker.cluster()
    cluster.topic("orders")
    broker.topics["orders"] = 3
    broker.clock.now += 301
    assert len(cluster.topic("orders").partitions) == 3


@pytest.fixture
def two_brokers(broker):
    """A cluster of the brokers `broker` and `other`, connected to the first one."""
    broker.leader = 2
    cluster = broker.cluster()
    cluster.topic("orders")
    assert broker.asked == [("Metadata", "broker:9092")]
    broker.asked.clear()
    return cluster


def test_a_topic_that_one_broker_does_not_know_is_asked_of_another_one(broker, two_brokers):
    def outdated(request):
        known, broker.topics = broker.topics, {}
        answer, broker.topics = broker._Metadata(request), known
        return answer

    broker.script["Metadata"].append(outdated)
    two_brokers.refresh(["orders"])
    assert broker.asked == [("Metadata", "broker:9092"), ("Metadata", "other:9092")]


def test_after_an_answer_that_was_wrong_another_broker_is_asked(broker, two_brokers):
    for _ in range(3):
        two_brokers.refresh(["orders"], elsewhere=True)
    assert [where for _, where in broker.asked] == ["other:9092", "broker:9092", "other:9092"]


def test_without_need_no_connection_is_opened(broker, two_brokers):
    two_brokers.refresh(["orders"])
    assert broker.asked == [("Metadata", "broker:9092")]
    assert two_brokers.some_broker().address == "broker:9092"
    two_brokers.connection(2)
    two_brokers.refresh(["orders"])
    assert broker.asked[-1] == ("Metadata", "other:9092"), "those that are connected take turns"


def test_another_broker_is_asked_while_one_is_down(broker, two_brokers):
    broker.refused = 1
    two_brokers.refresh(["orders"], elsewhere=True)
    assert broker.asked == [("Metadata", "broker:9092")], "the other one refused"


def test_an_outdated_broker_does_not_bring_an_earlier_leader_back(broker, answers):
    cluster = broker.cluster()
    orders = TopicPartition("orders", 0)
    broker.script["Metadata"] += [
        described(answers, broker.topic_id, leader_id=1, leader_epoch=6),
        described(answers, broker.topic_id, leader_id=2, leader_epoch=4),
        described(answers, broker.topic_id, leader_id=2, leader_epoch=7),
    ]
    found = []
    for _ in range(3):
        cluster.refresh(["orders"])
        found.append((cluster.leader(orders), cluster.leader_epoch(orders)))
    assert found == [(1, 6), (1, 6), (2, 7)]


def test_what_is_known_of_a_topic_outlives_a_look_up_that_fails(broker, answers, lost):
    cluster = broker.cluster(delivery_timeout_ms=1_000)
    broker.script["Metadata"] += [
        described(answers, broker.topic_id, leader_id=1, leader_epoch=6),
        *[lost] * 30,
    ]
    cluster.topic("orders")
    with pytest.raises(BrokerUnreachable):
        cluster.refresh(["orders"])
    broker.script["Metadata"].clear()
    assert cluster.leader_epoch(TopicPartition("orders", 0)) == 6, "the broker now says 5"
    assert len(cluster.topic("orders").partitions) == 2, "and was asked again"


def test_looking_up_a_topic_never_creates_it(broker):
    broker.cluster().topic("orders")
    assert [request.allow_auto_topic_creation for request in broker.sent("Metadata")] == [False]


def test_an_unknown_topic_is_named_after_a_few_seconds(broker):
    cluster = broker.cluster(delivery_timeout_ms=120_000)
    cluster.topic("orders")
    with pytest.raises(UnknownTopic, match="for topic 'nope'"):
        cluster.topic("nope")
    assert 4 < sum(broker.clock.slept) < 7


def test_of_several_topics_those_that_exist_are_found_at_once(broker):
    cluster = broker.cluster()
    assert cluster.existing(["nope", "orders"], patience_ms=0) == ["orders"]
    assert broker.clock.slept == []


def test_topics_that_need_not_exist_are_looked_up_with_the_others_and_not_waited_for(broker):
    cluster = broker.cluster()
    cluster.look_up(["nope", "orders"], optional=["nope"])
    assert (cluster.knows("orders"), cluster.knows("nope")) == (True, False)
    assert (len(broker.sent("Metadata")), broker.clock.slept) == (1, [])
    with pytest.raises(UnknownTopic):
        cluster.look_up(["nope", "orders"], optional=["orders"])


def test_a_topic_without_a_leader_is_waited_for_though_unknown_ones_are_not(broker, answers):
    unavailable = answers.Metadata.MetadataResponseTopic(name="orders", error_code=5)
    broker.script["Metadata"].append(answers.Metadata(topics=[unavailable]))
    assert broker.cluster().existing(["orders"], patience_ms=0) == ["orders"]
    assert len(broker.sent("Metadata")) == 2


def test_a_topics_setting_is_kept_as_long_as_its_description_whatever_its_value_is(broker):
    asked = []

    def look_up(names):
        asked.append(list(names))
        return dict.fromkeys(names, 7)

    cluster = broker.cluster()
    for later, times in ((0, 1), (299, 1), (2, 2), (0, 2)):
        broker.clock.now += later
        assert cluster.kept("retention.ms", ["orders"], look_up) == {"orders": 7}
        assert asked == [["orders"]] * times


@pytest.mark.parametrize(("kind", "key_type"), [("group", 0), ("transaction", 1)])
def test_a_coordinator_is_looked_up_by_the_protocols_number_of_its_kind(broker, kind, key_type):
    assert broker.cluster().coordinator(kind, "orders") == 1
    assert [(request.key, request.key_type) for request in broker.sent("FindCoordinator")] == [("orders", key_type)]


def test_a_topic_that_was_just_created_is_waited_for(broker):
    cluster = broker.cluster()

    def create(request):
        broker.topics["new"] = 1
        return broker._Metadata(request)

    broker.script["Metadata"] += [broker._Metadata, create]
    assert list(cluster.topic("new").partitions) == [0]


def test_an_unknown_partition_is_named(broker):
    with pytest.raises(UnknownTopic, match="topic 'orders' has no partition 2, only 2"):
        broker.cluster().leader(TopicPartition("orders", 2))


def test_a_partition_that_was_just_added_is_found(broker):
    cluster = broker.cluster()
    cluster.topic("orders")
    broker.topics["orders"] = 3
    assert cluster.leader(TopicPartition("orders", 2)) == 1


@pytest.mark.parametrize(("epoch", "known"), [(-1, {}), (0, {TopicPartition("orders", 0): 0})])
def test_only_the_epochs_of_leaders_that_a_broker_says_are_known(broker, answers, epoch, known):
    broker.script["Metadata"].append(described(answers, broker.topic_id, leader_id=1, leader_epoch=epoch, error_code=0))
    cluster = broker.cluster()
    both = [TopicPartition("orders", 0), TopicPartition("other", 0)]
    assert cluster.leader_epochs(both) == {}, "nothing is asked"
    cluster.refresh(["orders"])
    assert cluster.leader_epochs(both) == known


def test_an_election_is_waited_for(broker, answers):
    broker.script["Metadata"] += [no_leader(answers, broker.topic_id)] * 3
    assert broker.cluster().leader(TopicPartition("orders", 0)) == 1
    assert len(broker.sent("Metadata")) == 4


def test_broker_0_leads_as_any_other_one_does(broker, answers):
    broker.script["Metadata"].append(described(answers, broker.topic_id, leader_id=0, leader_epoch=5, error_code=0))
    assert broker.cluster().leader(TopicPartition("orders", 0)) == 0
    assert len(broker.sent("Metadata")) == 1, "no election is waited for"


@pytest.mark.parametrize(("topic_id", "why"), [(7, "is the ledger"), (0, None)], ids=["with ids", "without"])
def test_a_reserved_topic_is_known_by_its_id_under_another_name(broker, topic_id, why):
    """As a gateway gives it one; brokers without topic ids say 0 of every topic."""
    broker.topics |= {"ledger": 1}
    broker.topic_id = uuid.UUID(int=topic_id)
    reserved = ReservedTopics({"ledger": "is the ledger"}, by_id="ledger")
    cluster = broker.cluster()
    cluster.look_up_reserved(reserved)
    assert cluster.why_reserved("orders", reserved) == why


def test_connections_are_kept_and_a_broken_one_is_replaced(broker):
    cluster = broker.cluster()
    first = cluster.connection(1)
    assert cluster.connection(1) is first
    first.close()
    second = cluster.connection(1)
    assert second is not first
    assert second.usable


def test_the_bootstrap_connection_serves_the_node_it_leads_to(broker):
    cluster = broker.cluster()
    cluster.connection(cluster.leader(TopicPartition("orders", 0)))
    assert len(broker.connections) == 1


def test_brokers_that_cannot_be_reached_are_named_with_the_cause(broker):
    broker.refused = 1_000
    with pytest.raises(BrokerUnreachable) as caught:
        broker.cluster().topic("orders")
    assert "kafka.bootstrap.servers=broker:9092" in str(caught.value)
    assert "refused" in str(caught.value)


def test_before_first_contact_a_wrong_address_costs_only_the_request_timeout(broker):
    broker.refused = 1_000
    with pytest.raises(BrokerUnreachable):
        broker.cluster(request_timeout_ms=1_000, delivery_timeout_ms=120_000).topic("orders")
    assert sum(broker.clock.slept) <= 1.0


def test_a_broker_that_restarts_is_waited_for(broker):
    cluster = broker.cluster(request_timeout_ms=1_000, delivery_timeout_ms=60_000)
    cluster.topic("orders")
    for connection in broker.connections:
        connection.close()
    broker.refused = 20
    cluster.refresh(["orders"])
    assert sum(broker.clock.slept) > 1.0


def test_an_outage_message_says_once_how_long_it_was_tried(broker):
    broker.refused = 1_000
    with pytest.raises(BrokerUnreachable) as caught:
        broker.cluster().leader(TopicPartition("orders", 0))
    assert str(caught.value).count("retried") == 1


def test_the_transaction_version_is_the_finalized_feature(broker, old_broker):
    assert broker.cluster().transaction_version() == 2
    assert old_broker.cluster().transaction_version() == 0


def test_internal_topics_are_not_listed(broker):
    broker.topics |= {"__consumer_offsets": 1, "alerts": 1}
    assert broker.cluster().topic_names() == ["alerts", "orders"]


def test_a_connection_to_an_address_that_the_cluster_left_is_closed_unless_an_answer_is_due(broker):
    broker.leader = 2
    cluster = broker.cluster()
    cluster.topic("orders")
    left, busy = cluster.connection(2), cluster.connection(2, 1)
    bootstrap = cluster.connection(1)
    due = busy.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    broker.leader = 1  # and there is no broker 2
    cluster.refresh(["orders"])
    assert (left.open, busy.open, bootstrap.open) == (False, True, True)
    busy.receive(due)
    cluster.refresh(["orders"])
    assert not busy.open
    with pytest.raises(BrokerUnreachable, match="broker 2 is not in the cluster's metadata"):
        cluster.connection(2)
    cluster.close()


def test_closing_closes_every_connection(broker):
    with broker.cluster() as cluster:
        connection = cluster.connection(1)
    assert not connection.usable


def test_tasks_of_a_process_share_a_cluster_per_options():
    options = ClientOptions(bootstrap_servers=(("broker", 9092),))
    same = ClientOptions(bootstrap_servers=(("broker", 9092),))
    other = ClientOptions(bootstrap_servers=(("broker", 9093),))
    assert shared_cluster(options) is shared_cluster(same)
    assert shared_cluster(options) is not shared_cluster(other)


def test_no_two_threads_share_connections_even_if_the_second_gets_the_firsts_id():
    options = ClientOptions(bootstrap_servers=(("broker", 9092),))
    found = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: found.append(shared_cluster(options)))
        thread.start()
        thread.join()
    assert len({id(cluster) for cluster in found}) == 5


def test_a_threads_connections_are_closed_when_it_ends():
    options = ClientOptions(bootstrap_servers=(("broker", 9092),))
    closed = threading.Event()
    connection: Any = SimpleNamespace(close=closed.set)

    def work():
        shared_cluster(options)._connections["broker", 9092, 0] = connection

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert closed.wait(10)


FORKED = """
import os
from spark_kafka_eos.kafka.protocol.cluster import Cluster, shared_cluster
from spark_kafka_eos.options import ClientOptions
options = ClientOptions(bootstrap_servers=(("broker", 9092),))
inherited = shared_cluster(options)
assert shared_cluster(options) is inherited
if not (child := os.fork()):
    os._exit(shared_cluster(options) is inherited)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_inherits_no_connections():
    subprocess.run(
        [sys.executable, "-c", FORKED], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


@pytest.mark.parametrize(("down_s", "warnings"), [(3, 0), (8, 1)])
def test_a_cluster_that_is_not_reached_for_five_seconds_is_named_in_one_warning(broker, caplog, down_s, warnings):
    comes_up, connect = broker.clock.now + down_s, broker.connect

    def refuse(host, port, options):
        if broker.clock.now < comes_up:
            raise BrokerUnreachable(f"no connection to {host}:{port}: refused")
        return connect(host, port, options)

    broker.connect = refuse
    broker.cluster(request_timeout_ms=30_000).topic("orders")
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == warnings
    assert all("cannot connect to any broker (kafka.bootstrap.servers=" in text for text in said)
    assert all("trying for up to kafka.request.timeout.ms (30000)" in text for text in said)


def test_a_cluster_that_was_reached_before_is_not_said_to_be_tried_for_as_long_as_at_the_first_time(broker, caplog):
    down: list[str] = []
    connect = broker.connect

    def connect_unless_down(host, port, options):
        if down:
            raise BrokerUnreachable(f"no connection to {host}:{port}: refused")
        return connect(host, port, options)

    broker.connect = connect_unless_down
    cluster = broker.cluster(request_timeout_ms=30_000, delivery_timeout_ms=60_000)
    cluster.topic("orders")
    cluster.close()
    down.append("now")
    with pytest.raises(BrokerUnreachable, match="retried for 60000 ms"):
        cluster.refresh(["orders"])
    assert "kafka.request.timeout.ms" not in caplog.text


def test_no_look_up_creates_a_topic(broker):
    cluster = broker.cluster()
    cluster.cluster_id()
    cluster.topic("orders")
    cluster.topic_names()
    cluster.nodes()
    asked = broker.sent("Metadata")
    assert len(asked) == 4
    assert not any(request.allow_auto_topic_creation for request in asked)


class Dropped:
    """A network that drops the packets to all addresses but `alive`: connecting takes its whole time."""

    def __init__(self, brokers, alive=None, **changes):
        self.now, self.asked = 0.0, []
        self.alive = alive
        self.cluster = Cluster(
            ClientOptions(bootstrap_servers=tuple((f"b{number}", 9092) for number in range(brokers)), **changes),
            connect=self.connect,
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    def connect(self, host, port, options):
        self.asked.append(host)
        if host == self.alive:
            return SimpleNamespace(usable=True, in_flight=0, close=lambda: None)
        self.sleep(min(options.tcp_timeout_ms, options.socket_connection_setup_timeout_ms) / 1000)
        raise BrokerUnreachable(f"no connection to {host}:{port}: timed out")

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("brokers", [1, 3, 12, 30])
def test_a_round_over_all_brokers_takes_no_longer_than_there_is_time_for(brokers):
    network = Dropped(brokers)
    with pytest.raises(BrokerUnreachable, match=r"It was retried for 3[01]\d\d\d ms"):
        network.cluster.some_broker()
    assert 30 <= network.now <= 31
    assert len(set(network.asked)) == brokers, "each was asked"


def test_brokers_whose_packets_are_dropped_do_not_use_up_the_time_for_the_one_that_is_left():
    network = Dropped(12, alive="b11")
    network.cluster.some_broker()
    assert network.now < 30


def test_few_brokers_have_the_whole_setup_timeout_and_many_at_least_a_second():
    few, many = Dropped(2, alive="b1"), Dropped(100)
    few.cluster.some_broker()
    assert few.now == 10
    with pytest.raises(BrokerUnreachable, match="It was retried for 100000 ms"):
        many.cluster.some_broker()
    assert many.now == 100


def test_looking_up_a_brokers_address_takes_no_longer_than_the_request_timeout():
    network = Dropped(12, request_timeout_ms=24_000)
    with pytest.raises(BrokerUnreachable):
        network.cluster.connection(5)
    assert network.now == pytest.approx(24)
