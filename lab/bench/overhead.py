"""KIP-98's sweep, the producing half: plain, idempotent, transactional × message size × transaction length.

It measures the protocol and the clients, without Spark: this package encodes, stamps and appends as an append task
does. So that only the guarantee differs, every way has as many requests in flight, batches of one size, and acks=all.
The first quarter of a run of Java is its warm-up, as a process of it is new in each run; the others are warm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
from confluent_kafka import Producer

from lab.bench import java, sides
from lab.bench.against import Against
from lab.bench.alternating import Side, alternate
from lab.bench.figures import Point, Series, Sweep
from lab.bench.inputs import Shape, ranges, rows
from lab.bench.lab import Lab
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.producing.sequences import next_sequence
from spark_kafka_eos.kafka.protocol import transactions
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp

SIZES, LENGTHS_MS = (100, 1_000, 10_000), (5, 50, 500)
PLAIN, IDEMPOTENT = "plain", "idempotent"
OURS, LIBRDKAFKA, JAVA = "kafka-eos", "librdkafka", "Java"
BATCH_BYTES, LINGER_MS, IN_FLIGHT = 900_000, 5, 5
_TIMEOUT_MS = 60_000

Columns = tuple[pa.BinaryArray, pa.BinaryArray]
Produce = Callable[[str], float | None]  # produces to a topic; returns its own measurement in seconds, if any


def overhead(
    lab: Lab,
    *,
    megabytes: int = 64,
    runs: int = 5,
    sizes: Sequence[int] = SIZES,
    lengths_ms: Sequence[int] = LENGTHS_MS,
    against: Collection[Against] = frozenset(),
    pre_registration: bool = True,
) -> tuple[Sweep, Sweep]:
    """MB of values per second, and microseconds of the brokers' CPU per record; by value size, a line for each way of
    each client.

    A transaction ends with the first record batch after its length, and with the last record. Without
    `pre_registration`, each partition is added to the transaction by a request of its own (KIP-609; only with TV1).
    """
    measurements = Measurements(lab, megabytes, runs)
    for size in sizes:
        shape = measurements.shape(size)
        ways = _ways(lab, shape, lengths_ms, against, pre_registration=pre_registration)
        measurements.measure(size, [_side(lab, shape, name, run, measurements) for name, run in ways.items()])
    settings = {
        "lengths_ms": list(lengths_ms),
        "requests_in_flight": IN_FLIGHT,
        "batch_bytes": BATCH_BYTES,
        "linger_ms": LINGER_MS,
        "pre_registration": pre_registration,
    }
    return measurements.sweeps("producing: plain, idempotent, transactional", against, settings)


def transactional(length_ms: int) -> str:
    """The name of a way."""
    return f"transactions of {length_ms} ms"


class Measurements:
    """The speeds of all sides, and what they cost the brokers."""

    def __init__(self, lab: Lab, megabytes: int, runs: int) -> None:
        self._lab, self._megabytes, self._runs = lab, megabytes, runs
        self._speeds: list[Point] = []
        self._costs: list[Point] = []
        self._cpu: dict[str, list[float]] = {}
        self._before = 0.0

    def shape(self, size: int) -> Shape:
        """The records of one measurement, with values of `size` bytes."""
        return Shape(records=max(1, self._megabytes * 1_000_000 // size), value_bytes=size)

    def begin(self) -> None:
        """The brokers' work for a side begins."""
        self._before = self._lab.broker_cpu()

    def end(self, name: str) -> None:
        """It has ended."""
        self._cpu.setdefault(name, []).append(self._lab.broker_cpu() - self._before)

    def measure(self, size: int, participants: Sequence[Side]) -> None:
        """Run these sides in turn, and keep their figures."""
        shape = self.shape(size)
        self._cpu.clear()
        for series in alternate(participants, records=shape.records, runs=self._runs, show=self._lab.show):
            self._keep(size, shape, series)

    def _keep(self, size: int, shape: Shape, series: Series) -> None:
        megabytes = shape.records * size / 1e6
        costs = [seconds / shape.records * 1e6 for seconds in self._cpu[series.name][-self._runs :]]
        self._speeds.append(Point.of(series.name, size, [megabytes / seconds for seconds in series.seconds]))
        self._costs.append(Point.of(series.name, size, costs))

    def sweeps(self, title: str, against: Collection[Against], settings: dict[str, object]) -> tuple[Sweep, Sweep]:
        """Speeds and costs, with a panel for each client."""
        clients = (OURS, *(name for who, name in _OTHERS.items() if who in against))
        described: dict[str, object] = {
            "megabytes": self._megabytes,
            "runs": self._runs,
            "partitions": Shape(records=1).partitions,
            "kafka": self._lab.kafka.version,
            **settings,
        }
        kinds = {"MB/s": (title, self._speeds), "µs per record": (f"{title}: CPU of the broker", self._costs)}
        speeds, costs = (
            Sweep(
                title=name,
                x="bytes of a value",
                y=y,
                points=tuple(points),
                settings=described,
                panels=clients,
                alternatives=True,
            )
            for y, (name, points) in kinds.items()
        )
        return speeds, costs


_OTHERS = {Against.LIBRDKAFKA: LIBRDKAFKA, Against.JAVA: JAVA}


def _ways(
    lab: Lab, shape: Shape, lengths_ms: Sequence[int], against: Collection[Against], *, pre_registration: bool
) -> dict[str, Produce]:
    lengths: dict[str, int | None] = {PLAIN: None, IDEMPOTENT: None} | {transactional(ms): ms for ms in lengths_ms}
    batches = list(rows(shape))
    ways = {f"{OURS}, {way}": _ours(lab, shape, batches, way, ms, pre_registration) for way, ms in lengths.items()}
    if Against.LIBRDKAFKA in against:
        pairs = [pair for columns in batches[:4] for pair in zip(*(c.to_pylist() for c in columns), strict=True)]
        ways |= {f"{LIBRDKAFKA}, {way}": _librdkafka(lab, shape, pairs, way, ms) for way, ms in lengths.items()}
    if Against.JAVA in against:
        ways |= {f"{JAVA}, {way}": _java(lab, shape, way, ms) for way, ms in lengths.items()}
    return ways


def _side(lab: Lab, shape: Shape, name: str, run: Produce, measurements: Measurements) -> Side:
    """Produce to a new topic, whose records are counted."""
    output: list[str] = []

    def before() -> None:
        output[:] = lab.topics("out", 1, shape.partitions)
        measurements.begin()

    def after() -> None:
        ranges(lab.cluster, output)  # transaction markers belong to the cost
        measurements.end(name)
        lab.check(output, shape.records, name)

    return Side(name=name, run=lambda: run(output[0]), before=before, after=after)


def _ours(
    lab: Lab, shape: Shape, batches: Sequence[Columns], way: str, length_ms: int | None, pre_registration: bool
) -> Produce:
    def run(topic: str) -> None:
        append = Append(lab, topic, shape, batches)
        if length_ms is not None:
            append.transactions(lab.name("id"), length_ms, pre_registration=pre_registration)
        else:
            append.all(transactions.idempotent_identity(lab.cluster) if way == IDEMPOTENT else None)

    return run


class Append:
    """This package's way: encode, stamp, append."""

    def __init__(self, lab: Lab, topic: str, shape: Shape, batches: Sequence[Columns]) -> None:
        self._lab = lab
        self._partitions = [TopicPartition(topic, number) for number in range(shape.partitions)]
        self._batches = batches
        self._next = 0

    def all(self, identity: ProducerIdentity | None) -> None:
        """Append everything, without transactions."""
        self._append(identity, float("inf"))

    def transactions(self, transactional_id: str, length_ms: int, *, pre_registration: bool = True) -> None:
        """Append everything, in transactions that end after `length_ms`."""
        cluster = self._lab.cluster
        identity = transactions.init_producer_id(cluster, transactional_id, _TIMEOUT_MS)
        while self._next < len(self._batches):
            if pre_registration:
                transactions.add_partitions(cluster, identity, self._partitions)
            until = time.perf_counter() + length_ms / 1e3
            self._append(identity, until, registering=not pre_registration)
            identity = transactions.end_transaction(cluster, identity, commit=True)

    def _append(self, identity: ProducerIdentity | None, until: float, *, registering: bool = False) -> None:
        sequences: dict[TopicPartition, int] = {}
        with Appender(self._lab.cluster, identity, max_in_flight=IN_FLIGHT) as appender:
            while self._next < len(self._batches):
                partition = self._partitions[self._next % len(self._partitions)]
                keys, values = self._batches[self._next]
                batch = encode(keys, values, time.time_ns() // 1_000_000)
                sequence, records = sequences.get(partition, 0), len(values)
                if identity is not None:
                    if registering and partition not in sequences:
                        transactions.add_partitions(self._lab.cluster, identity, [partition])
                    stamp(
                        batch,
                        producer_id=identity.producer_id,
                        epoch=identity.epoch,
                        base_sequence=sequence,
                        transactional=bool(identity.transactional_id),
                    )
                appender.append(partition, batch, records, sequence)
                sequences[partition] = next_sequence(sequence, records)
                self._next += 1
                if time.perf_counter() >= until:
                    break
            appender.flush()


def _librdkafka(
    lab: Lab, shape: Shape, pairs: Sequence[tuple[bytes, bytes]], way: str, length_ms: int | None
) -> Produce:
    def run(topic: str) -> None:
        config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": lab.bootstrap,
            "log_level": 0,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "max.in.flight": IN_FLIGHT,
            "enable.idempotence": way != PLAIN,
        }
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


def _java(lab: Lab, shape: Shape, way: str, length_ms: int | None) -> Produce:
    settings = {
        "acks": "all",
        "enable.idempotence": str(way != PLAIN).lower(),
        "batch.size": BATCH_BYTES,
        "linger.ms": LINGER_MS,
        "max.in.flight.requests.per.connection": IN_FLIGHT,
    }

    def run(topic: str) -> float:
        produced = java.produce(
            lab.bootstrap,
            topic,
            records=shape.records,
            value_bytes=shape.value_bytes,
            settings=settings,
            transactional_id=None if length_ms is None else lab.name("id"),
            transaction_ms=length_ms or 1,
            warm_up=shape.records // 4,
        )
        return shape.records / produced.rate

    return run
