"""One seed's history: a query that must write some records exactly once, a cluster, and faults.

A driver that dies or stops is restarted, as a supervisor would do. A driver that pauses may get a successor and return
as a zombie. After some faults the world heals, and then the result must be correct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lab.simulation.chance import Seeded
from lab.simulation.check import ledger_of, violations
from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.coordinator import Coordinator, Phase
from lab.simulation.expiry import stand_still
from lab.simulation.kafka import ModelKafka
from lab.simulation.network import OFTEN, OFTEN_IF_LATE, Network
from lab.simulation.offsets import OFFSETS_TOPIC
from lab.simulation.query import OPTIONS, TOPIC, TOPICS, Checkpoint, Claim, SimulatedDriver, WritePath, contents_of
from lab.simulation.record import Recorder, Recording
from lab.simulation.world import Process, Stuck, World
from spark_kafka_eos.errors import IllegalTransactionState, KafkaEosError, LedgerRefused, ProducerFenced
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.real_time.task import FunctionFailed

_MARKER_DELAYS_S = (0.0, 0.0, 0.001, 0.003, 0.02)
_SLOW_MARKER_S = 20.0
_WAYS: Sequence[WritePath] = ("driver", "driver", "executors", "executors", "executors", "sink", "batch writes")
_WAYS_IF_LATE: Sequence[WritePath] = ("driver", "executors", "sink", "sink", "sink", "batch writes")  # it knows least
_RESTART_S = (0.0, 0.01, 1.0, 30.0)
_MOST_RUNS = 40


class AnyDriver(Protocol):
    """One run of the query in a driver, and how it ended."""

    process: Process
    finished: bool

    @property
    def error(self) -> Exception | None:
        """What stopped it, unless it was killed."""


@dataclass(slots=True, kw_only=True)
class History:
    """How a history went. `wrong` is empty if everything is correct; `trace` is empty unless it was requested.

    `met` counts the faults in requests, by Kafka's name of the request and kind of fault.
    """

    faults: Counter[str]
    met: Counter[tuple[str, str]]
    outcomes: Counter[str]
    wrong: list[str]
    trace: list[str] = field(default_factory=list)


def live(seed: int, *, traced: bool = False, conditions: Conditions = USUAL) -> History:
    """Run the seed's history to its end."""
    world = World(Seeded(seed), trace=[] if traced else None)
    return Life(world, conditions, name=f"seed {seed}").live()


def record(seed: int, *, conditions: Conditions = USUAL) -> Recording:
    """Run the seed's history to its end, and record its steps for the specification."""
    world = World(Seeded(seed))
    life = Life(world, conditions, name=f"seed {seed}")
    recorder = world.recorder = Recorder(lambda: world.now, contents_of, OPTIONS.ledger_topic)
    life.kafka.transactions.marked = recorder.marked
    history = life.live()
    return Recording(
        seed=seed,
        version=life.kafka.version,
        way=life.way,
        first_epoch=life.first_epoch,
        flags=conditions.flags,
        steps=tuple(recorder.steps),
        answered=frozenset(recorder.answered),
        refused=frozenset(recorder.refused),
        groups={name: group.kept_in for name, group in life.kafka.groups.items()},
        faults=frozenset(history.faults),
        wrong=tuple(history.wrong),
    )


class Life:
    """A history in this world, which answers all of its questions; the trace begins with its name."""

    def __init__(self, world: World, conditions: Conditions, *, name: str, topics: Mapping[str, int] = TOPICS) -> None:
        # The first answers determine the kind of history.
        self.world, chance = world, world.chance
        world.allow(
            faults=chance.choose("number of faults", range(1, 9)),
            share=chance.choose("share of faults", (0.02, 0.05, 0.1, 0.2)),
        )
        self.records = chance.choose("records", range(2, 4))
        self.way: WritePath = chance.choose("way", _WAYS_IF_LATE if conditions.late else _WAYS)
        self.spoils_checkpoint = chance.happens("checkpoint may be spoilt", 0.25)
        self.conditions = conditions
        version = chance.choose("transaction.version", (1, 2))
        last_epochs = chance.happens("last epochs", 0.05)
        self.first_epoch = chance.choose("first epoch", range(32_758, 32_766)) if last_epochs else -1
        self.kafka = ModelKafka(
            transaction_version=version,
            topics=topics,
            later=self._later,
            leaves_out=self._leaves_out,
            contents=contents_of,
            clock=lambda: world.now,
            first_epoch=self.first_epoch,
            conditions=conditions,
        )
        self.kafka.transactions.opened = self._time_out
        self.network = Network(self.kafka, often=OFTEN_IF_LATE if conditions.late else OFTEN)
        self.queries = 1
        self.checkpoint = Checkpoint("query 1")
        self.claims: list[Claim] = []
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.runs = 0
        self.spoilt = False
        self.drivers: dict[Process, AnyDriver] = {}
        self.rivalled: set[AnyDriver] = set()  # those that started while another one was alive
        self.current: AnyDriver | None = None
        world.note(
            f"{name}: transaction.version {self.kafka.version}, {self.way}, "
            f"{self.records} records in each source partition{conditions.flags}"
        )

    def live(self) -> History:
        world = self.world
        self._start(0.0)
        try:
            world.run(self._ended)
            world.settle()
            if self._offsets_wait():
                self._go_on()
        except Stuck as stuck:
            self.wrong.append(str(stuck))
        except Exception as error:  # noqa: BLE001 - any error of the product must be reported with its seed
            self.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            world.end()
        self.wrong += [*self.network.owners.wrong, *self.kafka.wrong]
        if not self.wrong:
            self.wrong = self._violations()
        return History(
            faults=world.faults,
            met=world.met,
            outcomes=self.outcomes,
            wrong=self.wrong,
            trace=world.trace or [],
        )

    def _violations(self) -> list[str]:
        return violations(self.kafka, self.claims, self.records, reads=self.way != "batch writes")

    def _offsets_wait(self) -> bool:
        """Whether the only open transactions are those that the next batch ends: of late offsets, and where a marker
        was left out.
        """
        if self.conditions.left_out and not self.wrong:
            return bool(self.kafka.open())
        if self.conditions.verification or self.wrong:
            return False
        return bool(self.kafka.open()) and not self.kafka.open(groups=False)

    def _go_on(self) -> None:
        """Let the query read more. Without verification, nothing keeps out a late TxnOffsetCommit, not even a second
        copy of a committed one. It must not prevent the next batch, and that batch must end it.
        """
        self.world.heal()
        self.world.note("something is still open: there is more to read")
        self.records += 1
        self._start(0.0)
        self.world.run(self._ended)
        self.world.settle()
        if self.conditions.left_out and not self.wrong:
            self._end_forgotten()

    # -- the cluster

    def _later(self, why: str, action: Callable[[], None]) -> None:
        """Let a marker be written, at a random time."""
        chance = self.world.chance
        slow = chance.happens("slow marker", 0.02)
        delay_s = _SLOW_MARKER_S if slow else chance.choose("marker's delay", _MARKER_DELAYS_S)
        self.world.message(delay_s, why, action)

    def _leaves_out(self, joined: Collection[TopicPartition]) -> TopicPartition | None:
        """The partition whose marker is left out, if one is. Not a group's if its producer id may be the last time in
        use: nobody who may not write markers could end that. Nor any of a bucket then: only the driver that had it in
        that producer id could.
        """
        if not self.conditions.left_out or not self.world.strikes("a marker", often=12):
            return None
        not_last = {OFFSETS_TOPIC, *([TOPIC] if self.conditions.real_time else ())}
        possible = sorted(tp for tp in joined if self.first_epoch < 0 or tp.topic not in not_last)
        if not possible:
            return None
        left_out = self.world.chance.choose("marker left out", possible)
        self.world.fault("marker left out", str(left_out))
        return left_out

    def _time_out(self, name: str, coordinator: Coordinator) -> None:
        """Let the transaction that was just opened time out, if it is still open then."""
        this = coordinator.transactions

        def time_out() -> None:
            if coordinator.transactions == this:
                if self.world.recorder is not None and coordinator.phase is Phase.ONGOING:
                    self.world.recorder.times_out()
                coordinator.time_out()

        self.world.after(coordinator.timeout_ms / 1e3, f"timeout of {name}", time_out)

    # -- the drivers

    def _start(self, after: float) -> None:
        self.runs += 1
        if self.runs > 4:
            self.world.heal()
        driver = self._new_driver(lambda seconds: self._paused(driver, seconds))
        if any(not process.fiber.done for process in self.drivers):
            self.rivalled.add(driver)
        self.current = self.drivers[driver.process] = driver
        self.world.start(driver.process, after)

    def _new_driver(self, on_pause: Callable[[float], None]) -> AnyDriver:
        return SimulatedDriver(
            self.world,
            self.network,
            self.checkpoint,
            number=self.runs,
            way=self.way,
            resumes=self.queries > 1,
            records=self.records,
            claims=self.claims,
            on_pause=on_pause,
            idle=self._stood_still,
            elsewhere=self.conditions.elsewhere,
            late=self.conditions.late,
            left_out=self.conditions.left_out,
            after_real_time=self.conditions.real_time,
        )

    def _paused(self, driver: AnyDriver, seconds: float) -> None:
        """The driver may be considered dead and get a successor; it will return as a zombie."""
        if driver is self.current and self.world.chance.happens("successor", 0.6):
            self.world.faults["zombie"] += 1
            self._start(self.world.chance.fraction("successor after") * seconds)

    def _ended(self, process: Process) -> None:
        driver = self.drivers.get(process)
        if driver is None:
            return
        error = driver.error
        self.outcomes["finished" if driver.finished else type(error).__name__ if error else "killed"] += 1
        if isinstance(error, IllegalTransactionState | FunctionFailed):
            self.wrong.append(f"{process.name}: {error}")
        owners = self.network.owners
        # Two requests of its own without an answer look like one, and one of another driver. In TV1, what a late
        # request of its own opened, and the coordinator aborted, looks like another driver's.
        doubtful = ("not answered", "or the coordinator aborted")
        fenced = (
            isinstance(error, ProducerFenced)
            and "now belongs to" in error.what
            and not any(doubt in error.what for doubt in doubtful)
        )
        if fenced and process is owners.last is owners.last_to_try:
            self.wrong.append(f"{process.name} took itself for another owner: {error}")
        if driver is not self.current:
            return
        if driver.finished:
            self._finished()
            return
        if self.runs >= _MOST_RUNS:
            self.wrong.append(f"after {self.runs} runs the query is not done: {error}")
            return
        if self._is_helped(error):
            pass
        elif isinstance(error, LedgerRefused):
            if self.spoilt or self._is_replaced():
                self._new_query()
            elif driver not in self.rivalled and process not in self.network.misled:
                self.wrong.append(f"{process.name} was refused without a reason: {error}")
                return
        elif self.spoils_checkpoint and self.world.chance.happens("checkpoint spoilt", 0.5):
            self._spoil()
        stood_still = 0.0 if any(not process.fiber.done for process in self.drivers) else self._stood_still(often=3)
        self._start(stood_still or self.world.chance.choose("restart after", _RESTART_S))

    def _finished(self) -> None:
        """The query has written everything."""

    def _is_helped(self, error: Exception | None) -> bool:
        """Whether an operator has done what this error advises, so that the query can start again. A start from the
        committed offsets reads the ledger before the sink could end what hangs there; and the sink gives up where one
        marker after the other is left out.
        """
        advised = isinstance(error, KafkaEosError) and (
            "hanging shows it" in error.action or "Its marker was written, and does not help" in error.what
        )
        if self.conditions.left_out and advised:
            self._end_all_by_operator()
            return True
        return False

    def _end_all_by_operator(self) -> None:
        """End everything that `kafka-eos transactions hanging` shows of the query."""
        known = self.kafka.transactions.open_ids()
        for tp, producer_id in self.kafka.transactions.left_out:
            if producer_id not in known and self.kafka.is_open(tp, producer_id):
                self._end_left_out(tp, producer_id)

    def _end_forgotten(self) -> None:
        """The same, of aborted transactions in the last epoch of a producer id in which nothing was ever committed. If
        the driver that aborted it dies at once, nobody knows the producer id any more: neither coordinator nor ledger.
        """
        known = {producer_id for _, producer_id, _ in self.kafka.transactions.states().values()}
        known |= {producer_id for producer_id, _ in ledger_of(self.kafka)}
        for (tp, producer_id), commit in self.kafka.transactions.left_out.items():
            if producer_id not in known and not commit and self.kafka.is_open(tp, producer_id):
                self._end_left_out(tp, producer_id)

    def _end_left_out(self, tp: TopicPartition, producer_id: int) -> None:
        """`kafka-eos transactions abort`, with --commit if the other partitions show that it was committed."""
        commit = self.kafka.transactions.left_out[tp, producer_id]
        self.world.faults["operator ends a transaction"] += 1
        self.world.note(f"an operator {'commits' if commit else 'aborts'} what is open in {tp}")
        self.kafka.end_at(tp, producer_id, commit=commit)

    def _is_replaced(self) -> bool:
        """Whether a driver of another query has gone on since."""
        return False

    def _stood_still(self, often: float = 1.0) -> float:
        """The seconds of a week without commits, in which groups expire; 0 if there is none now."""
        if not self.conditions.expiry or not self.world.strikes("a week", often):
            return 0.0
        return stand_still(self.world, self.kafka, (OPTIONS.ledger_group, OPTIONS.group_id))

    def _new_query(self) -> None:
        """Do what a refusal advises: continue with a new checkpoint from the committed offsets."""
        self.queries += 1
        self.checkpoint = Checkpoint(f"query {self.queries}")
        self.world.note("continues with a new checkpoint, from the committed offsets")

    def _spoil(self) -> None:
        """Lose the checkpoint, or restore an older copy of it."""
        self.spoilt = True
        next_batch = self.checkpoint.next_batch()
        if self.world.chance.happens("checkpoint lost", 0.4):
            self.world.faults["checkpoint lost"] += 1
            self._new_query()
        else:
            first = self.world.chance.choose("copy of the checkpoint", range(next_batch + 1))
            self.world.faults["checkpoint restored"] += 1
            self.world.note(f"the checkpoint is restored from a copy without batch {first} and later")
            older = Checkpoint("")
            older.files = dict(self.checkpoint.files)
            older.forget(first)
            self.checkpoint = older
