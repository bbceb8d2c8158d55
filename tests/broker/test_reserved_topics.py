"""Only the ledger writes the ledger: each way to a topic of records is closed to an entry that somebody else forges."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.append_task import append_attempt
from spark_kafka_eos.appending.blocks import ROWS, Block, BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings, target
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.dead_letters.signature import MAC, signature
from spark_kafka_eos.errors import ConfigurationError, InvalidRow
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger.entry import LedgerEntry, digest
from spark_kafka_eos.ledger.entry_format import encode_record
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.replay.plan import MOST_STREAMS
from tests.coordinating import TransactionCoordinator
from tests.letters import headers_of
from tests.producing import produce
from tests.reading import read_committed

pytestmark = pytest.mark.broker

_numbers = itertools.count(1)
# The client refuses it before a request that differs by protocol.
ONE_PROTOCOL = pytest.mark.parametrize("either_kafka", ["kafka"], ids=["TV2"], indirect=True)
FORGED = encode_record(LedgerEntry(query_id="victim's", batch_id=7, digest=digest("range"), serial=9))
OWN = "books-of-the-forger"


@pytest.fixture
def victim(cluster):
    """Has no entry yet, so a forged one would be its last."""
    name = f"victim-{next(_numbers)}"
    for topic in (LEDGER_TOPIC, OWN):
        LedgerTopic(cluster, topic, name).ensure()
    yield name
    assert [last_entry(cluster, topic, name) for topic in (LEDGER_TOPIC, OWN)] == [None, None]


@pytest.fixture
def forged(victim):
    """A block with the entry, as a task has encoded it."""
    return lambda: encode(pa.array([victim.encode()], pa.binary()), pa.array([FORGED], pa.binary()), 1)


def row(victim, topic):
    names = ("key", "value", "topic", "partition")
    values = [[victim.encode()], [FORGED], [topic], [0]]
    return pa.RecordBatch.from_arrays(
        [pa.array(each, ROWS[name]) for each, name in zip(values, names, strict=True)], names=list(names)
    )


@pytest.mark.parametrize("topic", [LEDGER_TOPIC, OWN, "__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("way", ["transaction", "idempotent", "task"])
def test_nothing_is_appended_to_it_whoever_encoded_the_block(either_kafka, cluster, forged, way, topic):
    name = f"forger-{next(_numbers)}"
    out = either_kafka.create_topic(f"{name}-out")
    coordinator = TransactionCoordinator(cluster, name, 60_000)
    identity = idempotent_identity(cluster) if way == "idempotent" else coordinator.init_producer_id()
    if way != "idempotent":
        append(cluster, identity, [(TopicPartition(out, 0), 1, forged())])  # a record that may be there
    partition = TopicPartition(topic, 0)
    if way == "task":
        blocks = [Block(partition=partition, task=0, number=0, records=1, data=forged())]
        report = append_attempt(
            cluster,
            identity,
            blocks,
            stage_id=0,
            slot=0,
            attempt=0,
            batch_id=0,
            ledger_topic=OWN,
        )
        assert isinstance(report.error, InvalidRow) and topic in report.error.what
    else:
        with pytest.raises(InvalidRow, match=f"{topic}.*was not sent"):
            append(cluster, identity, [(partition, 1, forged())], ledger_topic=OWN)
    if way != "idempotent":
        coordinator.end(identity, commit=True)  # even so, nothing else is there


@ONE_PROTOCOL
@pytest.mark.parametrize("topic", [LEDGER_TOPIC, OWN, "__consumer_offsets"])
def test_a_row_that_names_it_is_a_dead_letter_or_refused_by_its_topic(either_kafka, cluster, victim, topic):
    out, dead = either_kafka.create_topic(f"{victim}-out"), either_kafka.create_topic(f"{victim}-dead")
    given = {
        "kafka.bootstrap.servers": either_kafka.bootstrap,
        "kafka.transactional.id": f"{victim}-forger",
        "ledgerTopic": OWN,
    }

    def blocks(**more):
        options = sink_options(given | more)
        settings = encode_settings(options, None, cluster)
        encoder = BlockEncoder(settings, 0, lambda name: target(cluster, name, options.ledger_topic), lambda: 1)
        return [*encoder.add(row(victim, out)), *encoder.add(row(victim, topic)), *encoder.finish()], encoder

    with pytest.raises(InvalidRow, match=f"a row has topic '{topic}'"):
        blocks()
    written, encoder = blocks(deadLetterTopic=dead)
    assert encoder.dead_letters == {Cause.TOPIC_NOT_ALLOWED: 1}
    assert sorted(block.partition.topic for block in written) == sorted([out, dead])


@ONE_PROTOCOL
@pytest.mark.parametrize("named", ["topic", "outputTopics", "deadLetterTopic"])
def test_no_option_names_what_only_brokers_write(cluster, named):
    given = {"kafka.bootstrap.servers": "unused:9092", "kafka.transactional.id": "t"}
    for topic in ("__consumer_offsets", "__transaction_state", LEDGER_TOPIC):
        with pytest.raises(ConfigurationError, match=f"{named}.*{topic}"):
            sink_options(given | {"ledgerTopic": OWN, named: topic})


@ONE_PROTOCOL
def test_a_topic_of_one_transaction_is_checked_too(cluster, victim):
    options = sink_options({"kafka.bootstrap.servers": "unused:9092", "kafka.transactional.id": "t"})
    with pytest.raises(ConfigurationError, match=f"topic.*{LEDGER_TOPIC}"):
        encode_settings(options, LEDGER_TOPIC, cluster)


def test_with_the_key_a_replay_believes_what_the_query_signed_and_leaves_what_anybody_wrote(kafka, topic):
    dead, home, elsewhere = topic("key-aside", 1), topic("key-home", 1), topic("key-else", 1)
    key = "a key of 16 letters"
    mine = headers_of(DeadLetter(cause=Cause.UNDECODABLE, topic=home, partition=0, offset=1))
    theirs = headers_of(DeadLetter(cause=Cause.UNDECODABLE, topic=elsewhere, partition=0, offset=1))
    written = ((b"mine", mine, key), (b"theirs", theirs, "their own key of 16"), (b"none", theirs, ""))
    for value, headers, signer in written:
        mac = [(MAC, signature(signer, None, value, headers))] if signer else []
        produce(kafka.bootstrap, dead, [value], headers=[*headers, *mac])
    command = ["dead-letters", "replay", dead, "--bootstrap-servers", kafka.bootstrap, "--yes"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 3 and "which was not named; nothing was sent" in " ".join(refused.output.split())
    for left in (2, 2):
        ended = CliRunner().invoke(app, [*command, "--option", f"ledgerKey={key}"])
        assert ended.exit_code == 1, ended.output
        assert f"Left, because they are not signed with ledgerKey: {left}." in " ".join(ended.output.split())
        assert [each.value() for each in read_committed(kafka.bootstrap, home)] == [b"mine"], "once"
    assert read_committed(kafka.bootstrap, elsewhere) == []
    named = CliRunner().invoke(app, [*command, "--option", f"ledgerKey={key}", "--to", home])
    assert named.exit_code == 0, named.output
    assert {each.value() for each in read_committed(kafka.bootstrap, home)} == {b"mine", b"none", b"theirs"}


@pytest.mark.parametrize("confirmed", ["y\n", "n\n"])
def test_a_person_must_name_the_destinations_too(kafka, topic, confirmed):
    dead, home = topic("person-aside", 1), topic("person-home", 1)
    headers = headers_of(DeadLetter(cause=Cause.UNDECODABLE, topic=home, partition=0, offset=1))
    produce(kafka.bootstrap, dead, [b"1"], headers=headers)
    command = ["dead-letters", "replay", dead, "--bootstrap-servers", kafka.bootstrap]
    assert CliRunner().invoke(app, command, input=confirmed).exit_code == 3
    named = CliRunner().invoke(app, [*command, "--destination", home], input=confirmed)
    assert named.exit_code == (0 if confirmed == "y\n" else 3), named.output
    assert len(read_committed(kafka.bootstrap, home)) == (confirmed == "y\n")


def test_causes_without_end_make_no_requests_without_end(kafka, topic):
    dead = topic("causes-aside", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(MOST_STREAMS + 1):
        letter = DeadLetter(cause=f"cause-{number}", topic="any", partition=0, offset=1)
        producer.produce(dead, b"1", headers=[*headers_of(letter)])
    assert producer.flush(30) == 0
    command = ["dead-letters", "replay", dead, "--bootstrap-servers", kafka.bootstrap, "--dry-run"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 3 and "more than 1,000 causes; nothing was sent" in " ".join(ended.output.split())


@ONE_PROTOCOL
@pytest.mark.parametrize("header", ["topic", "output_topic"])
@pytest.mark.parametrize("topic", [LEDGER_TOPIC, OWN, "__consumer_offsets"])
def test_a_replay_goes_nowhere_that_a_header_forges(either_kafka, victim, topic, header):
    dead, home = either_kafka.create_topic(f"{victim}-aside"), either_kafka.create_topic(f"{victim}-home")
    right = DeadLetter(cause=Cause.UNDECODABLE, topic=home, partition=0, offset=1)
    wrong = {"partition": 0, "offset": 1, "topic": home, header: topic}
    produce(either_kafka.bootstrap, dead, [b"1"], headers=headers_of(right))
    forged = headers_of(DeadLetter(cause=Cause.UNDECODABLE, **wrong))
    produce(either_kafka.bootstrap, dead, [FORGED], key=victim.encode(), headers=forged)
    command = ["dead-letters", "replay", dead, "--bootstrap-servers", either_kafka.bootstrap]
    more = ["--yes", "--destination", home, "--destination", topic, "--option", f"ledgerTopic={OWN}"]
    ended = CliRunner().invoke(app, [*command, *more])
    said = " ".join(ended.output.split())
    assert ended.exit_code == 3, said
    assert f"1 of the dead letters would be sent to {topic}" in said and "nothing was sent" in said
    assert read_committed(either_kafka.bootstrap, home) == []
    assert CliRunner().invoke(app, [*command, *more, "--to", topic]).exit_code == 3
