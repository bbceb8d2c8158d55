"""The appender against a scripted broker: that it does what the plan decides (unit/appending/test_send_plan)."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from lab.simulation.partition import Partition
from spark_kafka_eos.errors import BrokerUnreachable, InvalidRow, TransactionAborted, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDENTITY = ProducerIdentity(transactional_id="orders", producer_id=9, epoch=4)


class Log:
    """Answers Produce as the model of a partition's leader does, and may be told to fail.

    `failures` maps (partition, sequence, how many times that batch was seen) to an error code. A batch's sequence is
    its first byte; it counts for one record.
    """

    def __init__(self, answers):
        self.answers = answers
        self.partitions = defaultdict(Partition)
        self.failures = {}
        self.seen: Counter[tuple[int, int]] = Counter()

    @property
    def appended(self):
        """The sequences in each partition's log."""
        return {place: [entry.content[0] for entry in log.log] for place, log in self.partitions.items()}

    def __call__(self, request):
        response = self.answers.Produce
        topic_class = response.TopicProduceResponse
        topics = []
        for topic in request.topic_data:
            partitions = [self.append(topic.name, data) for data in topic.partition_data]
            topics.append(topic_class(name=topic.name, partition_responses=partitions))
        return response(responses=topics)

    def append(self, topic, data):
        sequence = data.records[0]
        self.seen[data.index, sequence] += 1
        code = self.failures.get((data.index, sequence, self.seen[data.index, sequence]), 0)
        if not code:
            log = self.partitions[topic, data.index]
            code, _ = log.append(9, 4, sequence, (sequence,), first_sequence_is_zero=True)
        partition_class = self.answers.Produce.TopicProduceResponse.PartitionProduceResponse
        return partition_class(index=data.index, error_code=code, base_offset=100 + sequence, record_errors=[])


@pytest.fixture
def log(broker, answers):
    log = Log(answers)
    broker.script["Produce"] += [log] * 1_000
    return log


def batch(sequence):
    return bytes([sequence]) * 10


def append_all(appender, *partitions, count):
    for sequence in range(count):
        for tp in partitions:
            appender.append(tp, batch(sequence), 3, sequence)


def sizes(broker):
    return [sum(len(topic.partition_data) for topic in request.topic_data) for request in broker.sent("Produce")]


def test_every_batch_is_acknowledged_with_its_counts(broker, log):
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, count=2)
    assert appender.flush() == [
        Ack(partition=FIRST, base_sequence=sequence, records=3, bytes=10, base_offset=100 + sequence)
        for sequence in (0, 1)
    ]
    assert appender.flush() == []


def test_acknowledgements_of_all_replicas_are_asked_for(broker, log):
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, count=1)
    appender.flush()
    (request,) = broker.sent("Produce")
    assert request.acks == -1
    assert request.transactional_id == "orders"


@pytest.mark.parametrize(("features", "version"), [({"transaction.version": 2}, 12), ({"transaction.version": 1}, 11)])
def test_each_transaction_version_has_its_own_produce(broker, log, features, version):
    broker.features = features
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, count=1)
    appender.flush()
    assert broker.versions("Produce") == [version]


def test_the_transaction_version_of_the_driver_outweighs_what_this_process_sees(broker, log):
    appender = Appender(broker.cluster(), IDENTITY, transaction_version=1)
    append_all(appender, FIRST, count=1)
    appender.flush()
    assert broker.versions("Produce") == [11]


@pytest.mark.parametrize("identity", [None, ProducerIdentity(transactional_id="", producer_id=7, epoch=0)])
def test_without_a_transaction_no_transactional_id_is_sent(broker, log, identity):
    appender = Appender(broker.cluster(), identity)
    append_all(appender, FIRST, count=3)
    appender.flush()
    assert {request.transactional_id for request in broker.sent("Produce")} == {None}
    assert log.appended["orders", 0] == [0, 1, 2]


def test_partitions_of_one_leader_share_a_request(broker, log):
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, SECOND, count=20)
    appender.flush()
    assert log.appended == {("orders", 0): list(range(20)), ("orders", 1): list(range(20))}
    assert max(sizes(broker)) == 2


def test_small_batches_of_all_partitions_share_the_first_request(broker, log):
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, SECOND, count=1)
    assert broker.sent("Produce") == []
    appender.flush()
    assert sizes(broker) == [2]


def large(sequence):
    return bytes([sequence]) * (1 << 20)


def test_megabytes_go_by_two_connections_to_their_leader_and_each_partition_by_one_of_them(broker, log):
    appender = Appender(broker.cluster(), IDENTITY)
    for sequence in range(20):
        for tp in (FIRST, SECOND):
            appender.append(tp, large(sequence), 3, sequence)
    assert len(appender.flush()) == 40
    assert log.appended == {("orders", 0): list(range(20)), ("orders", 1): list(range(20))}
    assert sizes(broker) == [2] + [1] * 38  # the first batches add their partitions to the transaction together
    first, second = (connection.number for connection in broker.connections)
    assert abs(first - second) < 6, "the load is shared"


def test_a_connection_lost_under_megabytes_is_replaced_and_the_order_kept(broker, log, lost):
    broker.script["Produce"].clear()
    broker.script["Produce"] += [log, log, log, lost, log, lost, *[log] * 100]
    appender = Appender(broker.cluster(), IDENTITY)
    for sequence in range(20):
        for tp in (FIRST, SECOND):
            appender.append(tp, large(sequence), 3, sequence)
    assert len(appender.flush()) == 40
    assert log.appended == {("orders", 0): list(range(20)), ("orders", 1): list(range(20))}


def test_what_has_gathered_is_sent_without_a_flush(broker, log):
    appender = Appender(broker.cluster(), IDENTITY, linger_bytes=20)
    append_all(appender, FIRST, SECOND, count=1)
    assert sizes(broker) == [2]
    assert len(appender.flush()) == 2


@pytest.mark.parametrize("code", [6, 7, 51])
def test_a_passing_error_resends_the_same_bytes_in_order(broker, log, code):
    log.failures = {(0, 3, 1): code, (0, 4, 2): code}
    appender = Appender(broker.cluster(), IDENTITY, linger_bytes=0)
    append_all(appender, FIRST, SECOND, count=9)
    acks = appender.flush()
    assert log.appended == {("orders", 0): list(range(9)), ("orders", 1): list(range(9))}
    assert sorted(ack.base_sequence for ack in acks if ack.partition == FIRST) == list(range(9))


def test_a_moved_leader_is_looked_up_again(broker, log):
    log.failures = {(0, 0, 1): 6}
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, count=1)
    appender.flush()
    assert len(broker.sent("Metadata")) == 2


def test_a_lost_connection_resends_what_was_unanswered_in_order(broker, log, lost):
    broker.script["Produce"].clear()
    broker.script["Produce"] += [log, log, lost, *[log] * 100]
    appender = Appender(broker.cluster(), IDENTITY, linger_bytes=0)
    append_all(appender, FIRST, SECOND, count=9)
    acks = appender.flush()
    assert log.appended == {("orders", 0): list(range(9)), ("orders", 1): list(range(9))}
    assert len(acks) == 18
    assert len(broker.connections) == 2
    assert len(broker.clock.slept) == 1


def test_a_batch_that_could_not_be_sent_to_a_new_leader_does_not_take_the_old_leaders_answers(broker, log):
    appender = Appender(broker.cluster(), IDENTITY, linger_bytes=0)
    append_all(appender, FIRST, SECOND, count=1)
    appender.flush()

    def moved(request):
        broker.leader = 2
        broker.cut_off = "Produce"
        log.failures = {(1, 1, 1): 6}
        return log(request)

    broker.script["Produce"].appendleft(moved)
    appender.append(SECOND, batch(1), 3, 1)
    for sequence in range(1, 6):  # four of them fill the connection to the old leader
        appender.append(FIRST, batch(sequence), 3, sequence)
    assert len(appender.flush()) == 6
    assert log.appended == {("orders", 0): list(range(6)), ("orders", 1): [0, 1]}


def test_an_answer_lost_after_the_append_is_not_appended_twice(broker, log, lost):
    def apply_and_lose(request):
        log(request)
        return lost(request)

    broker.script["Produce"].clear()
    broker.script["Produce"] += [log, apply_and_lose, *[log] * 100]
    appender = Appender(broker.cluster(), IDENTITY)
    append_all(appender, FIRST, count=6)
    assert [ack.base_sequence for ack in appender.flush()] == list(range(6))
    assert log.appended["orders", 0] == list(range(6))


def test_a_gap_in_the_sequences_aborts_this_attempt(broker, log):
    appender = Appender(broker.cluster(), IDENTITY)
    appender.append(FIRST, batch(0), 3, 0)
    appender.append(FIRST, batch(2), 3, 2)
    with pytest.raises(TransactionAborted, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER \(45\) for orders-0"):
        appender.flush()


def test_what_the_broker_says_of_a_record_is_passed_on(broker, log, answers):
    topic_class = answers.Produce.TopicProduceResponse
    partition_class = topic_class.PartitionProduceResponse
    why = partition_class.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="too far in the future")
    refused = partition_class(index=0, error_code=32, error_message="invalid", record_errors=[why])
    broker.script["Produce"].clear()
    broker.script["Produce"].append(
        answers.Produce(responses=[topic_class(name="orders", partition_responses=[refused])])
    )
    appender = Appender(broker.cluster(), IDENTITY)
    appender.append(FIRST, batch(0), 3, 0)
    with pytest.raises(InvalidRow, match="invalid: too far in the future"):
        appender.flush()


def test_after_a_fatal_error_nothing_of_it_stays_in_flight(broker, log):
    log.failures = {(0, 1, 1): 45}
    cluster = broker.cluster()
    appender = Appender(cluster, IDENTITY)
    append_all(appender, FIRST, count=5)
    with pytest.raises(TransactionAborted):
        appender.flush()
    assert not broker.connections[0].usable
    assert cluster.connection(1).in_flight == 0


def test_an_unknown_topic_is_named(broker, log):
    with pytest.raises(UnknownTopic, match="'nope'"):
        Appender(broker.cluster(), IDENTITY, linger_bytes=0).append(TopicPartition("nope", 0), batch(0), 3, 0)


def test_an_outage_longer_than_the_budget_is_an_error(broker, lost):
    broker.script["Produce"] += [lost] * 1_000
    appender = Appender(broker.cluster(), IDENTITY)
    appender.append(FIRST, batch(0), 3, 0)
    with pytest.raises(BrokerUnreachable, match="retried for 10000 ms"):
        appender.flush()


def test_append_blocks_above_its_bound_so_memory_stays_flat(broker, log):
    appender = Appender(broker.cluster(), IDENTITY, max_held_bytes=35)
    for sequence in range(50):
        appender.append(FIRST, batch(sequence), 3, sequence)
        assert appender._plan.held_bytes <= 35
    assert len(appender.flush()) == 50


def test_silence_about_a_partition_is_not_an_acknowledgement(broker, log, answers):
    broker.script["Produce"].clear()
    broker.script["Produce"] += [answers.Produce(responses=[]), *[log] * 100]
    appender = Appender(broker.cluster(), IDENTITY)
    appender.append(FIRST, batch(0), 3, 0)
    assert [ack.partition for ack in appender.flush()] == [FIRST]
    assert len(broker.sent("Produce")) == 2
