"""The embedded broker behaves as a broker does: data survives kills, a pause is silence, nothing is left."""

import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.testing import class_archive, embedded, jars
from spark_kafka_eos.testing.embedded import JVM_OPTIONS, EmbeddedKafka
from spark_kafka_eos.testing.kraft import INTERNAL
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.certificates import issue
from tests.conftest import SecuredKafka, release

pytestmark = pytest.mark.broker

NO_KEYSTORE = {"ssl.keystore.location": "/missing.jks", "ssl.keystore.password": "none", "ssl.key.password": "none"}


@pytest.fixture(scope="module")
def alone(kafka_version):
    """A broker of this module's own, to be killed and paused."""
    with EmbeddedKafka(kafka_version) as kafka:
        yield kafka


def undelivered(kafka: EmbeddedKafka, topic: str, *values: bytes, partitions: int = 1) -> list[int]:
    """Produce with acks=all, to the partitions in turn; the error code of each record that was refused."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "acks": "all"})
    codes: list[int] = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _: codes.append(error.code()) if error else None,
        )
    assert producer.flush(60) == 0
    return codes


def produce(kafka: EmbeddedKafka, topic: str, *values: bytes, partitions: int = 1) -> None:
    assert undelivered(kafka, topic, *values, partitions=partitions) == []


def values(kafka: EmbeddedKafka, topic: str) -> list[bytes]:
    return [bytes(message.value() or b"") for message in read_topic(kafka.bootstrap, topic, "read_committed")]


def transaction_version(kafka: EmbeddedKafka) -> int:
    """The finalized level as kafka-python's admin client sees it, 0 when there is none."""
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        _, newest = admin.describe_features().get("transaction.version", {}).get("finalized", (0, 0))
    finally:
        admin.close()
    return int(newest)


def test_a_topic_takes_records_and_gives_them_back(kafka, topic):
    name = topic("embedded", partitions=2)
    produce(kafka, name, b"one", b"two", b"three", partitions=2)
    assert sorted(values(kafka, name)) == [b"one", b"three", b"two"]
    assert name in kafka.topics()


def test_a_topic_is_not_created_by_asking_for_it(kafka):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert admin.list_topics("nobody-created-me", timeout=10).topics["nobody-created-me"].error is not None
    assert "nobody-created-me" not in kafka.topics()


def test_a_topics_config_reaches_the_broker(kafka, topic):
    name = topic("small", config={"max.message.bytes": 100})
    assert undelivered(kafka, name, b"x" * 1000) == [KafkaError.MSG_SIZE_TOO_LARGE]
    produce(kafka, name, b"x")


def test_a_deleted_topic_is_gone_and_may_be_created_again(kafka, topic):
    name = topic("deleted")
    produce(kafka, name, b"old")
    kafka.delete_topic(name)
    assert name not in kafka.topics()
    kafka.create_topic(name)
    assert values(kafka, name) == []


def test_a_topic_that_cannot_be_created_is_an_error_that_says_why(kafka, topic):
    name = topic("twice")
    with pytest.raises(ToolFailed, match=f"topic {name} could not be created: .*already exists"):
        kafka.create_topic(name)


def test_a_killed_broker_comes_back_on_the_same_port_with_its_data(alone):
    alone.create_topic("killed")
    produce(alone, "killed", b"kept")
    bootstrap, pid = alone.bootstrap, alone.pid()
    alone.kill()
    assert not alone.is_running()
    assert not psutil.pid_exists(pid)
    alone.start()
    assert alone.bootstrap == bootstrap
    assert values(alone, "killed") == [b"kept"]


def test_a_restarted_broker_has_its_data_and_shut_down_cleanly(alone):
    alone.create_topic("restarted")
    produce(alone, "restarted", b"kept")
    alone.restart()
    assert values(alone, "restarted") == [b"kept"]
    assert "shut down completed" in alone.log()


def test_a_paused_broker_is_silent_and_a_resumed_one_answers(alone):
    alone.create_topic("paused")
    alone.pause()
    assert psutil.Process(alone.pid()).status() == psutil.STATUS_STOPPED
    admin = AdminClient({"bootstrap.servers": alone.bootstrap, "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    alone.resume()
    alone.await_ready()
    produce(alone, "paused", b"kept")
    assert values(alone, "paused") == [b"kept"]


def test_a_paused_broker_can_be_stopped_and_killed(alone):
    alone.pause()
    alone.stop()
    alone.start()
    alone.pause()
    alone.kill()
    alone.start()


def test_a_transaction_commits_on_every_transaction_version(either_kafka):
    name = either_kafka.create_topic("transactional")
    producer = Producer(
        {"bootstrap.servers": either_kafka.bootstrap, "log_level": 0, "transactional.id": "embedded-transaction"}
    )
    producer.init_transactions(30)
    for value, end in ((b"dropped", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        end(30)
    assert values(either_kafka, name) == [b"kept"]


def test_the_release_decides_the_transaction_version(either_kafka):
    assert (transaction_version(either_kafka) == 2) == (release(either_kafka.version) >= (4, 0))


def test_a_given_directory_keeps_data_for_the_next_broker_and_the_transaction_version_can_be_chosen(tmp_path):
    with EmbeddedKafka(directory=tmp_path, transaction_version=1) as first:
        first.create_topic("kept")
        produce(first, "kept", b"kept")
        assert transaction_version(first) == 1
    with EmbeddedKafka(directory=tmp_path) as second:
        assert values(second, "kept") == [b"kept"]
        assert transaction_version(second) == 1


def test_once_three_brokers_are_started_each_of_them_knows_all(kafka_version):
    with EmbeddedKafka(kafka_version, brokers=3) as cluster:
        for node in cluster.nodes:
            host, port = cluster.bootstrap_of(INTERNAL, [node]).split(":")
            with Cluster(ClientOptions(bootstrap_servers=((host, int(port)),))) as asked:
                assert asked.nodes() == list(cluster.nodes)


@pytest.mark.slow
def test_three_brokers_replicate_and_survive_the_loss_of_any_one(kafka_version):
    def records(lost: int) -> list[bytes]:
        return [b"%d-%d" % (lost, partition) for partition in range(3)]

    with EmbeddedKafka(kafka_version, brokers=3) as cluster:
        cluster.create_topic("replicated", partitions=3)
        for lost in cluster.nodes:
            cluster.kill(lost)
            produce(cluster, "replicated", *records(lost), partitions=3)
            cluster.start(lost)
        assert sorted(values(cluster, "replicated")) == [record for lost in cluster.nodes for record in records(lost)]


def client(secured: SecuredKafka, protocol: str, **properties: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": secured.kafka.bootstrap_of(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": str(secured.certificates.ca),
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_by_every_mechanism_and_acls_decide_what_is_seen(secured, protocol, mechanism):
    if "acls" not in secured.kafka.topics():
        secured.kafka.create_topic("acls")
    for (name, password), seen in ((secured.allowed, True), (secured.denied, False)):
        admin = client(secured, protocol, sasl_mechanism=mechanism, sasl_username=name, sasl_password=password)
        assert ("acls" in admin.list_topics(timeout=20).topics) == seen


def test_a_wrong_password_is_refused(secured):
    admin = client(secured, "SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="wrong")
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_tls_needs_a_client_certificate_and_the_authority_that_signed_the_brokers(secured, tmp_path):
    keystore = str(secured.certificates.client_keystore)
    own = {"ssl_certificate_location": keystore, "ssl_key_location": keystore}
    assert client(secured, "SSL", **own).list_topics(timeout=20).brokers
    stranger = str(issue(tmp_path).ca)
    for wrong in ({}, own | {"ssl_ca_location": stranger}):
        with pytest.raises(KafkaException):
            client(secured, "SSL", **wrong).list_topics(timeout=2)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"config": {"log.retention.hours": "x"}}, r"Invalid value x for configuration log\.retention\.hours"),
        ({"listeners": {"SSL": NO_KEYSTORE}}, r"keystore /missing\.jks"),
    ],
    ids=["before it runs", "once it runs"],
)
def test_a_broker_that_does_not_start_shows_why(tmp_path, kafka_version, properties, why):
    with pytest.raises(ToolFailed, match=why):
        EmbeddedKafka(kafka_version, directory=tmp_path, **properties).start()


def test_a_port_that_is_taken_is_an_error_before_anything_starts(kafka):
    port = int(kafka.bootstrap.rpartition(":")[2])
    with pytest.raises(ToolFailed, match=f"port {port} is in use"):
        EmbeddedKafka(port=port)


def test_a_port_that_another_process_took_meanwhile_is_an_error_until_it_is_free_again(alone):
    alone.kill()
    port = int(alone.bootstrap.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ToolFailed, match=f"another process uses .* {port}"):
        alone.start()
    alone.start()
    assert alone.is_running()


def test_a_broker_is_not_ready_because_another_clusters_broker_answers_on_its_port(kafka, monkeypatch):
    """As of two that start at once: each has found the port free."""
    port = int(kafka.bootstrap.rpartition(":")[2])
    monkeypatch.setattr(embedded, "is_free", lambda _: True)
    with pytest.raises(ToolFailed, match=f"port {port} belongs to another cluster"), EmbeddedKafka(port=port):
        pass


def test_an_archive_of_classes_that_does_not_fit_is_not_used_and_does_no_harm(tmp_path, kafka_version, monkeypatch):
    archive = tmp_path / "other.jsa"
    archive.write_bytes(b"made by another Java")
    monkeypatch.setattr(jars, "class_archive", lambda _: archive)
    with EmbeddedKafka(kafka_version) as broker:
        broker.create_topic("any")
        assert "shared archive" not in broker.log()


@pytest.mark.slow  # two archives are half a minute, and `make test` makes others
def test_a_broker_uses_the_archive_of_its_classes(tmp_path, kafka_version, monkeypatch):
    monkeypatch.setattr(jars, "class_archive", lambda _: tmp_path / "broker.jsa")
    assert class_archive.make(kafka_version) == tmp_path / "broker.jsa"
    assert class_archive.make(kafka_version) == tmp_path / "broker.jsa", "anew"
    assert [file.name for file in tmp_path.iterdir()] == ["broker.jsa"]
    with EmbeddedKafka(kafka_version, jvm_options=(*JVM_OPTIONS, "-Xlog:class+load")) as broker:
        assert "kafka.server.KafkaConfig source: shared objects file (top)" in broker.log()


def test_a_temporary_directory_goes_and_a_given_one_stays(tmp_path):
    with EmbeddedKafka() as broker:
        directory, pid = broker.directory, broker.pid()
        assert directory.exists()
    assert not directory.exists()
    assert not psutil.pid_exists(pid)
    given = tmp_path / "given"
    with EmbeddedKafka(directory=given):
        pass
    assert (given / "node-1" / "broker.log").exists()


PARENT = """
import sys
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.kraft import INTERNAL
kafka = EmbeddedKafka(directory=sys.argv[1] if len(sys.argv) > 1 else None)
kafka.start()
print(kafka.pid(), kafka.directory, flush=True)
sys.stdin.read()
"""


def parent(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def announced(process: subprocess.Popen[str]) -> tuple[psutil.Process, Path]:
    assert process.stdout is not None
    pid, _, directory = process.stdout.readline().strip().partition(" ")
    return psutil.Process(int(pid)), Path(directory)


def test_a_parent_that_is_killed_leaves_no_broker(tmp_path):
    with parent(tmp_path) as process:
        broker, _ = announced(process)
        process.kill()
        broker.wait(timeout=20)


def test_a_parent_that_ends_without_stopping_its_broker_leaves_neither_broker_nor_files():
    with parent() as process:
        broker, directory = announced(process)
        assert directory.exists()
        process.communicate()
        broker.wait(timeout=20)
    assert process.returncode == 0
    assert not directory.exists()
