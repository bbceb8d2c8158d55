"""Makes real runs, one after the other, and records them for the specification."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lab.real_runs import driver
from lab.real_runs.broker import OFFSETS_PARTITIONS, WatchedBroker
from lab.real_runs.driver import PARTITIONS, contents_of, row_of
from lab.real_runs.faults import REQUEST_TIMEOUT_S, Fault, draw
from lab.real_runs.query import Main, Query
from lab.real_runs.witness import Witness
from lab.simulation.record import Arrived, Recorder, Recording, Requested, Step
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import describe, offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.reading.records import read

_OFFSETS_TOPIC = "__consumer_offsets"
_FAULTS = 2, 6  # how many, at least and at most
_HOLDS, _SPOILS = 0.6, 0.3  # how often
_SENT_ONCE = ("Produce", "EndTxn")  # in one epoch, the same record batch or end
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRuns:
    """A query's runs as they were recorded, how many drivers were killed, and where, what was to happen to drivers
    (`met`), and what did: a driver may end before its fault comes.
    """

    recording: Recording
    killed: Counter[str]
    happened: Counter[str]
    met: Counter[str]


def record(
    broker: WatchedBroker,
    seed: int,
    *,
    holds: bool | None = None,
    main: Main = driver.main,
    rules: Sequence[str] = (),
    faults: Sequence[Fault] | None = None,
) -> RealRuns:
    """Run a query to the end of its source. By default, the seed draws the `faults`, and `holds`, for which see Job.
    `main` is what a driver's process calls. `rules` are the proxy's, besides those of the faults.

    Raises ToolFailed if the query does not come to its end.
    """
    chance = random.Random(seed)  # noqa: S311 - it chooses faults, not keys
    version = broker.cluster.transaction_version()
    name = _name()
    output = broker.kafka.create_topic(f"out-{name}", PARTITIONS)
    settings: dict[str, object] = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.transactional.id": name,
        "kafka.request.timeout.ms": int(REQUEST_TIMEOUT_S * 1e3),
        "kafka.delivery.timeout.ms": 15_000,
        "kafka.retry.backoff.ms": 20,
    }
    options = sink_options({**settings, "topic": output})
    recorder = Recorder(time.monotonic, partial(contents_of, output), options.ledger_topic)
    witness = Witness(recorder=recorder, facts=partial(_facts, broker.asked, name))
    if faults is None:
        faults = [draw(chance, version) for _ in range(chance.randint(*_FAULTS))]
    drawn = chance.random() < _HOLDS
    query = Query(
        output=output,
        holds=drawn if holds is None else holds,
        spoils=chance.random() < _SPOILS,
        faults=faults,
        chance=chance,
        proxy=broker.proxy,
        witness=witness,
        settings=settings,
        main=main,
    )
    broker.witness = witness
    for rule in rules:
        broker.proxy.add(rule)
    try:
        query.live()
        witness.await_completed()
        for tp, rows in _shown(broker, output):
            recorder.shown(tp, rows)
    finally:
        broker.witness = None
    groups = (options.group_id, options.ledger_group)
    recording = Recording(
        seed=seed,
        version=version,
        way="driver" if query.holds else "sink",
        first_epoch=-1,
        flags="",
        steps=tuple(recorder.steps),
        answered=frozenset(recorder.answered) - given_up(recorder.steps),
        refused=frozenset(recorder.refused),
        groups={group: TopicPartition(_OFFSETS_TOPIC, kept_in(group)) for group in groups},
        faults=frozenset(query.met),
        wrong=(),
        output=output,
        timeouts_s=query.timeouts_s,
    )
    return RealRuns(recording=recording, killed=query.killed, happened=query.happened, met=query.met)


def given_up(steps: Sequence[Step]) -> frozenset[int]:
    """The requests of which their senders sent something again that the brokers had carried out: they had given them up
    when the answer was on its way to them, so none of them has taken it.
    """
    answers = {step.number: step.answer.codes for step in steps if isinstance(step, Arrived)}
    parts = [
        (place, append, step)
        for step in steps
        if isinstance(step, Requested) and step.request.api in _SENT_ONCE
        for place, append in enumerate(step.request.appends or (None,))
    ]
    return frozenset(
        first.number
        for (place, append, first), (_, another, second) in itertools.combinations(parts, 2)
        if (first.driver, first.request.api, first.request.epoch, append)
        == (second.driver, second.request.api, second.request.epoch, another)
        and answers.get(first.number, ())[place : place + 1] == (0,)
    )


def kept_in(group: str, partitions: int = OFFSETS_PARTITIONS) -> int:
    """The partition of __consumer_offsets with this group: Java's hash of its name, as GroupCoordinator has it."""
    code = 0
    for unit in group:
        code = (31 * code + ord(unit)) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def _facts(cluster: Cluster, name: str) -> TransactionFacts | None:
    """What the coordinator says of a transactional.id."""
    facts = describe.transaction(cluster, name, now_ms=0)
    assert facts is None or isinstance(facts, TransactionFacts), facts
    return facts


def _name() -> str:
    """A transactional.id that no run had, whose two groups have different partitions, as in the specification."""
    names = (f"run-{number}" for number in _numbers)
    return next(name for name in names if kept_in(name) != kept_in(f"{name}.ledger"))


def _shown(broker: WatchedBroker, output: str) -> Iterator[tuple[TopicPartition, tuple[tuple[int, int], ...]]]:
    """What a reader of committed records finds in each partition."""
    options = source_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": output})
    ends = offsets.latest(broker.cluster, [TopicPartition(output, number) for number in range(PARTITIONS)])
    for tp, end in sorted(ends.items()):
        batches = read([OffsetRange(partition=tp, start=0, end=end)], options, broker.cluster)
        yield tp, tuple(row_of(value) for batch in batches for value in batch["value"].to_pylist())
