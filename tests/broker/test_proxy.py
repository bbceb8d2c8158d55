"""The proxy between librdkafka, or the Java-free client of this package, and real brokers."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.testing.proxy import Proxy
from tests.interrupts import heeding_ctrl_c
from tests.reading import read_committed

pytestmark = pytest.mark.broker

COMMAND = [sys.executable, "-m", "lab", "proxy"]
FAULTS = [
    "EndTxn:cut-request",
    "EndTxn:cut-response",
    "EndTxn:drop-request",
    "EndTxn:drop-response",
    "EndTxn:duplicate",
    "EndTxn:delay=0.1",
    "EndTxn:error=CONCURRENT_TRANSACTIONS",
    "EndTxn:error-after=COORDINATOR_LOAD_IN_PROGRESS",
    "InitProducerId:error=COORDINATOR_NOT_AVAILABLE",
    "FindCoordinator:1-2:cut-request",
    "FindCoordinator:error=COORDINATOR_NOT_AVAILABLE",
    "Produce:error=NOT_LEADER_OR_FOLLOWER",
    "Produce:cut-response",
    "Produce:duplicate",
    "Metadata:delay=0.1",
]


def transact(bootstrap: str, topic: str, value: bytes) -> None:
    """One transaction with one record, by a client that gives a request up after half a second."""
    config = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}", "client.id": "writer"}
    producer = Producer(config | {"socket.timeout.ms": 500, "retry.backoff.ms": 10, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.commit_transaction(30)


def committed(bootstrap: str, topic: str) -> list[bytes]:
    return [bytes(message.value() or b"") for message in read_committed(bootstrap, topic)]


def test_a_transaction_of_another_client_survives_each_fault_and_is_committed_once(either_kafka):
    topic = either_kafka.create_topic("proxied")
    with Proxy(either_kafka.bootstrap) as proxy:
        for fault in FAULTS:
            at_work = proxy.add(fault)
            transact(proxy.bootstrap, topic, fault.encode())
            assert at_work.fired >= 1, f"{fault} met nothing"
            proxy.clear()
        assert committed(proxy.bootstrap, topic) == [fault.encode() for fault in FAULTS]


def test_a_cluster_that_wants_a_login_is_an_error_at_the_start(secured):
    with pytest.raises(BrokerUnreachable), Proxy(secured.kafka.bootstrap_of("SASL_PLAINTEXT")):
        pytest.fail("it has started")


def test_every_broker_of_a_cluster_is_reached_through_the_proxy_alone(kafka):
    with Proxy(kafka.bootstrap) as proxy:
        brokers = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=10).brokers.values()
        assert {f"127.0.0.1:{broker.port}" for broker in brokers} == set(proxy.bootstrap.split(","))
        assert proxy.bootstrap != kafka.bootstrap


@pytest.fixture
def running(kafka) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--bootstrap-servers", kafka.bootstrap, "--rule", "EndTxn@writer:1:cut-response"]
    with heeding_ctrl_c():
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        yield process
        process.kill()


def test_the_command_tells_where_it_listens_shows_what_meets_a_rule_and_ends_with_a_table(running, kafka):
    topic = kafka.create_topic("proxied-by-hand")
    assert running.stdout is not None
    transact(running.stdout.readline().strip(), topic, b"1")
    running.send_signal(signal.SIGINT)
    _, notes = running.communicate(timeout=30)
    assert running.returncode == 0, notes
    assert "writer → broker 1: EndTxn v" in notes
    table = next(line for line in notes.splitlines() if "EndTxn@writer:1:cut-response" in line and "│" in line)
    seen, fired = (int(cell) for cell in table.split("│")[2:4])
    assert seen >= 2 and fired == 1
    assert committed(kafka.bootstrap, topic) == [b"1"]
