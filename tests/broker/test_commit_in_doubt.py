"""A commit whose answer is lost, or that never leaves or arrives late, on real brokers: one copy is visible and the
query goes on."""

from __future__ import annotations

import itertools
import time

import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import BrokerUnreachable, CommitOutcomeUnknown, TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.error_codes import name_of
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads

pytestmark = pytest.mark.broker

numbers = itertools.count(1)


class Network:
    """Decides what happens to EndTxn, from `lose` on until the client gives up and initializes again.

    "response": applied and not answered; "request": not sent, or not before `deliver`. With `for_good` the client
    reaches nobody any more. Whatever is lost costs the client 10 s by its clock, and nobody who runs the tests.
    """

    def __init__(self):
        self.loses = None
        self.for_good = False
        self.down = False
        self.lost = 0
        self.late = []
        self.waited = 0.0

    def clock(self):
        return time.monotonic() + self.waited

    def lose(self, what, *, for_good=False):
        self.loses, self.for_good = what, for_good

    def deliver(self):
        """What was held back arrives, by a connection of its own; Kafka's names of what it is answered."""
        late, self.late = self.late, []
        codes = []
        for request, version, (host, port, options) in late:
            connection = Connection(host, port, options)
            codes.append(connection.call(request, **version).error_code)
            connection.close()
        return [name_of(code) for code in codes]

    def connect(self, host, port, options):
        return LossyConnection(self, host, port, options)


class LossyConnection(Connection):
    def __init__(self, network, host, port, options):
        self._network = network
        self._to = host, port, options
        super().__init__(host, port, options)

    def send(self, request, **version):
        network = self._network
        if request.name == "EndTxnRequest" and network.loses:
            if network.loses == "response":
                self.receive(super().send(request, **version))
            else:
                network.late.append((request, version, self._to))
            network.lost += 1
            network.down = network.for_good
            raise self._nothing(f"the {network.loses} was lost")
        if network.down:
            raise self._nothing("the network is down")
        if request.name == "InitProducerIdRequest" and network.lost:
            network.loses = None
        return super().send(request, **version)

    def _nothing(self, why):
        self.close()
        self._network.waited += 10
        return BrokerUnreachable(f"{self.address}: {why}")


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"doubt-{next(numbers)}", 2)


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def doubtful(either_kafka, options, network):
    """A cluster behind `network`, whose requests time out after 15 s."""
    changed = options(either_kafka.bootstrap, delivery_timeout_ms=15_000)
    with Cluster(changed, connect=network.connect, clock=network.clock) as cluster:
        yield cluster


@pytest.fixture
def sink(either_kafka, topic):
    return sink_options(
        {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
    )


@pytest.fixture
def run(sink, topic, cluster, record_batch):
    """`run(transaction, number)`: the whole micro-batch `number`, one record in each of two partitions.

    `meanwhile(try, appended)` is called before the first, between the two and after the second; tries count from 1.
    """

    def run(transaction, number, meanwhile=lambda attempt, appended: None):
        tries = itertools.count(1)

        def write(identity):
            attempt = next(tries)
            for partition in (0, 1):
                meanwhile(attempt, partition)
                block = record_batch(None, 0, [b"%d" % number])
                append(cluster, identity, [(TopicPartition(topic, partition), 1, block)])
            meanwhile(attempt, 2)
            return Appended(partitions=2, records=2, bytes=2)

        return commit_batch(transaction, batch(sink, number), write, max_attempts=3, choice=BY_DRIVER)

    return run


def batch(sink, number):
    """Micro-batch `number`, which reads one record of a source (any topic will do, this one exists)."""
    source = TopicPartition(sink.topic, 0)
    return MicroBatch(
        query_id="query",
        batch_id=number,
        digest=f"digest {number}",
        sources=reads({source: number}, {source: number + 1}),
    )


@pytest.fixture
def check(cluster, sink, topic, consumed):
    """`check(number)`: batches 0 to `number` are visible once each, the ledger and the source's offsets say so."""

    def committed(group, at):
        found = GroupCoordinator(cluster, group).fetch_offsets([at])[at]
        assert found is not None
        return found

    def check(number):
        for partition in (0, 1):
            assert consumed(topic, partition) == [b"%d" % n for n in range(number + 1)]
        entry = committed(sink.ledger_group, TopicPartition(sink.ledger_topic, 0))
        found = entry_format.decode_committed(entry)
        assert (found.query_id, found.batch_id, found.digest) == ("query", number, f"digest {number}")
        ((source, end),) = batch(sink, number).end.items()
        assert committed(sink.group_id, source).offset == end

    return check


@pytest.mark.parametrize(("loses", "tries_lost"), [("response", 0), ("request", 1)])
def test_a_commit_that_is_not_answered_within_the_budget_is_settled(
    doubtful, network, sink, run, check, loses, tries_lost
):
    transaction = SharedTransaction(sink, doubtful, decide_micro_batch(sink))
    run(transaction, 0)
    network.lose(loses)
    report = run(transaction, 1)
    assert network.lost > 1, "it was not tried again"
    assert report.outcome == "committed"
    assert len(report.redone) == tries_lost
    check(1)
    run(transaction, 2)
    check(2)


MOMENTS = pytest.mark.parametrize(
    "moment", [0, 1, 2, "committed"], ids=["nothing appended", "half appended", "all appended", "committed"]
)


@MOMENTS
def test_a_commit_that_arrives_when_its_batch_is_written_again_is_fenced_and_ends_nothing(
    doubtful, network, sink, run, check, moment
):
    transaction = SharedTransaction(sink, doubtful, decide_micro_batch(sink))
    run(transaction, 0)
    network.lose("request")
    answers = []

    def meanwhile(attempt, appended):
        if attempt == 2 and appended == moment:
            answers.extend(network.deliver())

    report = run(transaction, 1, meanwhile)
    assert len(report.redone) == 1
    if moment == "committed":
        answers += network.deliver()
    assert_refused(answers)
    check(1)
    run(transaction, 2)
    check(2)


@MOMENTS
def test_an_abort_that_arrives_late_is_fenced_and_ends_nothing(doubtful, network, sink, cluster, run, check, moment):
    run(SharedTransaction(sink, cluster, decide_micro_batch(sink)), 0)

    def fail(attempt, appended):
        if appended == 2:
            network.lose("request")
            raise TransactionAborted("a reason to begin anew")

    with pytest.raises(BrokerUnreachable):
        run(SharedTransaction(sink, doubtful, decide_micro_batch(sink)), 1, fail)
    answers = []

    def meanwhile(attempt, appended):
        if appended == moment:
            answers.extend(network.deliver())

    successor = SharedTransaction(sink, cluster, decide_micro_batch(sink))
    assert run(successor, 1, meanwhile).redone == ()
    if moment == "committed":
        answers += network.deliver()
    assert_refused(answers)
    check(1)
    run(successor, 2)
    check(2)


def assert_refused(answers):
    assert len(answers) > 1, "it was sent several times"
    # The third: while the markers of another transaction are being written, the coordinator looks at nothing else.
    assert set(answers) <= {"PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"}


@pytest.mark.parametrize(("loses", "outcome"), [("response", "skipped"), ("request", "committed")])
def test_if_the_brokers_stop_answering_the_next_owner_learns_the_outcome(
    doubtful, network, sink, cluster, run, check, loses, outcome
):
    network.lose(loses, for_good=True)
    with pytest.raises(CommitOutcomeUnknown, match="batch 0"):
        run(SharedTransaction(sink, doubtful, decide_micro_batch(sink)), 0)
    successor = SharedTransaction(sink, cluster, decide_micro_batch(sink))
    assert run(successor, 0).outcome == outcome
    check(0)
    run(successor, 1)
    check(1)
