"""One seed's history of a query in real time: records that are produced meanwhile, drivers, tasks, and faults.

It has up to three phases, some of which are micro-batches: the query goes on in each of them where it was. Back in
micro-batches it has a new checkpoint, and starts where the ledger says, as the documentation says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Literal

from lab.simulation.chance import Seeded
from lab.simulation.check import ledger_of, reached, real_time_violations, rows_seen
from lab.simulation.conditions import Conditions
from lab.simulation.history import AnyDriver, History, Life
from lab.simulation.query import OPTIONS, SOURCE, TOPICS, Row
from lab.simulation.real_time import SOURCE_TOPIC, SimulatedRealTime, source_batch
from lab.simulation.world import Process, World
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition

_PRODUCED_S = (0.0, 0.0, 0.05, 0.3, 1.0, 3.0)
_SECONDS = (0.4, 1.5, 4.0)  # of a long micro-batch
# What refusals advise where a marker was left out, and of which partition an offset is missing.
_ABORT = re.compile(r"transactions abort --topic (\S+) --partition (\d+) --start-offset (\d+)")
_NO_OFFSET = re.compile(r"has no offset of (\S+)-(\d+),")
_NEW = TopicPartition(SOURCE_TOPIC, len(SOURCE))

Phase = Literal["real time", "micro-batches"]
_PHASES: tuple[tuple[Phase, ...], ...] = (
    ("real time",),
    ("real time",),
    ("real time", "real time"),
    ("micro-batches", "real time"),
    ("real time", "micro-batches"),
    ("real time", "micro-batches", "real time"),
)


def live(seed: int, *, traced: bool = False, conditions: Conditions) -> History:
    """Run the seed's history to its end."""
    return RealTimeLife(World(Seeded(seed), trace=[] if traced else None), conditions, name=f"seed {seed}").live()


class RealTimeLife(Life):
    """A history in this world, which answers all of its questions."""

    def __init__(self, world: World, conditions: Conditions, *, name: str) -> None:
        super().__init__(world, conditions, name=name, topics=TOPICS | {SOURCE_TOPIC: len(SOURCE)})
        chance = world.chance
        self.way = chance.choose("way of micro-batches", ("driver", "executors", "sink"))
        self.phases = list(chance.choose("phases", _PHASES))
        self.source = list(SOURCE)
        # A partition that is added while the query runs, which micro-batches of the simulation do not read.
        self.grows = "micro-batches" not in self.phases and chance.happens("a partition is added", 0.3)
        self.buckets = chance.choose("buckets", (None, 1, 2, 3))
        self.tasks = chance.choose("tasks", (1, 2, 2))
        self.seconds = chance.choose("seconds of a batch", _SECONDS)
        self.phase: Phase = "real time"
        self._begin_phase()

    def _violations(self) -> list[str]:
        finished = self.current is not None and self.current.finished and self._has_worked(self.current)
        return real_time_violations(self.kafka, dict.fromkeys(self._read(), self.records), finished=finished)

    def _has_worked(self, driver: AnyDriver) -> bool:
        """Not one that found everything committed."""
        if isinstance(driver, SimulatedRealTime):
            return bool(driver.tasks)
        return any(claim.who == driver.process.name for claim in self.claims)

    def _go_on(self) -> None:
        self.world.heal()
        self.world.note("something is still open: there is more to read")
        self.phases.append("real time")
        self._begin_phase()
        self._start(0.0)
        self.world.run(self._ended)
        self.world.settle()

    # -- phases

    def _begin_phase(self) -> None:
        before, self.phase = self.phase, self.phases.pop(0)
        self.records += self.world.chance.choose("more records", range(1, 4))
        self.world.note(f"{self.phase}, up to {self.records} records in each source partition")
        if (before, self.phase) == ("real time", "micro-batches") and self.runs:
            self._new_query()
        if self.grows and _NEW not in self.source:
            self.world.after(self.world.chance.choose("the partition is added after", _PRODUCED_S), "", self._grow)
        for tp in self.source:
            self._produce(tp)

    def _produce(self, tp: TopicPartition) -> None:
        """Let all that is missing be produced, at any time, if a query in real time reads it."""
        if self.phase == "micro-batches":
            self._append(tp, self.records)
        missing, after = self.records - self.kafka.partitions[tp].end_offset, 0.0
        while missing > 0:
            count = self.world.chance.choose("records of a producer", (1, 1, 2))
            after += self.world.chance.choose("produced after", _PRODUCED_S)
            self.world.after(after, f"{count} records are produced to {tp}", partial(self._append, tp, count))
            missing -= count

    def _append(self, tp: TopicPartition, count: int) -> None:
        log = self.kafka.partitions[tp]
        rows = tuple(Row(tp.partition, n) for n in range(log.end_offset, min(log.end_offset + count, self.records)))
        if rows:
            log.append_plain(rows, batch=source_batch(rows), leader_epoch=self.kafka.topics.leader_epoch[tp])

    def _grow(self) -> None:
        self.world.faults["partition added"] += 1
        self.world.note(f"{_NEW} is added")
        self.kafka.topics.add(_NEW)
        self.source.append(_NEW)
        self._produce(_NEW)

    def _read(self) -> list[TopicPartition]:
        """The partitions that the query has to read, sooner or later."""
        return [*SOURCE, _NEW] if self.grows else list(SOURCE)

    def _planned(self) -> dict[TopicPartition, int]:
        return {tp: self.kafka.partitions[tp].end_offset for tp in self.source}

    def _is_done(self, records: int) -> bool:
        offsets = reached(self.kafka)
        return all(offsets.get(tp, 0) >= records for tp in self._read())

    # -- drivers

    def _start(self, after: float) -> None:
        """Start the next driver, sometimes in the next phase, while tasks of the last one may still run."""
        stopped = self.current is not None and not self.current.finished and bool(self.phases)
        if stopped and self.world.chance.happens("next phase", 0.4):
            self._begin_phase()
        super()._start(after)

    def _new_driver(self, on_pause: Callable[[float], None]) -> AnyDriver:
        if self.phase == "micro-batches":
            return super()._new_driver(on_pause)
        if self.runs > 1 and self.world.chance.happens("other buckets", 0.15):
            self.buckets = self.world.chance.choose("buckets", (None, 1, 2, 3))
        return SimulatedRealTime(
            self.world,
            self.network,
            self.checkpoint,
            number=self.runs,
            buckets=self.buckets,
            tasks=self.tasks,
            seconds=self.seconds,
            planned=self._planned,
            is_done=partial(self._is_done, self.records),
            on_pause=on_pause,
            take_over=self._last_query() if self.grows else None,
            at_least=1 if self.conditions.left_out else 0,
        )

    def _is_helped(self, error: Exception | None) -> bool:
        """Where a marker was left out, do what the error advises."""
        if super()._is_helped(error):
            return True
        if not self.conditions.left_out or not isinstance(error, KafkaEosError):
            return False
        if (hanging := _ABORT.search(error.action)) is not None:
            topic, partition, start = hanging.groups()
            self._end_by_operator(TopicPartition(topic, int(partition)), int(start))
        elif "whether the last batch was committed is not known" in error.what:
            self._end_all_by_operator()
        elif "when all partitions have a leader" in error.action:
            self.world.heal()
        elif (missing := _NO_OFFSET.search(error.what)) is not None:
            self._set_by_operator(TopicPartition(missing[1], int(missing[2])))
        else:
            return False
        return True

    def _end_by_operator(self, tp: TopicPartition, start: int) -> None:
        """`kafka-eos transactions abort`, with --commit if the other partitions show that it was committed."""
        producer_id = self.kafka.open_at(tp, start)
        if producer_id is not None:  # otherwise another driver has ended it since
            self._end_left_out(tp, producer_id)

    def _set_by_operator(self, tp: TopicPartition) -> None:
        """`kafka-consumer-groups --reset-offsets` to where the output ends."""
        offset = 1 + max((row.offset for row in rows_seen(self.kafka) if row.partition == tp.partition), default=-1)
        self.world.faults["operator sets an offset"] += 1
        self.world.note(f"an operator sets the group to {offset} of {tp}")
        self.kafka.group(OPTIONS.group_id).commit_at_once({tp: (offset, "")}, now_s=self.world.now)

    def _last_query(self) -> str | None:
        """The query to name with a new checkpoint: of a partition that is new, too, it is not known whose it was."""
        entries = list(ledger_of(self.kafka).values())
        return entries[-1].query_id if entries else None

    def _ended(self, process: Process) -> None:
        driver = self.drivers.get(process)
        if isinstance(driver, SimulatedRealTime):
            driver.end_tasks()
        super()._ended(process)

    def _is_replaced(self) -> bool:
        """A driver of an earlier phase that comes back may start as any other driver, with its query. And tasks that
        outlive theirs may commit until their buckets are taken, after micro-batches have planned where to start.
        """
        queries = [entry.query_id for entry in ledger_of(self.kafka).values()]
        other = bool(queries) and queries[-1] != self.checkpoint.query
        return other and (self.checkpoint.query in queries or self.phase == "micro-batches")

    def _finished(self) -> None:
        if self.phases:
            self._begin_phase()
            self._start(0.0)
