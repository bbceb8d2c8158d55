"""KIP-98's sweep, the reading half: read_committed against read_uncommitted × message size × transaction length."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from lab.bench import java, sides
from lab.bench.against import Against
from lab.bench.alternating import Side
from lab.bench.figures import Sweep
from lab.bench.inputs import Shape, ranges, rows
from lab.bench.lab import Input, Lab
from lab.bench.overhead import (
    JAVA,
    LENGTHS_MS,
    LIBRDKAFKA,
    OURS,
    PLAIN,
    SIZES,
    Append,
    Measurements,
    transactional,
)
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.records import read

LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")

_Read = Callable[[Lab, Input, IsolationLevel], float | None]


def isolation(
    lab: Lab,
    *,
    megabytes: int = 64,
    runs: int = 5,
    sizes: Sequence[int] = SIZES,
    lengths_ms: Sequence[int] = LENGTHS_MS,
    against: Collection[Against] = frozenset(),
) -> tuple[Sweep, Sweep]:
    """MB of values per second, and microseconds of the brokers' CPU per record; by value size, a line for each client,
    topic and isolation level. This package wrote the topics: one plain, one for each transaction length.
    """
    measurements = Measurements(lab, megabytes, runs)
    readers: dict[str, _Read] = {OURS: _ours}
    if Against.LIBRDKAFKA in against:
        readers[LIBRDKAFKA] = _librdkafka
    if Against.JAVA in against:
        readers[JAVA] = _java
    for size in sizes:
        topics = _written(lab, measurements.shape(size), lengths_ms)
        measurements.measure(
            size,
            [
                _side(f"{client}, {way}, {level}", functools.partial(reader, lab, topic, level), measurements)
                for client, reader in readers.items()
                for way, topic in topics.items()
                for level in LEVELS
            ],
        )
        lab.kafka.delete_topics([name for topic in topics.values() for name in topic.topics])
    return measurements.sweeps("reading", against, {"lengths_ms": list(lengths_ms)})


def _written(lab: Lab, shape: Shape, lengths_ms: Sequence[int]) -> dict[str, Input]:
    """The same records in several topics."""
    batches = list(rows(shape))
    lengths: dict[str, int | None] = {PLAIN: None} | {transactional(ms): ms for ms in lengths_ms}
    written: dict[str, Input] = {}
    for way, length in lengths.items():
        topics = lab.topics("in", 1, shape.partitions)
        append = Append(lab, topics[0], shape, batches)
        if length is None:
            append.all(None)
        else:
            append.transactions(lab.name("id"), length)
        ranges(lab.cluster, topics)  # until all markers are written
        written[way] = Input(shape=shape, topics=topics)
    return written


def _side(name: str, run: Callable[[], float | None], measurements: Measurements) -> Side:
    return Side(name=name, run=run, before=measurements.begin, after=functools.partial(measurements.end, name))


def _ours(lab: Lab, source: Input, level: IsolationLevel) -> None:
    """Read and decode, as a source task does."""
    options = source_options(
        {"kafka.bootstrap.servers": lab.bootstrap, "subscribe": source.topics[0], "kafka.isolation.level": level}
    )
    offset_ranges = ranges(lab.cluster, source.topics)
    _check(sum(batch.num_rows for batch in read(offset_ranges, options, lab.cluster)), source, OURS)


def _librdkafka(lab: Lab, source: Input, level: IsolationLevel) -> None:
    _check(sum(len(messages) for _, messages in sides.consume(lab, source, level)), source, LIBRDKAFKA)


def _java(lab: Lab, source: Input, level: IsolationLevel) -> float:
    return java.consume(lab.bootstrap, source.topics[0], source.shape.records, isolation_level=level)


def _check(count: int, source: Input, who: str) -> None:
    if count != source.shape.records:
        raise ToolFailed(f"{who}: only {count:,} of {source.shape.records:,} records were read")
