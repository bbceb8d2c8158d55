"""The ledger as its owner keeps it, against the model of Kafka: what it reads, asks and leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger import entry_format, verdicts
from spark_kafka_eos.ledger.decide import batch_write, decide_batch_write, decide_micro_batch
from spark_kafka_eos.ledger.topic import LedgerReader
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import reads
from tests.model_kafka import KafkaModel

GIVEN = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"}
IN = TopicPartition("in", 0)
BOOKS = TopicPartition("kafka-eos-ledger", 0)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    return KafkaModel(request.param, {"in": 1, "out": 1})


def owner(kafka, **more):
    """A process that owns nothing yet."""
    options = sink_options(GIVEN | {"topic": "out"} | more)
    return SharedTransaction(options, kafka.cluster(), decide_micro_batch(options), clock=kafka.clock)


def batch(number, **more):
    sources = reads({IN: number}, {IN: number + 1})
    return replace(MicroBatch(query_id="q", batch_id=number, digest=f"d{number}", sources=sources), **more)


def commit(transaction, batch):
    """Whether the batch was written or skipped."""
    verdict = transaction.begin(batch)
    if isinstance(verdict, verdicts.Write):
        transaction.appending()
        transaction.commit(batch)
    return type(verdict)


def entry(kafka, at=BOOKS):
    """The ledger's last committed record."""
    (value,) = kafka.partitions[at].committed()[-1].content
    return entry_format.decode_record(value)


def test_a_topic_that_was_created_again_is_noticed_although_its_source_does_not_say_which_one_it_reads(kafka):
    commit(owner(kafka), batch(0))
    assert commit(owner(kafka), batch(1)) is verdicts.Write, "the same topic"
    kafka.topics.delete("in")
    kafka.topics.create("in", 1)
    with pytest.raises(LedgerRefused, match="topic in was created again"):
        commit(owner(kafka), batch(2))
    assert commit(owner(kafka, failOnDataLoss="false"), batch(2)) is verdicts.Write


def test_a_source_that_is_not_kafka_has_no_place_in_the_group(kafka):
    commit(owner(kafka), batch(0, sources=(None, *batch(0).sources)))
    first, second = entry(kafka).sources
    assert first is None
    assert (second.offsets, set(second.origin.topic_ids)) == ({IN: 1}, {"in"})


@pytest.mark.parametrize(("destination", "named"), [("out", ""), ("*in,out", "*"), ("*", "*")])
def test_a_batch_write_is_kept_with_the_ids_of_its_topics(kafka, destination, named):
    options = sink_options(GIVEN)
    cluster = kafka.cluster()
    transaction = SharedTransaction(options, cluster, decide_batch_write(options))
    commit(transaction, batch_write("app", 3, destination=destination))
    cluster.look_up(["in", "out"])
    names = [name for name in destination.removeprefix(named).split(",") if name]
    with_ids = ",".join(f"{name}@{cluster.topic(name).id}" for name in names)
    assert entry(kafka).writes == {named + with_ids: "3"}


def fill(kafka, *what):
    """`marker`s and batches of so many records at the end of the source's topic."""
    for each in what:
        if each == "marker":
            kafka.partitions[IN].mark(77, 0, True)
        else:
            records = encode(pa.nulls(each, pa.binary()), pa.array([b"x"] * each), 0)
            kafka.partitions[IN].append_plain((b"x",) * each, batch=bytes(records))


@pytest.mark.parametrize(
    ("after", "written"),
    [
        ([1, "marker", "marker"], True),
        ([1, 1, "marker"], False),
        ([1, "marker", 1], False),
        ([3], False),
    ],
)
def test_batches_of_which_only_markers_were_read_are_passed_over_and_none_with_a_record(kafka, after, written):
    fill(kafka, *after)
    commit(owner(kafka), batch(0))
    later = batch(5, sources=reads({IN: 3}, {IN: 4}), stateful=False)
    if written:
        assert commit(owner(kafka), later) is verdicts.Write
        assert kafka.sent("Fetch")[-1].topics, "the source's topic"
    else:
        with pytest.raises(LedgerRefused, match="the last committed batch is 0"):
            commit(owner(kafka), later)


def test_batches_whose_records_compaction_has_removed_since_are_not_taken_for_ones_that_read_only_markers(kafka):
    fill(kafka, 1, 1, 1, 1)
    commit(owner(kafka), batch(0))
    log = kafka.partitions[IN]
    log.log = [entry for entry in log.log if entry.offset not in (1, 2)]
    with pytest.raises(LedgerRefused, match="the last committed batch is 0"):
        commit(owner(kafka), batch(5, sources=reads({IN: 3}, {IN: 4}), stateful=False))


def test_of_two_sources_that_read_one_partition_what_the_first_one_missed_is_not_hidden_by_the_second(kafka):
    """The second one has an end, and starts where it ended."""
    fill(kafka, 4)
    commit(owner(kafka), batch(0, sources=(*reads({IN: 0}, {IN: 2}), *reads({IN: 0}, {IN: 1}))))
    later = batch(5, sources=(*reads({IN: 3}, {IN: 4}), *reads({IN: 1}, {IN: 1})), stateful=False)
    with pytest.raises(LedgerRefused, match="the last committed batch is 0"):
        commit(owner(kafka), later)


def test_of_another_cluster_it_is_not_looked_up_what_lies_between(kafka):
    fill(kafka, 1, "marker", "marker")
    commit(owner(kafka, sourceClusters="there"), batch(0))
    later = batch(5, sources=reads({IN: 3}, {IN: 4}), stateful=False)
    with pytest.raises(LedgerRefused, match="the last committed batch is 0"):
        commit(owner(kafka, sourceClusters="there"), later)


def test_the_group_is_asked_only_if_the_ledger_does_not_know_where_the_sources_ended(kafka):
    def asked():
        return len([request for request in kafka.sent("OffsetFetch") if request.group_id == options.group_id])

    options = sink_options(GIVEN)
    commit(owner(kafka), batch(0))
    first = asked()
    assert first > 0
    commit(owner(kafka), batch(1))
    assert commit(owner(kafka), replace(batch(0), query_id="new", sources=reads({IN: 2}, {IN: 3}))) is verdicts.Write
    assert asked() == first


def test_a_start_reads_only_what_follows_the_pointer_and_the_topic_is_looked_up_once(kafka):
    transaction = owner(kafka)
    for number in range(5):
        commit(transaction, batch(number))
    pointer = kafka.group("id.ledger").offsets[BOOKS][0]
    assert pointer >= 5
    kafka.requests.clear()
    again = owner(kafka)
    commit(again, batch(5))
    read = [asked.fetch_offset for each in kafka.sent("Fetch") for topic in each.topics for asked in topic.partitions]
    assert read and min(read) >= pointer
    kafka.requests.clear()
    commit(again, batch(6))
    assert len(kafka.sent("Metadata")) == 2, "only to compare its id, before and after EndTxn"


def test_who_created_the_topic_does_not_look_it_up_again(kafka):
    transaction = owner(kafka)
    commit(transaction, batch(0))
    assert len(kafka.sent("CreateTopics")) == 1
    kafka.requests.clear()
    commit(transaction, batch(1))
    assert len(kafka.sent("Metadata")) == 2, "only to compare its id, before and after EndTxn"


def test_a_pointer_that_was_reset_leads_past_no_entry_although_a_dead_driver_left_one_open(kafka):
    commit(owner(kafka), batch(0))
    dead = owner(kafka)
    dead.begin(batch(1))
    dead.appending()
    kafka.before("EndTxn", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        dead.commit(batch(1))
    left = kafka.partitions[BOOKS].log[-1]
    assert left.commit is None, "its record, without a marker"
    kafka.group("id.ledger").offsets[BOOKS] = left.offset, ""
    assert commit(owner(kafka), batch(1)) is verdicts.Write
    assert entry(kafka).serial == 2


def test_a_pointer_that_was_reset_is_warned_of_and_none_that_was_not(kafka, caplog):
    commit(owner(kafka), batch(0))
    commit(owner(kafka), batch(1))
    assert "were reset" not in caplog.text
    kafka.group("id.ledger").offsets[BOOKS] = 0, ""
    assert commit(owner(kafka), batch(2)) is verdicts.Write
    assert "the offsets of group id.ledger were reset; the ledger's record counts" in caplog.text


def test_each_place_that_the_ledger_left_leads_on_though_its_pointer_expired(kafka):
    """A, B, C and back to B: what is in B's record must not count any more."""
    names = {"A": "books-a", "B": "books-b", "C": "books-c"}
    for number, name in enumerate("ABC"):
        assert commit(owner(kafka, ledgerTopic=names[name]), batch(number)) is verdicts.Write
        if name == "B":
            del kafka.group("id.ledger").offsets[TopicPartition("books-b", 0)]
    kafka.expire_group("id.ledger", retention_s=0)
    for name in "BA":
        assert commit(owner(kafka, ledgerTopic=names[name]), batch(2)) is verdicts.Skip


def reader_of(kafka, **more):
    return LedgerReader(kafka.cluster(), "kafka-eos-ledger", **more)


def fetched(kafka):
    return [asked.fetch_offset for each in kafka.sent("Fetch") for topic in each.topics for asked in topic.partitions]


def test_a_reader_reads_what_is_new_and_after_the_topic_was_created_again_everything(kafka):
    reader = reader_of(kafka, keep=9)
    assert reader.read() is False
    transaction = owner(kafka)
    for number in range(3):
        commit(transaction, batch(number))
    assert reader.read() is True
    assert len(reader.by_id["id"].committed) == 3
    commit(transaction, batch(3))
    end = kafka.partitions[BOOKS].end_offset
    kafka.requests.clear()
    reader.read()
    assert len(reader.by_id["id"].committed) == 4
    assert fetched(kafka) and min(fetched(kafka)) > 0
    kafka.topics.delete("kafka-eos-ledger")
    for group in kafka.groups.values():
        group.offsets.clear()
    another = owner(kafka)
    for number in range(end):  # further than it was
        commit(another, replace(batch(number), query_id="another"))
    reader.read()
    assert {entry_format.decode_record(record.value).query_id for record in reader.by_id["id"].committed} == {"another"}


def test_a_reader_of_a_topic_that_was_truncated_starts_over(kafka):
    reader = reader_of(kafka, keep=9)
    transaction = owner(kafka)
    for number in range(3):
        commit(transaction, batch(number))
    reader.read()
    kafka.partitions[BOOKS].truncate(2)
    assert reader.read() is True
    assert len(reader.by_id["id"].committed) == 1
