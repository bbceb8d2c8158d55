"""The ledger's records on real brokers: what a new owner finds there, whatever was lost, compacted or left behind."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import BrokerUnreachable, ConfigurationError, LedgerRefused
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.describe import topics
from spark_kafka_eos.kafka.protocol.facts import TopicFacts, TransactionFacts
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.ledger.decide import batch_write, decide_batch_write, decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.entry_format import encode_record
from spark_kafka_eos.ledger.progress import committed_by, last_entry
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.transaction import shared
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads
from tests.broker.conftest import expire, options_of
from tests.coordinating import TransactionCoordinator
from tests.copying import Copy
from tests.producing import produce

pytestmark = pytest.mark.broker

SMALL = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 0}
numbers = itertools.count(1)


@pytest.fixture
def name():
    return f"ledger-{next(numbers)}"


@pytest.fixture
def sink(either_kafka, name):
    """`sink(**options)`: a sink's options with an output topic, a transactional id and a group of this test."""
    out = either_kafka.create_topic(f"{name}-out-{either_kafka.version}", 2)
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": out, "topic": out}
    return lambda **options: sink_options(given | options)


def write(cluster, options, batch_id, **changes):
    """How a whole micro-batch ends that appends nothing of its own."""
    return report(cluster, options, batch_id, **changes).outcome


def report(cluster, options, batch_id, *, query="query", start=None, end=None):
    """What is reported of it."""
    source = TopicPartition(options.topic, 1)  # any topic that exists
    batch = MicroBatch(
        query_id=query,
        batch_id=batch_id,
        digest=f"digest-{batch_id}",
        sources=reads({source: batch_id if start is None else start}, {source: batch_id + 1 if end is None else end}),
    )
    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    nothing = Appended(partitions=0, records=0, bytes=0)
    return commit_batch(transaction, batch, lambda _: nothing, max_attempts=2, choice=BY_DRIVER)


def last_batch(cluster, options):
    found = last_entry(cluster, LEDGER_TOPIC, options.transactional_id)
    assert found is not None
    return found.batch_id


def test_the_ledgers_group_has_one_offset_which_is_its_pointer(either_kafka, cluster, sink):
    options = sink()
    for number in range(2):
        write(cluster, options, number)
    admin = AdminClient({"bootstrap.servers": either_kafka.bootstrap, "log_level": 0})
    group = f"{options.transactional_id}.ledger"
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    (pointer,) = found.result(30).topic_partitions
    assert pointer.topic == LEDGER_TOPIC
    assert last_batch(cluster, options) == 1

    def lag():
        [end] = latest(cluster, [TopicPartition(LEDGER_TOPIC, 0)], isolation_level="read_uncommitted").values()
        return end - pointer.offset

    before = lag()
    write(cluster, sink(**{"kafka.transactional.id": f"{options.transactional_id}-of-another"}), 0)
    assert lag() > before


def test_no_broker_has_to_wait_until_another_one_is_added_to_the_transaction(either_kafka, cluster, sink):
    requests = report(cluster, sink(), 0).trace.requests
    names = [request.api for request in requests]
    adding = requests[names.index("Produce") : names.index("EndTxn")]
    assert [request.api for request in adding if request.api == "TxnOffsetCommit"] == ["TxnOffsetCommit"] * 2
    assert all(one.start + one.milliseconds <= other.start for one, other in itertools.pairwise(adding))


def test_a_query_whose_groups_have_expired_continues_by_the_record(either_kafka, cluster, sink):
    options = sink()
    for number in range(3):
        assert write(cluster, options, number) == "committed"
    expire(either_kafka.bootstrap, options.group_id, options.ledger_group)
    assert write(cluster, options, 2) == "skipped"
    assert write(cluster, options, 3) == "committed"


def test_a_monthly_job_is_remembered_though_the_group_has_expired(either_kafka, cluster, sink):
    options = sink(txnAppId="monthly", txnVersion=202610)
    wanted = batch_write("monthly", 202610, destination=options.topic)

    def run():
        transaction = SharedTransaction(options, cluster, decide_batch_write(options))
        nothing = Appended(partitions=0, records=0, bytes=0)
        return commit_batch(transaction, wanted, lambda _: nothing, max_attempts=2, choice=BY_DRIVER).outcome

    assert run() == "committed"
    expire(either_kafka.bootstrap, options.ledger_group)
    assert run() == "skipped"


def test_a_lost_checkpoint_is_continued_from_by_the_ledger_where_the_group_has_expired(
    either_kafka, cluster, sink, name
):
    source = either_kafka.create_topic(f"{name}-in-{either_kafka.version}", 2)
    for partition in (0, 1):
        produce(either_kafka.bootstrap, source, [b"x"] * 600, partition=partition)
    copy = Copy(either_kafka.bootstrap, cluster, source, sink().topic, query="lost")
    copy.run(0, 0, 500)
    expire(either_kafka.bootstrap, copy.options.group_id, copy.options.ledger_group)
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "subscribe": source, "startingOffsets": "committed"}

    def starting(**more):
        with OffsetPlanner(source_options(given | more)) as positions:
            return positions.starting()

    with pytest.raises(ConfigurationError, match=r"no committed offsets for .* set sink.kafka.transactional.id"):
        starting(**{"kafka.group.id": copy.options.group_id})
    found = starting(**{"sink.kafka.transactional.id": copy.options.transactional_id})
    assert found == {TopicPartition(source, 0): 500, TopicPartition(source, 1): 500}
    refused = Copy(either_kafka.bootstrap, cluster, source, copy.target, query="new")
    with pytest.raises(LedgerRefused, match="does not start where it ended"):
        refused.run(0, 0, 600)
    assert (
        Copy(either_kafka.bootstrap, cluster, source, copy.target, query="new").run(0, 500, 600).outcome == "committed"
    )


def test_a_ledger_topic_that_was_deleted_is_created_again_and_the_pointer_is_gone_with_it(either_kafka, cluster, sink):
    books = f"books-{next(numbers)}-{either_kafka.version}"
    options = sink(ledgerTopic=books)
    assert write(cluster, options, 0) == "committed"
    either_kafka.delete_topic(books)
    with Cluster(options.client) as fresh, pytest.raises(LedgerRefused, match="the ledger has no entry") as refused:
        write(fresh, options, 1)
    word = str(refused.value).split("resolve='")[1].split("'")[0]
    with Cluster(options.client) as fresh:
        assert write(fresh, sink(ledgerTopic=books, resolve=word), 1) == "committed"
        assert write(fresh, options, 2) == "committed"


def test_where_the_ledger_was_deleted_a_new_checkpoint_goes_on_as_its_refusal_advises(
    either_kafka, cluster, sink, name
):
    source, books = either_kafka.create_topic(f"{name}-in-{either_kafka.version}", 2), f"books-{name}"
    for partition in (0, 1):
        produce(either_kafka.bootstrap, source, [b"x"] * 600, partition=partition)

    target, where = sink().topic, {"ledgerTopic": books}
    lost = Copy(either_kafka.bootstrap, cluster, source, target, query="lost", options=where)
    lost.run(0, 0, 500)
    expire(either_kafka.bootstrap, lost.options.ledger_group)
    either_kafka.delete_topic(books)
    with Cluster(cluster.options) as fresh:
        new = Copy(either_kafka.bootstrap, fresh, source, target, query="new", options=where)
        with pytest.raises(LedgerRefused, match="the ledger has no entry") as refused:
            new.run(0, 0, 600)
        advised = {"startingOffsets": "committed", "kafka.group.id": new.options.group_id}
        assert all(option in refused.value.action for option in advised)
        given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "subscribe": source}
        with OffsetPlanner(source_options(given | advised)) as positions:
            start = positions.starting()
        assert set(start.values()) == {500}
        assert new.run(0, 500, 600).outcome == "committed"


def test_the_order_of_the_output_topics_means_nothing(either_kafka, cluster, sink):
    other = either_kafka.create_topic(f"other-{next(numbers)}-{either_kafka.version}")
    one = sink()
    ways = [
        sink(topic=None, outputTopics=f"{one.topic},{other}"),
        sink(topic=None, outputTopics=f"{other},{one.topic}"),
    ]
    place = TopicPartition(one.topic, 0)

    def run(options, query):
        batch = MicroBatch(query_id=query, batch_id=0, digest="d", sources=reads({place: 0}, {place: 100}))
        transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
        nothing = Appended(partitions=0, records=0, bytes=0)
        return commit_batch(transaction, batch, lambda _: nothing, max_attempts=2, choice=BY_DRIVER).outcome

    assert run(ways[0], "first") == "committed"
    with pytest.raises(LedgerRefused, match="does not start where it ended"):
        run(ways[1], "with a new checkpoint")


def test_an_entry_of_an_earlier_release_is_found_whichever_topic_it_was_kept_at(either_kafka, cluster, sink):
    options = sink()
    metadata = '{"v":1,"query":"query","batch":4,"digest":"digest-4"}'
    group = GroupCoordinator(cluster, options.ledger_group)
    group.commit_offsets({TopicPartition(options.topic, 0): OffsetAndMetadata(offset=5, metadata=metadata)})
    assert write(cluster, options, 4) == "skipped"
    assert write(cluster, options, 5) == "committed"
    expire(either_kafka.bootstrap, options.ledger_group)
    assert write(cluster, options, 5) == "skipped"


def test_a_group_that_is_deleted_before_the_commit_changes_nothing(either_kafka, cluster, sink, monkeypatch):
    options = sink()
    assert write(cluster, options, 0) == "committed"

    def failpoint(name, _=None):
        if name == "offsets committed":
            expire(either_kafka.bootstrap, options.group_id, options.ledger_group)

    with monkeypatch.context() as patch:
        patch.setattr(shared, "failpoint", failpoint)
        assert write(cluster, options, 1) == "committed"
    assert write(cluster, options, 1) == "skipped"
    assert write(cluster, options, 2) == "committed"
    assert group_offsets(either_kafka.bootstrap, options.group_id, str(options.topic), "read_committed")[1] == 3


def test_another_querys_open_transaction_in_the_same_partition_is_not_waited_for(either_kafka, cluster, sink):
    options = sink()
    write(cluster, options, 0)
    hanging = TransactionCoordinator(cluster, f"hanging-{next(numbers)}-{either_kafka.version}", 600_000)
    identity = hanging.init_producer_id()
    other = LedgerTopic(cluster, LEDGER_TOPIC, hanging.transactional_id)
    other.append_entry(identity, b"{}", timestamp_ms=int(time.time() * 1000))
    assert write(cluster, options, 1) == "committed"
    expire(either_kafka.bootstrap, options.ledger_group)
    assert write(cluster, options, 1) == "skipped"
    assert last_batch(cluster, options) == 1
    hanging.end(identity, commit=False)
    assert last_entry(cluster, LEDGER_TOPIC, hanging.transactional_id) is None


def test_others_wait_until_it_is_known_what_becomes_of_the_last_record(either_kafka, sink):
    options = sink(**{"kafka.delivery.timeout.ms": "1500"})
    with Cluster(options.client) as cluster:
        write(cluster, options, 0)
        coordinator = TransactionCoordinator(cluster, options.transactional_id, 600_000)
        identity = coordinator.init_producer_id()
        kept = LedgerTopic(cluster, LEDGER_TOPIC, options.transactional_id)
        kept.append_entry(identity, b"{}", timestamp_ms=int(time.time() * 1000))
        with pytest.raises(BrokerUnreachable, match="still open, so its ledger entry is not final"):
            last_entry(cluster, LEDGER_TOPIC, options.transactional_id)
        coordinator.end(identity, commit=False)
        assert last_batch(cluster, options) == 0


def test_a_source_waits_until_kafka_has_aborted_what_a_dead_driver_left_between_its_record_and_endtxn(
    either_kafka, cluster, sink, name
):
    source = either_kafka.create_topic(f"{name}-in-{either_kafka.version}", 2)
    for partition in (0, 1):
        produce(either_kafka.bootstrap, source, [b"x"] * 60, partition=partition)
    copy = Copy(either_kafka.bootstrap, cluster, source, sink().topic, query="dead")
    copy.run(0, 0, 50)
    coordinator = TransactionCoordinator(cluster, copy.options.transactional_id, 1_000)
    identity = coordinator.init_producer_id()
    last = last_entry(cluster, LEDGER_TOPIC, copy.options.transactional_id)
    assert isinstance(last, LedgerEntry)
    record = encode_record(replace(last, batch_id=1, serial=last.serial + 1))
    kept = LedgerTopic(cluster, LEDGER_TOPIC, copy.options.transactional_id)
    kept.append_entry(identity, record, timestamp_ms=int(time.time() * 1000))
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "subscribe": source, "startingOffsets": "committed"}
    options = source_options(given | {"sink.kafka.transactional.id": copy.options.transactional_id})
    with OffsetPlanner(options) as positions:
        assert positions.starting() == {TopicPartition(source, 0): 50, TopicPartition(source, 1): 50}
    facts = describe.transaction(cluster, copy.options.transactional_id, now_ms=0)
    assert isinstance(facts, TransactionFacts)
    assert facts.state in ("PrepareAbort", "CompleteAbort"), "by its coordinator, after the timeout"


def test_the_last_record_is_found_after_compaction_too(either_kafka, sink):
    books = either_kafka.create_topic(f"compacted-{next(numbers)}-{either_kafka.version}", 1, SMALL)
    options = sink(ledgerTopic=books)
    with Cluster(options.client) as cluster:
        for number in range(20):
            write(cluster, options, number)
            time.sleep(0.02)  # segments are cut by time, and only closed ones are compacted
        expire(either_kafka.bootstrap, options.ledger_group)
        for number in range(20, 24):
            write(cluster, options, number)
        expire(either_kafka.bootstrap, options.ledger_group)
        assert write(cluster, options, 23) == "skipped"


def test_what_another_program_wrote_under_the_id_is_refused(either_kafka, cluster, sink):
    options = sink()
    write(cluster, options, 0)
    producer = Producer({"bootstrap.servers": either_kafka.bootstrap})
    producer.produce(LEDGER_TOPIC, b"junk", options.transactional_id.encode(), 0)
    assert producer.flush(20) == 0
    with pytest.raises(LedgerRefused, match="not written in a transaction"):
        write(cluster, options, 1)


def test_a_topic_that_holds_other_records_is_not_mistaken_for_the_ledger(either_kafka, cluster, sink):
    options = sink()
    produce(either_kafka.bootstrap, LEDGER_TOPIC, [b"x" * 100] * 3, key=b"somebody else")
    assert write(cluster, options, 0) == "committed"
    assert committed_by(
        SinkLedger(client=options.client, transactional_id=options.transactional_id, topic=LEDGER_TOPIC),
        cluster.cluster_id(),
    ) == {TopicPartition(options.topic, 1): 1}


def test_the_topic_is_created_compacted_and_once(either_kafka, sink):
    books = f"created-{next(numbers)}-{either_kafka.version}"
    options = sink(ledgerTopic=books)
    with Cluster(options.client) as one, Cluster(options_of(either_kafka.bootstrap)) as two:
        LedgerTopic(one, books, "a").ensure()
        LedgerTopic(two, books, "b").ensure()
        _, found = topics(one, [books], ["cleanup.policy", "segment.bytes"])
    assert isinstance(facts := found[books], TopicFacts)
    assert facts.settings == {"cleanup.policy": "compact", "segment.bytes": "16777216"}
    assert facts.partitions == 1
