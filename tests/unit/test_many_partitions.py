"""With more partitions and topics, a batch takes no more requests than the limits of brokers ask for, and no step looks
at everything for each thing. Against the simulation's model of Kafka.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lab.bench.figures import growth
from spark_kafka_eos.appending import blocks
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.blocks import ROWS, BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.send_plan import SendPlan
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.options.parsers import output_topics
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.sampling import bytes_per_offset, ends_by_weight
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import appended_to, reads
from tests.model_kafka import KafkaModel

MANY = 300


def tenants(count, **fields):
    return KafkaModel(topics={f"tenant-{number}": 1 for number in range(count)}, nodes=1, **fields)


def positions(kafka, **given):
    options = source_options({"kafka.bootstrap.servers": "b:1", "startingOffsets": "earliest"} | given)
    return OffsetPlanner(options, kafka.cluster(), clock=kafka.clock)


def grown(kafka, size=100, records=10):
    """Another record batch in each partition."""
    batch = bytes(encode(pa.nulls(records, pa.binary()), pa.array([bytes(size)] * records, pa.binary()), 7))
    for log in kafka.partitions.values():
        log.append_plain((None,) * records, batch=batch)


def sent(kafka):
    """The requests since the last call, by API."""
    counts = Counter(api for api, _ in kafka.requests)
    kafka.requests.clear()
    return counts


# -- planning


def planned(kafka, source, start):
    """The requests for a planned micro-batch after `start`, and its end."""
    grown(kafka)
    end = source.latest(start, limited=True)
    source.batch(start, end)
    return sent(kafka), end


def test_a_batch_of_hundreds_of_topics_is_planned_with_as_many_requests_as_one_of_few():
    by_count = []
    for count in (3, MANY):
        kafka = tenants(count)
        source = positions(kafka, subscribePattern="tenant-.*")
        first, end = planned(kafka, source, source.initial())
        by_count.append([first, planned(kafka, source, end)[0]])
    assert by_count[0] == by_count[1]
    assert by_count[0][1] == {"ListOffsets": 2, "Metadata": 2}


def test_one_topic_that_is_deleted_costs_no_request_for_each_of_the_others():
    kafka = tenants(MANY)
    source = positions(kafka, subscribePattern="tenant-.*", failOnDataLoss="false")
    _, end = planned(kafka, source, source.initial())
    kafka.topics.delete("tenant-7")
    kafka.world.now += 10.0
    assert planned(kafka, source, end)[0]["Metadata"] < 30


def test_topics_that_were_looked_up_long_ago_are_looked_up_together():
    kafka = tenants(MANY)
    cluster = kafka.cluster()
    for _ in range(2):
        latest(cluster, kafka.partitions)
        assert sent(kafka)["Metadata"] <= 2  # where the brokers are, and the topics
        kafka.world.now += 301


def noticed(count: int) -> float:
    """The seconds of CPU time in which a source of this many partitions notices that its topic was created again."""
    kafka = KafkaModel(topics={"t": count}, nodes=1)
    source = positions(kafka, subscribe="t")
    start = source.latest(source.initial(), limited=True)
    kafka.topics.delete("t")
    kafka.topics.create("t", count)
    kafka.world.now += 10.0
    started = time.process_time()
    source.latest({"t": dict.fromkeys(start["t"], 5)}, limited=True)
    return time.process_time() - started


@pytest.mark.usefixtures("without_collector")
def test_a_topic_created_again_is_noticed_in_time_linear_to_its_partitions():
    seconds = [(count, min(noticed(count) for _ in range(3))) for count in (2_000, 20_000)]
    assert growth(seconds) < 1.4


# -- samples, and what the tasks read


def ranges_of(kafka):
    return [OffsetRange(partition=tp, start=0, end=log.end_offset) for tp, log in kafka.partitions.items()]


def test_samples_of_large_record_batches_come_in_two_requests():
    """A broker returns none of them but the first, as long as it is asked for less."""
    kafka = KafkaModel(topics={"t": 100}, nodes=1)
    grown(kafka, size=20_000)
    found = bytes_per_offset(kafka.cluster(), ranges_of(kafka), "read_committed")
    assert {round(weight, -3) for weight in found.values()} == {20_000}
    assert len(kafka.sent("Fetch")) == 2


def test_a_limit_of_bytes_takes_five_looks_however_many_partitions_and_however_large_their_record_batches():
    kafka = KafkaModel(topics={"t": 50}, nodes=1)
    for _ in range(20):
        grown(kafka, size=20_000)
    ends = ends_by_weight(kafka.cluster(), 50 * 800_000, ranges_of(kafka), "read_committed")
    assert set(ends.values()) == {39}
    assert 5 < len(kafka.sent("Fetch")) <= 2 * 5, "each record batch is larger than what a look asks for"


@pytest.mark.parametrize("by_weight", [False, True])
def test_samples_of_thousands_of_partitions_are_a_few_megabytes(by_weight):
    kafka = KafkaModel(topics={"t": 2_000}, nodes=1)
    grown(kafka, size=1_000)
    if by_weight:
        ends_by_weight(kafka.cluster(), 1 << 30, ranges_of(kafka), "read_committed")
    else:
        bytes_per_offset(kafka.cluster(), ranges_of(kafka), "read_committed")
    first, *more = kafka.sent("Fetch")
    assert sum(each.partition_max_bytes for each in first.topics[0].partitions) <= 8 << 20
    assert len(more) <= (2 if by_weight else 0), "these are larger than a partition's share"


def test_of_thousands_of_partitions_some_of_each_topic_stand_for_the_others():
    kafka = KafkaModel(topics={"small": 2_000, "large": 3, "other": 1}, nodes=1)
    sizes = {"small": 100, "large": 5_000, "other": 1_000}
    for tp, log in kafka.partitions.items():
        batch = bytes(encode(pa.nulls(10, pa.binary()), pa.array([bytes(sizes[tp.topic])] * 10, pa.binary()), 7))
        log.append_plain((None,) * 10, batch=batch)
    found = bytes_per_offset(kafka.cluster(), ranges_of(kafka), "read_committed")
    assert found.keys() == kafka.partitions.keys()
    assert all(sizes[tp.topic] < weight < sizes[tp.topic] + 20 for tp, weight in found.items())
    sampled = {
        (topic.topic_id, partition.partition): partition.partition_max_bytes
        for request in kafka.sent("Fetch")
        for topic in request.topics
        for partition in topic.partitions
    }
    assert len(sampled) == 500
    larger = sum(size > 16_384 for size in sampled.values())
    assert larger == 3, "the record batches of `large` have 50 kB"


def test_record_batches_that_are_larger_than_expected_do_not_come_one_by_one():
    kafka = KafkaModel(topics={"t": 40}, nodes=1)
    grown(kafka, size=200_000, records=1)
    parts = list(Fetcher(kafka.cluster()).fetch(ranges_of(kafka)))
    assert {part.partition for part in parts} == set(kafka.partitions)
    assert len(kafka.sent("Fetch")) <= 4, "a broker's first request is small, and each has four times the room"


def test_a_task_looks_up_its_topics_together():
    kafka = tenants(MANY)
    grown(kafka)
    list(Fetcher(kafka.cluster()).fetch(ranges_of(kafka)))
    assert sent(kafka)["Metadata"] <= 2


# -- what is written


def test_output_topics_are_looked_up_together():
    kafka = tenants(MANY)
    names = ",".join(f"tenant-{number}" for number in range(MANY))
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "outputTopics": names})
    assert len(encode_settings(options, None, kafka.cluster()).targets) == MANY
    assert sent(kafka) == {"Metadata": 2, "DescribeConfigs": 1}, "one of them for the ledger topic"


@pytest.mark.parametrize("topic", ["t", "with.a.name.as.long.as.names.of.topics.often.are.in.large.companies"])
def test_offsets_are_committed_in_parts_that_a_coordinator_stores(topic):
    kafka = KafkaModel(topics={topic: 10_000})
    cluster = kafka.cluster()
    group = GroupCoordinator(cluster, "a-group")
    offsets = {
        TopicPartition(topic, number): OffsetAndMetadata(offset=number, metadata="m" * 40) for number in range(10_000)
    }
    group.commit_offsets(offsets)
    requests = kafka.sent("OffsetCommit")
    assert len(requests) <= 5
    # A record of __consumer_offsets: group, topic, partition and metadata, in at most 80 further bytes.
    stored = [sum(len(one.partitions) for one in request.topics) * (80 + 7 + len(topic) + 40) for request in requests]
    assert max(stored) <= 500_000
    assert group.fetch_offsets(offsets) == offsets


def test_offsets_of_all_partitions_become_visible_with_the_transaction():
    kafka = KafkaModel(topics={"t": 6_000})
    identity = _begun(kafka)
    offsets = {tp: OffsetAndMetadata(offset=7, metadata="m" * 100) for tp in kafka.partitions}
    group = GroupCoordinator(kafka.cluster(), "g")
    group.commit_in_transaction(identity, offsets, transaction_version=2)
    assert len(kafka.sent("TxnOffsetCommit")) > 1
    assert set(group.fetch_offsets(offsets, require_stable=False).values()) == {None}


def _begun(kafka) -> ProducerIdentity:
    from tests.coordinating import TransactionCoordinator

    return TransactionCoordinator(kafka.cluster(), "id", 60_000).init_producer_id()


# What coordinators get for a batch after the first one. Its driver has the epoch of the batch before, or was made
# `anew`, as `format("kafka-eos")` makes one for each batch.
OF_TV1 = {"AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2}  # the output's partitions, the ledger's; both groups
OF_OWNER = {"DescribeTransactions": 1, "InitProducerId": 1}
OF_ANY = {"TxnOffsetCommit": 2, "EndTxn": 1}


def append_to(cluster, partitions, identity):
    """A record in each of them, by the driver."""
    record = encode(pa.nulls(1, pa.binary()), pa.array([b"value"]), 7)
    topics = appended_to(cluster, *partitions)
    acks = append(cluster, identity, [(tp, 1, record[:]) for tp in partitions], partitions=partitions)
    return Appended(partitions=len(acks), records=len(acks), bytes=len(acks), topics=topics)


@pytest.mark.parametrize(
    ("version", "anew", "needed"),
    [
        (2, False, OF_ANY),
        (2, True, OF_OWNER | OF_ANY),
        (1, False, OF_OWNER | OF_TV1 | OF_ANY),
        (1, True, OF_OWNER | OF_TV1 | OF_ANY),
    ],
)
def test_a_transaction_takes_as_many_requests_for_a_thousand_partitions_as_for_ten(version, anew, needed):
    for count in (10, 1_000):
        kafka = KafkaModel(version, {"t": count}, nodes=1)
        options = sink_options({"kafka.bootstrap.servers": "b:1", "topic": "t", "kafka.transactional.id": "id"})
        cluster = kafka.cluster()
        places = sorted(kafka.partitions)
        for number in range(2):
            sent(kafka)
            if anew or number == 0:
                transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
            start, end = (dict.fromkeys(places, at) for at in (number, number + 1))
            batch = MicroBatch(query_id="q", batch_id=number, digest=str(number), sources=reads(start, end))
            transaction.begin(batch)
            transaction.append(functools.partial(append_to, cluster, places))
            transaction.commit(batch)
        assert {api: times for api, times in sent(kafka).items() if api in OF_OWNER | OF_TV1 | OF_ANY} == needed


def test_source_topics_that_are_gone_are_looked_up_together():
    kafka = tenants(MANY)
    options = sink_options(
        {
            "kafka.bootstrap.servers": "b:1",
            "topic": "tenant-0",
            "kafka.transactional.id": "id",
            "failOnDataLoss": "false",
        }
    )
    transaction = SharedTransaction(options, kafka.cluster(), decide_micro_batch(options))
    read = {TopicPartition(f"tenant-{number}", 0): 0 for number in range(MANY)}
    batch = MicroBatch(query_id="q", batch_id=0, digest="", sources=reads(read, read))
    transaction.begin(batch)
    transaction.appending()
    for number in range(1, 9):
        kafka.topics.delete(f"tenant-{number}")
    kafka.meets["TxnOffsetCommit"] = lambda request, answer: _unknown(kafka, request, answer)
    sent(kafka)
    started = kafka.clock()
    transaction.commit(batch)
    assert kafka.clock() - started < 30
    assert sent(kafka)["Metadata"] < 60  # of the waits until a topic counts as gone


def _unknown(kafka, request, answer):
    """A coordinator that knows which topics there are."""
    answered = answer()
    for topic in answered.topics:
        for partition in topic.partitions:
            if TopicPartition(topic.name, partition.partition_index) not in kafka.partitions and topic.name != (
                "kafka-eos-ledger"
            ):
                partition.error_code = 3
    return answered


def test_what_waits_for_an_answer_is_not_looked_at_for_each_further_record_batch():
    plan = SendPlan(max_in_flight=1, max_held_bytes=1 << 30, linger_bytes=1_000)
    looks = 0
    for number in range(5_000):
        plan.queued(TopicPartition("t", number), bytes(10), 1, 0)
        if plan.due:
            looks += 1
            for request in plan.requests(dict.fromkeys(plan.sendable(), 1)):
                plan.sent(request)
    assert looks == 50


def test_partitions_share_the_buffer_without_a_search_among_all_of_them_for_each(monkeypatch):
    reads = 0

    class Counted(blocks._PendingRows):
        def __getattribute__(self, name):
            nonlocal reads
            reads += name == "bytes"
            return super().__getattribute__(name)

    monkeypatch.setattr(blocks, "_PendingRows", Counted)
    partitions = 500
    where = EncodeSettings(topic="t", targets={"t": Target(partitions=partitions)}, max_buffered_bytes=1_000)
    encoder = BlockEncoder(where, 0, lambda _: Target(partitions=1), lambda: 7)
    columns = {"key": [None] * partitions, "value": [b"v"] * partitions, "partition": list(range(partitions))}
    list(encoder.add(pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, ROWS[name]) for name in columns]))))
    assert reads < 10 * partitions


def test_rows_of_many_topics_are_sorted_once(monkeypatch):
    sorts, argsort = [], np.argsort

    def counted(numbers, kind):
        sorts.append(len(numbers))
        return argsort(numbers, kind=kind)

    monkeypatch.setattr(np, "argsort", counted)
    names = [f"t{number % MANY}" for number in range(3 * MANY)]
    columns = {"key": [None] * len(names), "value": [b"%d" % n for n in range(len(names))], "topic": names}
    where = EncodeSettings(topic=None, targets={}, output_topics=output_topics(",".join(sorted(set(names)))))
    encoder = BlockEncoder(where, 0, lambda _: Target(partitions=1), lambda: 7)
    rows = pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, ROWS[name]) for name in columns]))
    out = [*encoder.add(rows), *encoder.finish()]
    assert {block.partition.topic: block.records for block in out} == dict.fromkeys(names, 3)
    assert sorts == [3 * MANY]


@pytest.mark.usefixtures("without_collector")
def test_a_partition_that_two_sources_read_is_found_in_time_linear_to_all():
    first = {TopicPartition("a", number): 0 for number in range(20_000)}
    last = TopicPartition("b", 0)
    sources = tuple(SourceRange(start=start, end=start) for start in ({**first, last: 0}, {last: 0}))
    batch = MicroBatch(query_id="new", batch_id=0, digest="", sources=sources)
    entry = LedgerEntry(
        query_id="old", batch_id=7, digest="", serial=8, sources=(SourceProgress(cluster="c", offsets=first),)
    )
    started = time.process_time()
    verdict = verdicts.decide(entry, batch, clusters=("c", "c"), own="c")
    assert isinstance(verdict, Refuse) and "two of its sources read b-0" in verdict.reason
    assert time.process_time() - started < 2
    assert verdicts.decide(replace(entry, query_id="new", batch_id=-1), batch, clusters=("c", "c"), own="c")
