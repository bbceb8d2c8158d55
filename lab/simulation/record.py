"""Records what processes do at the edge of the network, and what the brokers do by themselves: the steps of a history.

Each step is a value, with the drivers' names. What they mean in the specification is in `lab.specification.steps`. The
history is one of the simulation, or of real processes on a real broker (`lab.real_runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.wire.record_batch import HEADER
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.micro_batch import MicroBatch

if TYPE_CHECKING:
    from lab.simulation.query import Checkpoint

RECORDED = (
    "DescribeTransactions", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit",
    "EndTxn", "OffsetFetch", "ListOffsets", "Fetch",
)  # fmt: skip

Contents = Callable[[TopicPartition, bytes], tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A record batch in a Produce request: rows, or in the ledger an entry."""

    partition: TopicPartition
    sequence: int
    rows: tuple[tuple[int, int], ...] = ()
    entry: LedgerEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request without what the specification does not have; `epoch` is -1 without one."""

    api: str
    epoch: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    group: str = ""
    commit: bool = False
    appends: tuple[Append, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Error codes, one for each partition of Produce, otherwise the first one that is not 0. `state` and `epoch` are
    the coordinator's, `epoch` is also the new one after InitProducerId.
    """

    codes: tuple[int, ...]
    state: str = ""
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Requested:
    """`number` is different for each request. `straggles`: by a task that its driver has given up."""

    number: int
    at_s: float
    driver: str
    straggles: bool
    request: Request


@dataclass(frozen=True, slots=True)
class Arrived:
    number: int
    at_s: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class Began:
    """`checkpoint` numbers the checkpoints of a history from 0. `plan` has the ends of its batches, `done` the number
    of them that are recorded as done, as it was when the first driver began with it; `batch` is the one to begin with.
    """

    driver: str
    checkpoint: int
    query: str
    plan: tuple[Offsets, ...]
    done: int
    batch: int


@dataclass(frozen=True, slots=True)
class Planned:
    driver: str
    batch: int
    start: Offsets
    end: Offsets


@dataclass(frozen=True, slots=True)
class Noted:
    driver: str
    batch: int


@dataclass(frozen=True, slots=True)
class RanAgain:
    """A task or a stage of the driver's current attempt."""

    driver: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """`why` is the name of an error's class, empty if the driver has finished."""

    driver: str
    why: str


@dataclass(frozen=True, slots=True)
class Marked:
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The coordinator aborted the open transaction."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reader of committed records finds in an output partition."""

    partition: TopicPartition
    rows: tuple[tuple[int, int], ...]


Step = Requested | Arrived | Began | Planned | Noted | RanAgain | Stopped | Marked | TimedOut | Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A history. `answered` has the numbers of the requests whose senders received the brokers' answer, `refused` of
    those that got an error without having been handled; `groups` has the partition of each group. `faults` are the
    kinds of faults that it had. `output` is the topic, `timeouts_s` has the transaction timeouts of drivers that have
    another one than 60 s.
    """

    seed: int
    version: int
    way: str
    first_epoch: int
    flags: str
    steps: tuple[Step, ...]
    answered: frozenset[int]
    refused: frozenset[int]
    groups: Mapping[str, TopicPartition]
    faults: frozenset[str]
    wrong: tuple[str, ...]
    output: str = "out"
    timeouts_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Sent:
    """A request on its way."""

    number: int
    recorder: Recorder
    request: Request
    received: list[Any] = field(default_factory=list)

    def arrives(self, handle: Callable[[], Any]) -> Any:
        """Have the brokers `handle` it."""
        answer = handle()
        self.arrived(answer)
        return answer

    def arrived(self, answer: Any) -> None:
        """The brokers have handled it, with this answer."""
        self.received.append(answer)
        self.recorder.arrives(self, answer)

    def answered(self, answer: Any) -> None:
        """Its sender has received `answer`: a broker's that has handled it, or of one that has not."""
        if any(answer is received for received in self.received):
            self.recorder.answered.add(self.number)
        elif not self.received:
            self.recorder.refused.add(self.number)


class Recorder:
    """Records the steps of one history, at the times of `clock`; `contents` are those of a record batch."""

    def __init__(self, clock: Callable[[], float], contents: Contents, ledger_topic: str) -> None:
        self._clock, self._contents, self._ledger_topic = clock, contents, ledger_topic
        self.steps: list[Step] = []
        self.answered: set[int] = set()
        self.refused: set[int] = set()
        self._requests = 0
        self._checkpoints: list[Checkpoint] = []

    # -- requests

    def sends(self, driver: str, api: str, request: Any, *, straggles: bool = False) -> Sent | None:
        """The request that a driver, or a task of it, sends now; None if it is none of `RECORDED`."""
        if api not in RECORDED:
            return None
        self._requests += 1
        what = self._request(api, request)
        self.steps.append(Requested(self._requests, self._clock(), driver, straggles, what))
        return Sent(self._requests, self, what)

    def arrives(self, sent: Sent, answer: Any) -> None:
        """The brokers have handled the request."""
        self.steps.append(Arrived(sent.number, self._clock(), answer_of(sent.request.api, answer)))

    def _request(self, api: str, request: Any) -> Request:
        match api:
            case "InitProducerId":
                return Request(api=api, epoch=request.producer_epoch)
            case "AddPartitionsToTxn":
                topics = request.v3_and_below_topics
                partitions = tuple(TopicPartition(topic.name, n) for topic in topics for n in topic.partitions)
                return Request(api=api, epoch=request.v3_and_below_producer_epoch, partitions=partitions)
            case "AddOffsetsToTxn" | "TxnOffsetCommit":
                return Request(api=api, epoch=request.producer_epoch, group=request.group_id)
            case "EndTxn":
                return Request(api=api, epoch=request.producer_epoch, commit=request.committed)
            case "OffsetFetch":
                return Request(api=api, group=request.group_id)
            case "Produce":
                batches = [(TopicPartition(t.name, p.index), p) for t in request.topic_data for p in t.partition_data]
                epochs = {HEADER.unpack_from(data.records)[10] for _, data in batches}
                return Request(
                    api=api, epoch=max(epochs), appends=tuple(self._append(tp, data.records) for tp, data in batches)
                )
        return Request(api=api)

    def _append(self, tp: TopicPartition, records: Any) -> Append:
        batch = bytes(records)
        sequence, contents = HEADER.unpack_from(batch)[11], self._contents(tp, batch)
        if tp.topic == self._ledger_topic:
            return Append(partition=tp, sequence=sequence, entry=entry_format.decode_record(contents[0][1]))
        return Append(partition=tp, sequence=sequence, rows=tuple((row[0], row[1]) for row in contents))

    # -- what is not a request

    def begins(self, driver: str, checkpoint: Checkpoint, batch: int) -> None:
        """A driver begins with this checkpoint."""
        if all(checkpoint is not earlier for earlier in self._checkpoints):
            self._checkpoints.append(checkpoint)
        number = next(n for n, earlier in enumerate(self._checkpoints) if earlier is checkpoint)
        plan: list[Offsets] = []
        while (end := checkpoint.end(len(plan))) is not None:
            plan.append(end)
        done = sum(f"commits/{n}" in checkpoint.files for n in range(len(plan)))
        self.steps.append(Began(driver, number, checkpoint.query, tuple(plan), done, batch))

    def plans(self, driver: str, batch: MicroBatch) -> None:
        """A driver is about to write this batch."""
        assert batch.start is not None
        self.steps.append(Planned(driver, batch.batch_id, batch.start, batch.end))

    def notes(self, driver: str, batch: int) -> None:
        """A driver records that the batch is done, unless this was recorded before."""
        self.steps.append(Noted(driver, batch))

    def runs_again(self, driver: str) -> None:
        """A task or a stage of this driver runs again."""
        self.steps.append(RanAgain(driver))

    def stops(self, driver: str, why: str) -> None:
        """A driver has ended, with an error of this class, or without one."""
        self.steps.append(Stopped(driver, why))

    def marked(self, partition: TopicPartition) -> None:
        """A marker was written."""
        self.steps.append(Marked(partition))

    def times_out(self) -> None:
        """The coordinator aborted the transaction that was open."""
        self.steps.append(TimedOut())

    def shown(self, partition: TopicPartition, rows: tuple[tuple[int, int], ...]) -> None:
        """A reader of committed records has found these in an output partition."""
        self.steps.append(Shown(partition, rows))


def answer_of(api: str, answer: Any) -> Answer:
    """What is recorded of kafka-python's response to a request of this API."""
    match api:
        case "Produce":
            return Answer(codes=tuple(p.error_code for topic in answer.responses for p in topic.partition_responses))
        case "AddPartitionsToTxn":
            topics = answer.results_by_topic_v3_and_below
            return _first_error(p.partition_error_code for topic in topics for p in topic.results_by_partition)
        case "TxnOffsetCommit":
            return _first_error(p.error_code for topic in answer.topics for p in topic.partitions)
        case "DescribeTransactions":
            (described,) = answer.transaction_states
            if described.error_code:
                return Answer(codes=(described.error_code,))
            return Answer(codes=(0,), state=described.transaction_state, epoch=described.producer_epoch)
        case "InitProducerId" | "EndTxn":
            return Answer(codes=(answer.error_code,), epoch=getattr(answer, "producer_epoch", -1))
        case "AddOffsetsToTxn":
            return Answer(codes=(answer.error_code,))
    return Answer(codes=(0,))


def _first_error(codes: Any) -> Answer:
    return Answer(codes=(next((code for code in codes if code), 0),))
