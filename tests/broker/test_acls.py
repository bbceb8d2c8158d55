"""What `preflight --print-acls` prints is enough, each right is needed, and a missing one names itself."""

from __future__ import annotations

import functools
import itertools
import os
import re
import subprocess
import time
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lab.jars import perf_tools_class_path
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.blocks import ROWS, BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings, target
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.errors import AuthenticationFailed, AuthorizationFailed, ConfigurationError, PreflightFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import digest
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.preflight import rights
from spark_kafka_eos.preflight.rights import Right
from spark_kafka_eos.preflight.run import examine, preflight
from spark_kafka_eos.reading.group_offsets import ConsumedOffsets
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.real_time.task import RealTimeTask, run
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.listener.progress import Questions
from spark_kafka_eos.transaction.commit import commit_batch, committer
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads
from tests.letters import headers_of
from tests.principals import add_user
from tests.producing import produce, transact
from tests.reading import await_stable

pytestmark = pytest.mark.broker

SOURCE, OUTPUT = "orders", "orders-clean"
numbers = itertools.count(1)


PLAIN = {"kafka.bootstrap.servers": "any:9092", "kafka.transactional.id": OUTPUT, "topic": OUTPUT}
RIGHTS = [*rights.of_source([SOURCE]), *rights.of_sink(sink_options(PLAIN))]
COMMITTED = Right("Describe", "group", OUTPUT)


@pytest.fixture(scope="module")
def kafka(secured):
    secured.kafka.create_topic(SOURCE, 2)
    if LEDGER_TOPIC not in secured.kafka.topics():
        secured.kafka.create_topic(LEDGER_TOPIC, 1, {"cleanup.policy": "compact"})
    produce(secured.kafka.bootstrap, SOURCE, [b"1", b"2", b"3"], timestamp=int(time.time() * 1000))
    return secured.kafka


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def protocol(request, monkeypatch):
    """Either protocol; a broker of the newer one takes both."""
    monkeypatch.setattr(Cluster, "transaction_version", lambda _: request.param)


@pytest.fixture
def output(kafka):
    """A new topic in the place of the page's; the transactional id and the groups go by the same name."""
    return kafka.create_topic(f"{OUTPUT}-{next(numbers)}", 2)


@pytest.fixture
def connection(kafka, output):
    """`connection(rights)`: the options of a new user with these of the page's rights."""

    def make(rights):
        add_user(kafka.bootstrap, output, "hunter2", [named(right, output) for right in rights])
        return {
            "kafka.bootstrap.servers": kafka.bootstrap_of("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.username": output,
            "kafka.sasl.password": "hunter2",
            "kafka.delivery.timeout.ms": "10000",
        }

    return make


def named(right, output):
    return right._replace(name=right.name.replace(OUTPUT, output))


def values(source):
    """All of the source's values, and the offsets they span."""
    with OffsetPlanner(source) as positions, Cluster(source.client) as cluster:
        start, end = positions.starting(), positions.ending()
        tasks = positions.tasks(start, end)
        return [value for task in tasks for rows in read(task, source, cluster) for value in rows["value"]], start, end


def copy(given, output, appended=lambda _: None, **more):
    """Read all of the source, write it in one batch as the sink does; how many records there were. `appended` gets the
    connection to the cluster once they are appended.
    """
    sink = sink_options(given | {"kafka.transactional.id": output, "topic": output} | more)
    found, start, end = values(source_options(given | {"subscribe": SOURCE}, streaming=False))
    batch = MicroBatch(query_id="q", batch_id=0, digest=digest({}), sources=reads(start, end))
    partition = TopicPartition(output, 0)

    def write(identity):
        block = encode(pa.nulls(len(found), pa.binary()), pa.array(found, pa.binary()), int(time.time() * 1000))
        acks = append(cluster, identity, [(partition, len(found), block)], partitions={partition})
        appended(cluster)
        return Appended(partitions=1, records=sum(ack.records for ack in acks), bytes=len(block))

    with Cluster(sink.client) as cluster:
        preflight(cluster, sink)
        transaction = committer(sink, cluster, decide_micro_batch(sink))
        return commit_batch(transaction, batch, write, max_attempts=1, choice=BY_DRIVER).records


def written(kafka, topic):
    return sorted(message.value() for message in read_topic(kafka.bootstrap, topic, "read_committed"))


def names(error, right):
    """Whether the error asks for the right, or for what looking its resource up takes, which the right includes."""
    lookup = f"Grant Describe on {right.resource} '{right.name}' to this principal; .*includes it"
    return f"Grant {right} to this principal" in str(error) or re.search(lookup, str(error))


def test_the_printed_commands_are_enough(kafka, connection, output, tmp_path):
    """As an administrator would run them: by Kafka's own tool."""
    given = connection([])
    arguments = ["--bootstrap-servers", kafka.bootstrap, "--transactional-id", output, "--topic", output]
    arguments += ["--source", SOURCE, "--principal", f"User:{output}", "--print-acls"]
    script = CliRunner().invoke(app, ["preflight", *arguments]).stdout
    (tmp_path / "admin.properties").touch()
    (tmp_path / "kafka-acls.sh").write_text(
        f'#!/bin/sh\nexec {java()} -cp "{perf_tools_class_path()}" org.apache.kafka.tools.AclCommand "$@"\n'
    )
    (tmp_path / "kafka-acls.sh").chmod(0o755)
    required, optional = script.split("\n\n")
    assert "# Required" in required and "# Optional" in optional
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-e"], check=True, input=required, cwd=tmp_path, env={**os.environ, "PATH": path}, text=True)
    assert copy(given, output) == 3
    await_stable(kafka.bootstrap, output, behind=(0, 0))
    assert written(kafka, output) == [b"1", b"2", b"3"]


def test_the_required_rights_are_enough(kafka, connection, output, protocol):
    assert copy(connection(RIGHTS), output) == 3
    await_stable(kafka.bootstrap, output, behind=(0, 0))
    assert written(kafka, output) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_without_any_of_them_nothing_is_committed_and_the_error_names_it(kafka, connection, output, protocol, right):
    given = connection([other for other in RIGHTS if other != right])
    with pytest.raises(AuthorizationFailed, match=r"Nothing was committed\.") as caught:
        copy(given, output, preflight="false")
    assert names(caught.value, named(right, output)), caught.value
    assert written(kafka, output) == []


SINK_ONLY = [right for right in RIGHTS if right.name != SOURCE]


def test_a_login_that_is_refused_in_the_middle_of_a_batch_ends_it_and_nothing_of_it_is_committed(
    kafka, connection, output
):
    """The password was changed, and a broker had closed the connections."""
    given = connection(RIGHTS)

    def change_password(cluster):
        add_user(kafka.bootstrap, output, "another", [])
        cluster.close()

    with pytest.raises(AuthenticationFailed, match="Nothing was committed") as caught:
        copy(given, output, change_password)
    assert caught.value.committed == "nothing"
    assert written(kafka, output) == []
    assert copy(given | {"kafka.sasl.password": "another"}, output) == 3
    assert written(kafka, output) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("right", SINK_ONLY, ids=str)
def test_the_preflight_names_it_before_anything_is_begun(kafka, connection, output, right):
    given = connection([other for other in RIGHTS if other != right])
    with pytest.raises(PreflightFailed, match="found 1 error:") as caught:
        copy(given, output)
    lacking = named(right, output)
    assert f"{lacking.resource} {lacking.name}: " in str(caught.value)
    assert f"Grant this principal {lacking.operation} on it" in str(caught.value)
    assert list(read_topic(kafka.bootstrap, output, "read_uncommitted")) == []


def test_a_row_that_names_a_topic_without_a_right_fails_the_batch_and_is_no_dead_letter(kafka, connection, output):
    secret, dead = (kafka.create_topic(f"{output}-{name}") for name in ("secret", "dead"))
    given = connection([*RIGHTS, Right("Write", "topic", f"{OUTPUT}-dead")])
    options = sink_options(given | {"kafka.transactional.id": output, "deadLetterTopic": dead})
    names = ("key", "value", "topic")
    rows = pa.RecordBatch.from_pydict(
        {"key": [None], "value": [b"v"], "topic": [secret]}, schema=pa.schema([(name, ROWS[name]) for name in names])
    )
    with Cluster(options.client) as cluster:
        settings = encode_settings(options, None, cluster)
        encoder = BlockEncoder(settings, 0, lambda name: target(cluster, name, options.ledger_topic), lambda: 1)
        with pytest.raises(AuthorizationFailed, match=f"Grant Describe on topic '{secret}'"):
            list(encoder.add(rows))
    assert encoder.dead_letters == {}


def test_the_ledgers_topic_is_created_if_permitted_and_otherwise_the_error_says_how(
    kafka, connection, output, protocol
):
    books = f"books-{next(numbers)}"
    own = [right._replace(name=books) if right.name == LEDGER_TOPIC else right for right in RIGHTS]
    given = connection(own)
    how = f"kafka-topics.sh --create --topic {books} .*grant Create on it"
    with pytest.raises(AuthorizationFailed, match=how):
        copy(given, output, ledgerTopic=books, preflight="false")
    with pytest.raises(PreflightFailed, match=f"(?s)found 1 error:.*TOPIC_AUTHORIZATION_FAILED.*{how}"):
        copy(given, output, ledgerTopic=books)
    assert books not in kafka.topics()
    assert written(kafka, output) == []
    assert copy(connection([*own, Right("Create", "topic", books)]), output, ledgerTopic=books) == 3
    await_stable(kafka.bootstrap, output, behind=(0, 0))
    assert written(kafka, output) == [b"1", b"2", b"3"]


def test_a_source_that_starts_by_the_ledger_needs_read_on_its_topic(connection, output):
    copy(connection(RIGHTS), output)
    rights = [Right("Read", "topic", SOURCE), Right("Read", "topic", LEDGER_TOPIC)]

    def start(rights):
        options = {"subscribe": SOURCE, "startingOffsets": "committed", "sink.kafka.transactional.id": output}
        return values(source_options(connection(rights) | options, streaming=False))[0]

    assert start(rights) == []  # all of it is committed


def test_a_source_needs_read_on_its_topics_and_describe_on_the_group_it_starts_from(connection, output):
    rights = [Right("Read", "topic", SOURCE), COMMITTED]

    def start(rights):
        options = {"subscribe": SOURCE, "startingOffsets": "committed-or-earliest", "kafka.group.id": output}
        return values(source_options(connection(rights) | options, streaming=False))[0]

    with pytest.raises(AuthorizationFailed) as caught:
        start(rights[:1])
    assert names(caught.value, named(COMMITTED, output)), caught.value
    assert len(start(rights)) == 3


def test_a_source_that_commits_offsets_needs_read_on_their_group(kafka, connection, output):
    rights = [Right("Read", "topic", SOURCE), Right("Read", "group", OUTPUT)]

    def commit(rights):
        options = {"subscribe": SOURCE, "commitOffsets": "true", "kafka.group.id": output}
        with closing(ConsumedOffsets(source_options(connection(rights) | options))) as consumed:
            consumed.done({SOURCE: {"0": 1, "1": 0}})

    with pytest.raises(AuthorizationFailed) as caught:
        commit(rights[:1])
    assert names(caught.value, named(rights[1], output)), caught.value
    commit(rights)
    assert group_offsets(kafka.bootstrap, output, SOURCE) == {0: 1, 1: 0}


def test_at_least_once_needs_write_on_the_output_and_with_a_group_read_on_that(kafka, connection, output):
    relaxed = {"deliveryGuarantee": "at-least-once", "kafka.transactional.id": None, "preflight": "false"}
    source, target, group = (
        Right("Read", "topic", SOURCE),
        Right("Write", "topic", OUTPUT),
        Right("Read", "group", OUTPUT),
    )
    with pytest.raises(AuthorizationFailed, match="Grant Write on any topic"):
        copy(connection([source]), output, **relaxed)
    assert copy(connection([source, target]), output, **relaxed) == 3
    with pytest.raises(AuthorizationFailed) as caught:
        copy(connection([source, target]), output, **relaxed | {"kafka.group.id": output})
    assert names(caught.value, named(group, output)), caught.value
    assert copy(connection([source, target, group]), output, **relaxed | {"kafka.group.id": output}) == 3


@pytest.fixture
def ask(kafka, output, tmp_path):
    """`ask(rights, *words)`: exit code, output and errors of `kafka-eos`, run by a new user with these rights."""

    def run(rights, *words):
        user = f"{output}-{next(numbers)}"
        add_user(kafka.bootstrap, user, "hunter2", [named(right, output) for right in rights])
        properties = tmp_path / f"{user}.properties"
        properties.write_text(
            f"bootstrap.servers={kafka.bootstrap_of('SASL_PLAINTEXT')}\nsecurity.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule "
            f'required username="{user}" password="hunter2";\n'
        )
        done = CliRunner().invoke(app, [*words, "--properties", str(properties)])
        return done.exit_code, done.stdout, done.stderr

    return run


def test_the_exporter_needs_the_rights_that_the_page_names(kafka, connection, output, ask):
    assert copy(connection(RIGHTS), output) == 3
    await_stable(kafka.bootstrap, output, behind=(0, 0))

    def of_the_query(text):
        return {line for line in text.splitlines() if f'"{output}"' in line and "seconds" not in line}

    words = ["exporter", "--once", "--topic", output]
    everything = CliRunner().invoke(app, [*words, "--bootstrap-servers", kafka.bootstrap]).stdout
    rights = [Right("Read", "topic", SOURCE), Right("Read", "topic", OUTPUT), Right("Read", "topic", LEDGER_TOPIC)]
    rights += [Right("Describe", "transactional id", "*"), Right("Describe", "topic", "__transaction_state")]
    exit_code, shown, errors = ask(rights, *words)
    assert exit_code == 0, errors
    assert "kafka_eos_cluster_up 1.0" in shown
    assert of_the_query(shown) == of_the_query(everything) != set()


def test_the_progress_listener_needs_no_right_but_the_sources_except_for_the_name_of_what_holds_it(kafka, connection):
    topic = kafka.create_topic(f"held-{next(numbers)}", 1)
    produce(kafka.bootstrap, topic, [b"0"], timestamp=1_000)
    holder = transact(kafka.bootstrap, topic, [b"1"], "leave open", transactional_id=f"{topic}-open")
    partition = TopicPartition(topic, 0)

    def held(*more):
        given = connection([Right("Read", "topic", topic), *more]) | {"subscribe": topic, "metricsPort": "0"}
        with closing(Questions(source_options(given))) as questions:
            assert [*questions.partitions()] == [partition]
            assert questions.cluster_id()
            assert questions.log_ends([partition])[partition].lag == 1
            assert questions.first_times({partition: 0}, {partition: 1}) == {partition: 1_000}
            return questions.oldest_open([partition], int(time.time() * 1e3))[partition]

    try:
        nameless = held()
        named = held(Right("Describe", "transactional id", f"{topic}-open"))
    finally:
        holder.abort_transaction(30)
    assert (nameless.start_offset, nameless.producer_id) == (named.start_offset, named.producer_id)
    assert (nameless.transactional_id, nameless.state, nameless.open_ms) == (None, None, None)
    assert (named.transactional_id, named.state) == (f"{topic}-open", "Ongoing")
    assert named.open_ms is not None


def test_a_replay_needs_the_rights_that_the_page_names(kafka, output, ask):
    dead = kafka.create_topic(f"letters-{next(numbers)}", 1)
    letter = DeadLetter(cause=Cause.UNDECODABLE, topic=output, partition=1, offset=7, query_id="q")
    produce(kafka.bootstrap, dead, [b"bad"], headers=headers_of(letter))
    rights = [Right("Read", "topic", dead), Right("Write", "topic", OUTPUT)]
    rights += [Right("Write", "transactional id", f"{dead}.replay*"), Right("Read", "group", f"{dead}.replay*")]
    rights += [Right("Read", "topic", LEDGER_TOPIC), Right("Write", "topic", LEDGER_TOPIC)]
    words = ["dead-letters", "replay", dead, "--yes", "--destination", output]
    exit_code, _, errors = ask([right for right in rights if right.resource != "group"], *words)
    assert exit_code == 3 and f"group {dead}.replay.undecodable.0: GROUP_AUTHORIZATION_FAILED" in errors, errors
    assert written(kafka, output) == []
    exit_code, shown, errors = ask(rights, *words)
    assert exit_code == 0, shown + errors
    await_stable(kafka.bootstrap, output, behind=(0, 0))
    assert written(kafka, output) == [b"bad"]


# -- in real time

SETTINGS = Right("DescribeConfigs", "cluster", "kafka-cluster")
IN_REAL_TIME = [*rights.of_source([SOURCE]), *rights.of_sink(sink_options(PLAIN), real_time=True)]


def copy_in_real_time(given, output, **more):
    """Read all of the source in two buckets, and write it in their transactions; how many records there were."""
    options = sink_options(given | {"kafka.transactional.id": output, "topic": output} | more)
    source = source_options(given | {"subscribe": SOURCE, "startingOffsets": "earliest"}, streaming=True)
    with OffsetPlanner(source) as positions:
        start, end = positions.starting(), positions.ending()
    batch = MicroBatch(query_id="q", batch_id=0, digest=digest({}), sources=reads(start, end), run_id="run")
    with Cluster(options.client) as cluster:
        preflight(cluster, options, examine=functools.partial(examine, buckets=2))
        transaction = SharedTransaction(options, cluster, decide_in_real_time(options))
        driver = RealTimeDriver(options, cluster, transaction, fail_on_data_loss=True)
        driver.check(batch)
        task = RealTimeTask(
            buckets=tuple(driver.start(batch, 2, to_end=True)),
            source=replace(source, columns=("key", "value")),
            client=options.client,
            settings=encode_settings(options, output, cluster),
            group_id=options.group_id,
            mark=source_mark(output),
            seconds=60,
        )
        report = run(task, lambda rows, _: rows)
    if report.error is not None:
        raise report.error
    return report.records


def test_in_real_time_the_required_rights_are_enough(kafka, connection, output):
    assert copy_in_real_time(connection(IN_REAL_TIME), output) == 3
    await_stable(kafka.bootstrap, output, behind=(0, 0))
    assert written(kafka, output) == [b"1", b"2", b"3"]


def test_in_real_time_the_older_protocol_also_needs_to_see_whether_brokers_verify(
    kafka, connection, output, monkeypatch
):
    monkeypatch.setattr(Cluster, "transaction_version", lambda _: 1)
    with pytest.raises(ConfigurationError, match="CLUSTER_AUTHORIZATION_FAILED.* Grant DescribeConfigs on Cluster to"):
        copy_in_real_time(connection(IN_REAL_TIME), output)
    assert copy_in_real_time(connection([*IN_REAL_TIME, SETTINGS]), output) == 3


@pytest.mark.parametrize("right", IN_REAL_TIME, ids=str)
def test_in_real_time_nothing_is_committed_without_any_of_them_and_the_error_names_it(kafka, connection, output, right):
    given = connection([other for other in IN_REAL_TIME if other != right])
    with pytest.raises(AuthorizationFailed) as caught:
        copy_in_real_time(given, output, preflight="false")
    missing = named(right, output)
    named_so = missing if right.pattern == "literal" else Right("Write", missing.resource, f"{missing.name}0")
    assert names(caught.value, named_so), caught.value
    assert written(kafka, output) == []


def test_the_preflight_of_a_query_in_real_time_names_the_right_on_all_of_its_buckets(kafka, connection, output):
    given = connection(RIGHTS)
    with pytest.raises(PreflightFailed) as caught:
        copy_in_real_time(given, output)
    bucket_right = f"Grant this principal Write on prefixed transactional id '{output}.bucket-', for all buckets"
    assert bucket_right in str(caught.value)
    assert "found 1 error" in str(caught.value)


def test_the_commands_that_are_printed_for_a_query_in_real_time_grant_the_prefix(output, kafka):
    arguments = ["--bootstrap-servers", kafka.bootstrap, "--transactional-id", output, "--topic", output]
    arguments += ["--source", SOURCE, "--principal", f"User:{output}", "--print-acls", "--real-time"]
    script = CliRunner().invoke(app, ["preflight", *arguments]).stdout
    prefixed = f"acls --resource-pattern-type prefixed --operation Write --transactional-id {output}.bucket-"
    assert prefixed in script.splitlines()


def test_the_exporter_needs_no_right_on_the_group_for_the_lag_of_a_query_in_real_time(connection, output, ask):
    copy_in_real_time(connection(IN_REAL_TIME), output)
    seen = [Right("Read", "topic", name) for name in (SOURCE, OUTPUT, LEDGER_TOPIC)]
    lag = f'kafka_eos_cluster_lag_offsets{{topic="{SOURCE}",transactional_id="{output}"}} 0.0'
    exit_code, text, errors = ask(seen, "exporter", "--once", "--topic", output)
    assert exit_code == 0, errors
    assert lag in text, text
