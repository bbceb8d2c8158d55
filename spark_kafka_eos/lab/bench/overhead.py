"""KIP-98's sweep: plain, idempotent, transactional × message size × transaction length × read_committed.

It measures the protocol and the clients, without Spark. The producer encodes, stamps and appends as an append task
does; the reader fetches and decodes as a source task does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from statistics import median

import pyarrow as pa
from confluent_kafka import Producer

from spark_kafka_eos.broker.produce import Appender
from spark_kafka_eos.broker.transactions import TransactionCoordinator, idempotent_identity
from spark_kafka_eos.core.sequences import next_sequence
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.bench import java, sides
from spark_kafka_eos.lab.bench.against import Against
from spark_kafka_eos.lab.bench.alternating import Side, alternate
from spark_kafka_eos.lab.bench.figures import Point, Sweep
from spark_kafka_eos.lab.bench.inputs import Shape, ranges, rows
from spark_kafka_eos.lab.bench.lab import Lab
from spark_kafka_eos.model import IsolationLevel, OffsetRange, ProducerIdentity, TopicPartition
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.wire.encode import encode
from spark_kafka_eos.wire.record_batch import stamp

SIZES, LENGTHS_MS = (100, 1_000, 10_000), (10, 100, 1_000)
PLAIN, IDEMPOTENT = "plain", "idempotent"
_TIMEOUT_MS = 60_000
_ISOLATIONS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


def overhead(
    lab: Lab,
    *,
    megabytes: int = 200,
    runs: int = 5,
    sizes: Sequence[int] = SIZES,
    lengths_ms: Sequence[int] = LENGTHS_MS,
    against: Collection[Against] = frozenset(),
) -> tuple[Sweep, Sweep]:
    """MB of values per second, by value size: a sweep for producing, with a line per way, and a sweep for reading the
    output, with a line per way and isolation level.

    Medians of `runs` runs, all ways in turn. A transaction ends with the first record batch after its length.
    """
    produced: list[Point] = []
    consumed: list[Point] = []
    for size in sizes:
        shape = Shape(records=max(1, megabytes * 1_000_000 // size), value_bytes=size)
        reads: dict[str, list[float]] = {}
        ways = _ways(lab, shape, lengths_ms, against)
        participants = [_side(lab, shape, name, run, reads) for name, run in ways.items()]
        megabytes_of = shape.records * size / 1e6
        measured = alternate(participants, records=shape.records, runs=runs, show=lab.show)
        produced += [Point(line=series.name, at=size, value=megabytes_of / series.median) for series in measured]
        consumed += [Point(line=line, at=size, value=megabytes_of / median(took)) for line, took in reads.items()]
    settings = {
        "megabytes": megabytes,
        "runs": runs,
        "lengths_ms": list(lengths_ms),
        "partitions": Shape(records=1).partitions,
    }
    x = "bytes of a value"
    return (
        Sweep(
            title="producing: plain, idempotent, transactional",
            x=x,
            y="MB/s",
            points=tuple(produced),
            settings=settings,
        ),
        Sweep(title="reading what was so produced", x=x, y="MB/s", points=tuple(consumed), settings=settings),
    )


def transactional(length_ms: int) -> str:
    """The name of a line."""
    return f"transactions of {length_ms} ms"


Produce = Callable[[str], float | None]  # produces to a topic; returns its own measurement in seconds, if any


def _ways(lab: Lab, shape: Shape, lengths_ms: Sequence[int], against: Collection[Against]) -> dict[str, Produce]:
    lengths: dict[str, int | None] = {PLAIN: None, IDEMPOTENT: None} | {transactional(ms): ms for ms in lengths_ms}
    batches = [(keys, values) for keys, values in rows(shape)]

    def ours(name: str, length: int | None) -> Produce:
        def run(topic: str) -> None:
            append = _Append(lab, topic, shape, batches)
            if length is not None:
                append.transactions(lab.name("id"), length)
            else:
                append.all(idempotent_identity(lab.cluster) if name == IDEMPOTENT else None)

        return run

    ways = {name: ours(name, length) for name, length in lengths.items()}
    if Against.LIBRDKAFKA in against:
        pairs = [
            pair for keys, values in batches[:4] for pair in zip(keys.to_pylist(), values.to_pylist(), strict=True)
        ]
        ways |= {f"librdkafka, {name}": _librdkafka(lab, shape, pairs, name, ms) for name, ms in lengths.items()}
    if Against.JAVA in against:
        ways |= {f"Java, {name}": _java(lab, shape, name, ms) for name, ms in lengths.items()}
    return ways


def _side(lab: Lab, shape: Shape, name: str, run: Produce, reads: dict[str, list[float]]) -> Side:
    """Produce to a new topic; afterwards, read it at both isolation levels, which is measured separately."""
    output: list[str] = []

    def before() -> None:
        output[:] = lab.topics("out", 1, shape.partitions)

    def after() -> None:
        everything = ranges(lab.cluster, output)
        for isolation_level in _ISOLATIONS:
            started = time.perf_counter()
            count = _read(lab, everything, isolation_level)
            reads.setdefault(f"{isolation_level}, {name}", []).append(time.perf_counter() - started)
            if count != shape.records:
                raise ToolFailed(
                    f"{name}: only {count:,} of {shape.records:,} records were read with {isolation_level}"
                )
        lab.kafka.delete_topics(output)

    return Side(name=name, run=lambda: run(output[0]), before=before, after=after)


class _Append:
    """This package's way: encode, stamp, append."""

    def __init__(
        self, lab: Lab, topic: str, shape: Shape, batches: Sequence[tuple[pa.BinaryArray, pa.BinaryArray]]
    ) -> None:
        self._lab = lab
        self._partitions = [TopicPartition(topic, number) for number in range(shape.partitions)]
        self._batches = batches
        self._next = 0

    def all(self, identity: ProducerIdentity | None) -> None:
        """Append everything, without transactions."""
        self._append(identity, float("inf"))

    def transactions(self, transactional_id: str, length_ms: int) -> None:
        """Append everything, in transactions that end after `length_ms`."""
        coordinator = TransactionCoordinator(self._lab.cluster, transactional_id, _TIMEOUT_MS)
        identity = coordinator.init_producer_id()
        while self._next < len(self._batches):
            coordinator.add_partitions(identity, self._partitions)
            self._append(identity, time.perf_counter() + length_ms / 1e3)
            identity = coordinator.end(identity, commit=True)

    def _append(self, identity: ProducerIdentity | None, until: float) -> None:
        sequences = dict.fromkeys(self._partitions, 0)
        with Appender(self._lab.cluster, identity) as appender:
            while self._next < len(self._batches):
                partition = self._partitions[self._next % len(self._partitions)]
                keys, values = self._batches[self._next]
                batch = encode(keys, values, time.time_ns() // 1_000_000)
                records = len(values)
                if identity is not None:
                    stamp(
                        batch,
                        producer_id=identity.producer_id,
                        epoch=identity.epoch,
                        base_sequence=sequences[partition],
                        transactional=bool(identity.transactional_id),
                    )
                appender.append(partition, batch, records, sequences[partition])
                sequences[partition] = next_sequence(sequences[partition], records)
                self._next += 1
                if time.perf_counter() >= until:
                    break
            appender.flush()


def _librdkafka(
    lab: Lab, shape: Shape, pairs: Sequence[tuple[bytes, bytes]], name: str, length_ms: int | None
) -> Produce:
    def run(topic: str) -> None:
        config: dict[str, str | int | float | bool] = {"bootstrap.servers": lab.bootstrap, "log_level": 0}
        config |= {"batch.size": 1_000_000, "linger.ms": 5, "enable.idempotence": name != PLAIN}
        if length_ms is None:
            producer = Producer(config)
            sides.produce(producer, ((topic, *pairs[n % len(pairs)]) for n in range(shape.records)))
            producer.flush()
            return
        producer = Producer(config | {"transactional.id": lab.name("id")})
        producer.init_transactions()
        sent = 0
        while sent < shape.records:
            until = time.perf_counter() + length_ms / 1e3
            producer.begin_transaction()
            while sent < shape.records and time.perf_counter() < until:
                some = range(sent, min(sent + 100, shape.records))
                sides.produce(producer, ((topic, *pairs[n % len(pairs)]) for n in some))
                sent = some.stop
            producer.commit_transaction()

    return run


def _java(lab: Lab, shape: Shape, name: str, length_ms: int | None) -> Produce:
    def run(topic: str) -> float:
        return java.produce(
            lab.bootstrap,
            topic,
            records=shape.records,
            value_bytes=shape.value_bytes,
            settings={"acks": "all", "enable.idempotence": str(name != PLAIN).lower(), "batch.size": 262_144},
            transactional_id=None if length_ms is None else lab.name("id"),
            transaction_ms=length_ms or 1,
        ).seconds

    return run


def _read(lab: Lab, wanted: Sequence[OffsetRange], isolation_level: IsolationLevel) -> int:
    """Read and decode; return the number of records."""
    (topic,) = {each.partition.topic for each in wanted}
    options = source_options(
        {"kafka.bootstrap.servers": lab.bootstrap, "subscribe": topic, "kafka.isolation.level": isolation_level}
    )
    return sum(batch.num_rows for batch in read(wanted, options, lab.cluster))
