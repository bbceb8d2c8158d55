"""The plan against the simulation's model of a partition's leader: all orders of events with a few faults in them.

A sender with seven batches of one partition: more than the five that a leader remembers. What may be sent is sent at
once, as `Appender` does; everything else happens in every order. Each state is looked at once.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import pytest

from lab.simulation.partition import Partition
from spark_kafka_eos.errors import BrokerUnreachable, KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack
from spark_kafka_eos.kafka.producing.send_plan import Batch, PartitionResponse, SendPlan, SendRequest
from tests.matrix import Cell

AT = TopicPartition("orders", 0)
BATCHES = 7
PRODUCER_ID, EPOCH = 1, 0
REQUEST_TIMED_OUT, NOT_LEADER = 7, 6
Event = tuple[str, int, int]


@dataclass(eq=False)
class Connection:
    """Requests on their way to a broker, and its answers on their way back, both in order."""

    node: int
    unanswered: list[SendRequest] = field(default_factory=list)  # as the sender sees it
    unread: list[Batch] = field(default_factory=list)  # by the broker
    answers: list[PartitionResponse] = field(default_factory=list)
    lost: bool = False


class World:
    """One state: sender, connections and the leader's log, which all replicas share."""

    def __init__(self) -> None:
        self.plan = SendPlan(max_in_flight=5, max_held_bytes=0, linger_bytes=0)
        self.leader = self.known_leader = 1
        self.log = Partition()
        self.connections: list[Connection] = []
        self.acknowledged: list[int] = []
        self.faults = 0
        for number in range(BATCHES):
            self.plan.queued(AT, b"", 1, number)
        self.send()

    # -- what may happen

    def events(self, max_faults: int) -> Iterator[Event]:
        """Each with the connection or the node, and how many of the unread requests arrive."""
        may_fail = self.faults < max_faults
        for at, connection in enumerate(self.connections):
            if connection.unread:
                yield "process", at, 0
                if may_fail and not connection.lost:
                    yield "fail before", at, 0
                    yield "fail after", at, 0
            if connection.answers and not connection.lost:
                yield "receive", at, 0
            if may_fail and not connection.lost and connection.unanswered:
                for arrive in range(len(connection.unread) + 1):
                    yield "lose", at, arrive
        if may_fail:
            yield "move", 3 - self.leader, 0

    def happens(self, event: str, at: int, arrive: int) -> None:
        self.faults += event in ("fail before", "fail after", "lose", "move")
        if event == "move":
            self.leader = at
            return
        connection = self.connections[at]
        if event == "receive":
            self.receive(connection)
        elif event == "lose":
            connection.lost, connection.unread = True, connection.unread[:arrive]
            self.plan.lost(connection.unanswered)
            connection.unanswered, connection.answers = [], []
            self.recover()
        else:
            answer = self.process(connection.node, connection.unread.pop(0), event)
            if not connection.lost:
                connection.answers.append(answer)
        self.connections = [each for each in self.connections if each.unread or not each.lost]

    def process(self, node: int, batch: Batch, event: str) -> PartitionResponse:
        if event == "fail before":
            return PartitionResponse(REQUEST_TIMED_OUT)
        if node != self.leader:
            return PartitionResponse(NOT_LEADER)
        code, offset = self.log.append(PRODUCER_ID, EPOCH, batch.base_sequence, (batch.base_sequence,))
        return PartitionResponse(REQUEST_TIMED_OUT if event == "fail after" and not code else code, base_offset=offset)

    def receive(self, connection: Connection) -> None:
        actions = self.plan.answered(connection.unanswered.pop(0), {AT: connection.answers.pop(0)})
        self.acknowledged += [action.base_sequence for action in actions if isinstance(action, Ack)]
        if any(not isinstance(action, Ack) for action in actions):
            self.recover()
        self.send()

    def recover(self) -> None:
        self.plan.unreachable(BrokerUnreachable("the connection was lost"))
        self.known_leader = self.leader
        self.send()

    def send(self) -> None:
        while self.plan.sendable() and (requests := self.plan.requests({AT: self.known_leader})):
            for request in requests:
                assert request.connection.number == 0, "nothing here is worth a second one"
                connection = self.connection()
                self.plan.sent(request)
                connection.unanswered.append(request)
                connection.unread += request.batches

    def connection(self) -> Connection:
        for connection in self.connections:
            if connection.node == self.known_leader and not connection.lost:
                return connection
        self.connections.append(Connection(self.known_leader))
        return self.connections[-1]

    # -- what must hold

    def check(self) -> None:
        values = [entry.content[0] for entry in self.log.log]
        assert values == list(range(len(values))), "the log is in order, without duplicates or gaps"
        assert sorted(self.acknowledged) == sorted({*self.acknowledged}), "nothing is acknowledged twice"
        assert {*self.acknowledged} <= {*values}, "only what is in the log is acknowledged"
        if not any(connection.unread or connection.answers for connection in self.connections):
            assert len(self.acknowledged) == BATCHES, "nothing is left to happen, and not all is acknowledged"

    def state(self) -> Hashable:
        """What two states have in common that go on alike; of the attempts, whether a batch was sent again counts."""
        queue = self.plan._queues[AT]
        return (
            tuple(batch.number for batch in queue.failed),
            tuple(batch.number for batch in queue.waiting),
            self.leader,
            self.known_leader,
            self.faults,
            len(self.log.log),
            frozenset(self.acknowledged),
            tuple(
                (
                    each.node,
                    each.lost,
                    tuple(
                        (batch.number, min(batch.sent, 2)) for request in each.unanswered for batch in request.batches
                    ),
                    tuple(batch.number for batch in each.unread),
                    tuple(answer.code for answer in each.answers),
                )
                for each in self.connections
            ),
        )


def explore(max_faults: int) -> int:
    """All states with so many faults on the way, each checked. Returns their number."""
    seen = set[Hashable]()
    todo: deque[tuple[bytes, tuple[Event, ...]]] = deque([(pickle.dumps(World()), ())])
    while todo:
        before, way = todo.popleft()
        for event in pickle.loads(before).events(max_faults):
            world: World = pickle.loads(before)
            try:
                world.happens(*event)
                world.check()
            except (AssertionError, KafkaEosError) as error:
                raise AssertionError(f"{error}, after {[*way, event]}") from error
            if (state := world.state()) not in seen:
                seen.add(state)
                todo.append((pickle.dumps(world), (*way, event)))
    return len(seen)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("max_faults", [1, *(pytest.param(more, marks=pytest.mark.slow) for more in (2, 3))])
def test_faults_in_every_order_change_nothing(cell: Cell, max_faults: int) -> None:
    cell("The send plan, exhausted", f"{max_faults} faults", "states", f"{explore(max_faults):,}")
