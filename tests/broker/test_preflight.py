"""The preflight on real brokers: what it reads is so, and what it warns of would happen."""

from __future__ import annotations

import itertools
import json
import socket
import time

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from typer.testing import CliRunner

from spark_kafka_eos.errors import BrokerError, PreflightFailed
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import GroupFacts
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.rights import Right
from spark_kafka_eos.preflight.run import examine, preflight
from spark_kafka_eos.tools.cli import main as cli
from tests.broker.conftest import options_of
from tests.conftest import topic_factory
from tests.coordinating import TransactionCoordinator
from tests.copying import Copy
from tests.principals import add_user
from tests.producing import produce
from tests.streams_group import join_streams_group

pytestmark = pytest.mark.broker


@pytest.fixture
def bootstrap(either_kafka):
    return either_kafka.bootstrap


@pytest.fixture
def topic(either_kafka):
    return topic_factory(either_kafka)


numbers = itertools.count(1)


@pytest.fixture
def name():
    """A transactional id that nobody else uses."""
    return f"preflight-{next(numbers)}"


@pytest.fixture
def sink(bootstrap, name):
    """`sink(topic, **options)`: options of a sink on `kafka`."""

    def make(topic, **options):
        return sink_options(
            {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": topic} | options
        )

    return make


def wrong(options):
    """What is not ok; a single replica and the older protocol are the nature of these brokers."""
    with Cluster(options.client) as cluster:
        found = [f for f in examine(cluster, options) if f.severity is not Severity.OK]
    return [f for f in found if f.found != "replication factor 1" and f.subject != "transaction.version"]


def only_error(options):
    (finding,) = wrong(options)
    assert finding.severity is Severity.ERROR
    return finding


def test_nothing_is_wrong_with_a_new_query(sink, topic):
    assert wrong(sink(topic("out", 3))) == []


@pytest.mark.parametrize(("retention", "refused"), [("86400000", True), ("-1", False)])
def test_a_ledger_topic_that_is_compacted_and_deletes_is_refused_unless_it_keeps_everything(
    either_kafka, sink, topic, name, retention, refused
):
    settings = {"cleanup.policy": "compact,delete", "retention.ms": retention, "retention.bytes": "-1"}
    books = either_kafka.create_topic(f"{name}-books", 1, settings)
    options = sink(topic("out"), ledgerTopic=books)
    if not refused:
        assert wrong(options) == []
        return
    assert (
        only_error(options).found == f"cleanup.policy is compact,delete (retention.ms {retention}, retention.bytes -1)"
    )
    with (
        Cluster(options.client) as cluster,
        pytest.raises(PreflightFailed, match="Retention would delete ledger entries"),
    ):
        preflight(cluster, options)


def test_a_single_replica_is_a_warning_for_outputs_and_internal_topics_alike_and_so_is_the_older_protocol(sink, topic):
    options = sink(topic("out"), ledgerTopic="none-yet")
    with Cluster(options.client) as cluster:
        warnings = {f.subject: f.found for f in examine(cluster, options) if f.severity is Severity.WARNING}
        older = cluster.transaction_version() < 2
    replicas = f"topics {options.topic}, __consumer_offsets, __transaction_state"
    assert warnings.pop(replicas) == "replication factor 1"
    assert list(warnings) == ["transaction.version"] * older


def test_a_timeout_above_the_brokers_maximum_stops_the_query_as_the_broker_would(sink, topic):
    options = sink(topic("out"), **{"kafka.transaction.timeout.ms": "900001"})
    assert "900000" in only_error(options).found
    with Cluster(options.client) as cluster, pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT"):
        TransactionCoordinator(cluster, options.transactional_id, options.transaction_timeout_ms).init_producer_id()


def test_a_group_to_which_another_querys_transactions_commit_stops_the_query_until_the_operator_takes_it(
    bootstrap, sink, topic
):
    source = topic("in", 2)
    for partition in (0, 1):
        produce(bootstrap, source, [b"x"] * 10, partition=partition)
    with Cluster(options_of(bootstrap)) as cluster:
        other = Copy(bootstrap, cluster, source, topic("other-out", 2))
        other.run(0, 0, 10)
    group, out = other.options.group_id, topic("out")
    found = only_error(sink(out, **{"kafka.group.id": group}))
    assert found.subject == f"group {group}"
    assert f"resolve=take-group:{other.options.transactional_id}" in found.action
    assert wrong(sink(out, **{"kafka.group.id": group}, resolve=f"take-group:{other.options.transactional_id}")) == []


@pytest.mark.parametrize(  # the group protocol of KIP-848 is ready since Kafka 4.0
    ("either_kafka", "protocol"),
    [("kafka", "classic"), ("kafka39", "classic"), ("kafka", "consumer")],
    indirect=["either_kafka"],
    ids=["TV2-classic", "TV1-classic", "TV2-consumer"],
)
def test_a_group_with_a_live_consumer_stops_the_query_until_the_consumer_leaves(bootstrap, sink, topic, name, protocol):
    out = topic("out")
    options = sink(out, **{"kafka.group.id": f"{name}-group"})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{name}-group", "group.protocol": protocol, "client.id": "app"}
    )
    joined = []
    consumer.subscribe([out], on_assign=lambda _, partitions: joined.append(partitions))
    try:
        for _ in range(60):
            consumer.poll(0.5)
            if joined:
                break
        found = only_error(options)
    finally:
        consumer.close()
    assert found.subject == f"group {name}-group"
    assert found.found == (
        "has active members: app at 127.0.0.1"
        if protocol == "classic"
        else "has active members (Stable, type consumer)"
    )
    assert wrong(options) == []


def test_min_insync_replicas_above_the_replicas_stops_the_query(sink, topic):
    found = only_error(sink(topic("out", 2, {"min.insync.replicas": 2})))
    assert found.found == "min.insync.replicas is 2, but the replication factor is 1"


def test_a_topic_that_compresses_again_is_a_warning(sink, topic):
    (found,) = wrong(sink(topic("out", 1, {"compression.type": "gzip"})))
    assert found.found == "compression.type is gzip, but the sink sends none"
    assert wrong(sink(topic("out", 1, {"compression.type": "gzip"}), **{"kafka.compression.type": "gzip"})) == []


@pytest.mark.parametrize("either_kafka", ["kafka39"], indirect=True, ids=["TV1"])  # Kafka 4 has no such setting
def test_an_old_message_format_that_brokers_ignore_is_not_wrong(sink, topic):
    options = sink(topic("out", 1, {"message.format.version": "0.10.2"}))
    assert wrong(options) == []
    with Cluster(options.client) as cluster:
        (found,) = (found for found in examine(cluster, options) if found.subject == "message format")
    assert found.found.startswith("2, as inter.broker.protocol.version is 3.")


def test_an_unknown_topic_stops_the_query(sink, name):
    assert only_error(sink(f"{name}-nowhere")).found == "does not exist"


def test_a_transaction_left_open_is_a_warning_until_it_is_ended(bootstrap, sink, topic, name):
    options = sink(topic("out"))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 2})
    producer.init_transactions(30)
    assert wrong(options) == []
    producer.begin_transaction()
    producer.produce(options.topic, b"left behind")
    assert producer.flush(30) == 0
    (found,) = wrong(options)
    assert (found.subject, found.severity) == (f"transactional id {name}", Severity.WARNING)
    assert "has had an open transaction for" in found.found
    producer.abort_transaction(30)
    assert wrong(options) == []


@pytest.fixture
def new_broker(kafka):
    """`kafka` alone: brokers before have neither share groups nor streams groups."""
    return kafka.bootstrap


def is_share_group(cluster, name):
    facts = describe.group(cluster, name)
    return isinstance(facts, GroupFacts) and facts.type == "share"


def test_a_share_group_is_of_another_type_and_takes_no_offsets(new_broker, name):
    options = sink_options({"kafka.bootstrap.servers": new_broker, "kafka.transactional.id": name, "topic": "any"})
    consumer = ShareConsumer({"bootstrap.servers": new_broker, "group.id": name, "log_level": 2})
    consumer.subscribe(["any-topic"])
    with Cluster(options.client) as cluster:
        deadline = time.monotonic() + 60
        while not is_share_group(cluster, name):
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        (finding,) = [found for found in examine(cluster, options) if found.subject == f"group {name}"]
        assert (
            finding.severity is Severity.ERROR and finding.found == "is a share group (KIP-932), not a consumer group"
        )
        consumer.close()
        (finding,) = [found for found in examine(cluster, options) if found.subject == f"group {name}"]
        assert finding.severity is Severity.ERROR, "also without members"
        group, offsets = (
            GroupCoordinator(cluster, name),
            {TopicPartition("__consumer_offsets", 0): OffsetAndMetadata(offset=1)},
        )
        coordinator = TransactionCoordinator(cluster, name, 60_000)
        identity = coordinator.init_producer_id()
        coordinator.add_offsets(identity, name)
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND.*another type, such as a share group") as error:
            group.commit_in_transaction(identity, offsets, transaction_version=coordinator.transaction_version)
        assert "member" not in str(error.value)
        coordinator.end(identity, commit=False)


def test_a_streams_group_is_of_another_type(new_broker, name):
    options = sink_options({"kafka.bootstrap.servers": new_broker, "kafka.transactional.id": name, "topic": "any"})
    join_streams_group(new_broker, name)
    with Cluster(options.client) as cluster:
        (finding,) = [found for found in examine(cluster, options) if found.subject == f"group {name}"]
    assert finding.severity is Severity.ERROR and finding.found == "is a streams group (KIP-1071), not a consumer group"


def test_all_errors_come_in_one_exception_and_nothing_was_begun(sink, topic):
    out = topic("out", 1, {"min.insync.replicas": 2})
    options = sink(out, **{"kafka.transaction.timeout.ms": "900001"})
    with Cluster(options.client) as cluster:
        with pytest.raises(PreflightFailed, match="found 2 errors") as caught:
            preflight(cluster, options)
        assert "Nothing was committed." in str(caught.value)
    assert "transaction.timeout.ms" in str(caught.value)
    assert {found.subject for found in wrong(sink(out))} == {f"topic {out}"}  # the transactional id is still unused


def test_without_a_transaction_only_topics_are_looked_at(bootstrap, topic):
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic("out"), "deliveryGuarantee": "at-least-once"}
    assert wrong(sink_options(options)) == []


def test_what_the_query_may_not_do_is_an_error_and_what_only_the_preflight_may_not_do_a_warning(secured, name):
    out = secured.kafka.create_topic(name, 1)
    if LEDGER_TOPIC not in secured.kafka.topics():
        secured.kafka.create_topic(LEDGER_TOPIC, 1, {"cleanup.policy": "compact"})
    options = sink_options(
        {
            "kafka.bootstrap.servers": secured.kafka.bootstrap_of("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.username": name,
            "kafka.sasl.password": "secret",
            "kafka.transactional.id": name,
            "topic": out,
        }
    )

    def errors(*rights):
        add_user(secured.kafka.bootstrap, name, "secret", rights)
        return {found.subject: found.action for found in wrong(options) if found.severity is Severity.ERROR}

    assert errors() == {
        f"transactional id {name}": "Grant this principal Write on it",
        f"group {name}": "Grant this principal Read on it",
        f"group {name}.ledger": "Grant this principal Read on it",
        f"topic {out}": "Grant this principal Write on it",
        "topic kafka-eos-ledger": "Grant this principal Write and Read on it",
    }
    own = (
        Right("Write", "transactional id", name),
        Right("Read", "group", name),
        Right("Read", "group", f"{name}.ledger"),
    )
    assert errors(*own, Right("Write", "topic", out), Right("Write", "topic", LEDGER_TOPIC)) == {
        "topic kafka-eos-ledger": "Grant this principal Read on it"
    }
    assert errors(Right("Read", "topic", LEDGER_TOPIC)) == {}
    assert {found.action for found in wrong(options)} == {
        "Grant this principal DescribeConfigs on Cluster",
        "Grant this principal DescribeConfigs on Topic",
        "Grant this principal Describe and DescribeConfigs on Topic",
    }
    with Cluster(options.client) as cluster:
        preflight(cluster, options)  # warnings stop nothing


# -- the command


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["preflight", *arguments])


def test_the_command_shows_every_check_and_ends_well(bootstrap, topic, name):
    done = run("--bootstrap-servers", bootstrap, "--transactional-id", name, "--topic", topic("out"))
    assert done.exit_code == 0, done.output
    assert "transaction.version" in done.stdout
    assert "the query would start." in done.stdout
    assert "0 errors, " in done.stdout


def test_the_command_ends_with_1_when_there_are_errors(bootstrap, topic, name, tmp_path):
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers={bootstrap}\ntransaction.timeout.ms=900001\n")
    one, two = topic("out"), topic("out", 1, {"min.insync.replicas": 2})
    topics = ["--output-topic", one, "--output-topic", two]
    done = run("--properties", str(properties), "--transactional-id", name, *topics)
    assert done.exit_code == 1
    assert "the query would not start." in done.stdout
    assert "2 errors, " in done.stdout
    done = run("--properties", str(properties), "--option", f"kafka.transactional.id={name}", *topics)
    assert done.exit_code == 1


def test_the_command_checks_the_topics_that_the_query_reads(bootstrap, topic, name):
    given = ["--bootstrap-servers", bootstrap, "--transactional-id", name, "--topic", topic("out")]
    read = topic("in", 3)
    done = run(*given, "--source", read, "--source", "nowhere", "--json")
    assert done.exit_code == 1, done.output
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found[f"source topic {read}"]["found"] == "3 partitions"
    assert found["source topic nowhere"]["found"] == "does not exist"
    assert found["source topic nowhere"]["severity"] == "error"


@pytest.mark.parametrize("loop", ["output", "dead letters", "ledger"])
def test_the_command_refuses_what_reads_its_own_topics_on_the_same_cluster(
    kafka, kafka39, bootstrap, topic, name, loop
):
    out, dead = topic("out"), topic("dead")
    here, elsewhere = (kafka, kafka39) if bootstrap == kafka.bootstrap else (kafka39, kafka)
    for broker in (here, elsewhere):
        with Cluster(options_of(broker.bootstrap)) as cluster:
            LedgerTopic(cluster, LEDGER_TOPIC, name).ensure()
    read = {"output": out, "dead letters": dead, "ledger": LEDGER_TOPIC}[loop]
    given = ["--bootstrap-servers", bootstrap, "--transactional-id", name, "--topic", out, "--source", read]
    given += ["--option", f"deadLetterTopic={dead}"]
    for more in ([], ["--source-bootstrap-servers", bootstrap]):
        done = run(*given, *more)
        assert done.exit_code == 1, done.output
        assert "the query reads" in done.stdout and "1 error, " in done.stdout
    assert run(*given, "--option", "allowLoop=true").exit_code == 0
    if read not in elsewhere.topics():
        elsewhere.create_topic(read, 1)
    done = run(*given, "--source-bootstrap-servers", elsewhere.bootstrap)
    assert done.exit_code == 0, done.output


def test_an_unreachable_broker_is_reported_within_the_given_time():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(
            *("--bootstrap-servers", where, "--transactional-id", "t", "--topic", "t"),
            *("--option", "kafka.request.timeout.ms=300"),
        )
    assert done.exit_code == 3
    assert where in done.stderr
    assert "committed" not in done.stderr
