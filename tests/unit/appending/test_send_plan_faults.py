"""The plan against the simulation's model of a partition's leader, under any interleaving of their faults."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from lab.simulation.partition import Partition
from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack
from spark_kafka_eos.kafka.producing.send_plan import (
    Batch,
    LeaderConnection,
    PartitionResponse,
    Recover,
    SendPlan,
    SendRequest,
)
from spark_kafka_eos.kafka.producing.sequences import next_sequence

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
NODES = (1, 2)
PRODUCER_ID, EPOCH = 1, 0
NOT_LEADER = 6
SMALL, LARGE = bytes(10), bytes(1 << 20)  # the latter worth a second connection
STEPS_TO_CALM = 1_000

partitions = st.sampled_from(PARTITIONS)
retriable = st.sampled_from([7, 19, 51, 56])


@dataclass(eq=False)
class Broker:
    """The leader of a partition, whose log all replicas share."""

    leader: int = 1
    partition: Partition = field(default_factory=Partition)

    @property
    def log(self) -> list[int]:
        """The base sequences."""
        return [entry.content[0] for entry in self.partition.log]

    def append(self, node: int, batch: Batch) -> PartitionResponse:
        if node != self.leader:
            return PartitionResponse(NOT_LEADER)
        content = (batch.base_sequence,) * batch.records
        code, offset = self.partition.append(PRODUCER_ID, EPOCH, batch.base_sequence, content)
        return PartitionResponse(code, base_offset=offset)


@dataclass(eq=False)
class Connection:
    """Requests on their way to a broker, and its answers on their way back, both in order."""

    to: LeaderConnection
    unanswered: deque[SendRequest] = field(default_factory=deque)  # as the sender sees it
    unread: deque[SendRequest] = field(default_factory=deque)  # by the broker
    answers: deque[dict[TopicPartition, PartitionResponse]] = field(default_factory=deque)
    broken: bool = False


class Sending(RuleBasedStateMachine):
    """Each rule is one thing that happens; between any two of them all that must always hold is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = SendPlan(max_in_flight=5, max_held_bytes=0, linger_bytes=0)
        self.brokers = {tp: Broker() for tp in PARTITIONS}
        self.leaders = dict.fromkeys(PARTITIONS, 1)  # as the sender knows them
        self.queued: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in PARTITIONS}
        self.acknowledged: list[Ack] = []
        self.connections: list[Connection] = []

    # -- the sender

    @rule(tp=partitions, records=st.integers(1, 3), large=st.booleans(), count=st.integers(1, 7))
    def queue(self, tp: TopicPartition, records: int, large: bool, count: int) -> None:
        for _ in range(count):
            sequence = next_sequence(*self.queued[tp][-1]) if self.queued[tp] else 0
            self.queued[tp].append((sequence, records))
            self.plan.queued(tp, LARGE if large else SMALL, records, sequence)

    @rule(fails=st.sampled_from([None, "connecting", "sending", "after sending"]), at=st.integers(0, 3))
    def send(self, fails: str | None, at: int) -> None:
        for number, request in enumerate(self.plan.requests({tp: self.leaders[tp] for tp in self.plan.sendable()})):
            failure = fails if number == at else None
            if failure == "connecting":
                self.recover(self.plan.unreachable(BrokerUnreachable("refused")))
                return
            self.check(request)
            connection = self.connection(request.connection)
            self.plan.sent(request)
            connection.unanswered.append(request)
            if failure != "sending":
                connection.unread.append(request)
            if failure:
                connection.broken = True
                self.notice(connection)
                return

    @rule(which=st.integers(0, 9))
    def receive(self, which: int) -> None:
        answered = [connection for connection in self.connections if connection.answers and not connection.broken]
        if answered:
            connection = answered[which % len(answered)]
            for action in self.plan.answered(connection.unanswered.popleft(), connection.answers.popleft()):
                if isinstance(action, Ack):
                    self.acknowledged.append(action)
                else:
                    self.recover(action)

    @rule(which=st.integers(0, 9))
    def notice_a_lost_connection(self, which: int) -> None:
        broken = [connection for connection in self.connections if connection.broken and connection.unanswered]
        if broken:
            self.notice(broken[which % len(broken)])

    @rule()
    def look_up_the_leaders(self) -> None:
        self.leaders = {tp: broker.leader for tp, broker in self.brokers.items()}

    # -- the brokers and the network

    @rule(which=st.integers(0, 9), failing=partitions, before=retriable | st.none(), after=retriable | st.none())
    def process(self, which: int, failing: TopicPartition, before: int | None, after: int | None) -> None:
        """A broker reads a request, also one from a connection that is lost; one partition may fail, on either side of
        the append."""
        unread = [connection for connection in self.connections if connection.unread]
        if not unread:
            return
        connection = unread[which % len(unread)]
        request = connection.unread.popleft()
        answers = {}
        for batch in request.batches:
            tp = batch.partition
            if before and tp == failing:
                answers[tp] = PartitionResponse(before)
                continue
            answers[tp] = self.brokers[tp].append(connection.to.leader, batch)
            if after and tp == failing and not answers[tp].code:
                answers[tp] = PartitionResponse(after)
        connection.answers.append(answers)

    @rule(which=st.integers(0, 9), arrive=st.integers(0, 5))
    def lose_a_connection(self, which: int, arrive: int) -> None:
        """Some of the requests in flight arrive nevertheless, at any time."""
        sound = [connection for connection in self.connections if not connection.broken]
        if sound:
            connection = sound[which % len(sound)]
            connection.broken = True
            connection.unread = deque(list(connection.unread)[:arrive])

    @rule(tp=partitions, node=st.sampled_from(NODES))
    def move_a_leader(self, tp: TopicPartition, node: int) -> None:
        self.brokers[tp].leader = node

    # -- what must hold

    @invariant()
    def at_most_five_are_in_flight_and_the_first_one_alone(self) -> None:
        for tp, count in Counter(batch.partition for batch in self.in_flight()).items():
            assert count <= (5 if self.is_known(tp) else 1)
        for leader, count in Counter(
            connection.to for connection in self.connections for _ in connection.unanswered
        ).items():
            assert count <= 5, leader

    @invariant()
    def the_leader_remembers_all_that_may_be_sent_again(self) -> None:
        """It remembers five batches: the oldest that is not acknowledged has at most four behind it."""
        for tp, queued in self.queued.items():
            sequences = [sequence for sequence, _ in queued]
            done = {ack.base_sequence for ack in self.acknowledged if ack.partition == tp}
            oldest = next((at for at, sequence in enumerate(sequences) if sequence not in done), None)
            for batch in self.in_flight():
                if batch.partition == tp:
                    assert oldest is not None and sequences.index(batch.base_sequence) - oldest < 5

    @invariant()
    def what_is_held_is_what_is_not_acknowledged(self) -> None:
        assert (self.plan.held_bytes > 0) == (len(self.acknowledged) < sum(map(len, self.queued.values())))

    @invariant()
    def logs_are_in_order_and_without_duplicates(self) -> None:
        for tp, broker in self.brokers.items():
            assert broker.log == [sequence for sequence, _ in self.queued[tp]][: len(broker.log)]

    @invariant()
    def only_what_is_in_the_log_is_acknowledged_and_once(self) -> None:
        seen = {(ack.partition, ack.base_sequence) for ack in self.acknowledged}
        assert len(seen) == len(self.acknowledged)
        assert seen <= {(tp, sequence) for tp, broker in self.brokers.items() for sequence in broker.log}

    def teardown(self) -> None:
        """Once the faults end, everything is acknowledged."""
        for _ in range(STEPS_TO_CALM):
            if not self.plan.held_bytes:
                break
            self.look_up_the_leaders()
            self.send(None, 0)
            self.process(0, PARTITIONS[0], None, None)
            self.receive(0)
            self.notice_a_lost_connection(0)
        for tp, broker in self.brokers.items():
            assert broker.log == [sequence for sequence, _ in self.queued[tp]]
        self.only_what_is_in_the_log_is_acknowledged_and_once()
        assert len(self.acknowledged) == sum(map(len, self.queued.values()))

    def check(self, request: SendRequest) -> None:
        """What is about to be sent is the oldest that is not acknowledged, and goes where the others of its partition
        are."""
        for batch in request.batches:
            tp = batch.partition
            others = [other for other in self.in_flight() if other.partition == tp]
            done = {ack.base_sequence for ack in self.acknowledged if ack.partition == tp}
            done.update(other.base_sequence for other in others)
            assert batch.base_sequence == next(sequence for sequence, _ in self.queued[tp] if sequence not in done)
            if not self.is_known(tp):
                assert request.connection.number == 0
            taken = {connection.to for connection in self.connections for other in others if holds(connection, other)}
            assert {each.number for each in taken} <= {request.connection.number}

    # -- helpers

    def connection(self, to: LeaderConnection) -> Connection:
        for connection in self.connections:
            if connection.to == to and not connection.broken:
                return connection
        self.connections.append(Connection(to))
        return self.connections[-1]

    def notice(self, connection: Connection) -> None:
        requests, connection.unanswered = connection.unanswered, deque()
        self.plan.lost(requests)
        self.recover(self.plan.unreachable(BrokerUnreachable("the connection was lost")))

    def recover(self, needed: Recover) -> None:
        if needed.topics:
            self.look_up_the_leaders()

    def in_flight(self) -> Iterator[Batch]:
        for connection in self.connections:
            yield from batches(connection.unanswered)

    def is_known(self, tp: TopicPartition) -> bool:
        return any(ack.partition == tp for ack in self.acknowledged)


def batches(requests: Sequence[SendRequest]) -> Iterator[Batch]:
    for request in requests:
        yield from request.batches


def holds(connection: Connection, batch: Batch) -> bool:
    return any(other is batch for other in batches(connection.unanswered))


def test_under_any_faults_every_batch_is_appended_once_in_order_and_acknowledged_once() -> None:
    run_state_machine_as_test(Sending, settings=settings(max_examples=50))
