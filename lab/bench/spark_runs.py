"""Measures source, batch read, sink and copy of this connector and of alternatives, for inputs of any shape."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import SparkSession

from lab.bench import inputs, sides
from lab.bench.against import Against
from lab.bench.alternating import Side, alternate
from lab.bench.figures import Comparison, phases
from lab.bench.inputs import Shape
from lab.bench.lab import Lab
from lab.bench.sides import BUILT_IN_FORMAT, FETCH_WAIT, OUR_FORMAT

_SOURCES = {
    sides.EOS_SOURCE: (OUR_FORMAT, {}),
    sides.BUILT_IN: (BUILT_IN_FORMAT, FETCH_WAIT),
    sides.BUILT_IN_DEFAULTS: (BUILT_IN_FORMAT, {}),
}
BUILTIN_ONLY = frozenset({Against.BUILTIN})


def source(
    lab: Lab,
    spark: SparkSession,
    shape: Shape,
    *,
    batches: int = 1,
    runs: int = 5,
    against: Collection[Against] = BUILTIN_ONLY,
    defaults: bool = True,
) -> Comparison:
    """Read a stream into noop, in `batches` micro-batches. `defaults`: also measure the built-in source's defaults."""
    data = lab.input(shape)
    participants: list[Side] = []
    for name, (kind, options) in _participants(against, defaults=defaults).items():
        frame = sides.stream(spark, lab, data, kind, options, batches)
        participants.append(sides.stream_to_noop(name, frame, shape.records))
    if Against.LIBRDKAFKA in against:
        participants.append(sides.librdkafka_consumer(lab, data))
    if Against.JAVA in against and shape.topics == 1:
        participants.append(sides.java_consumer(lab, data))
    return _compare(lab, "source to noop", participants, shape, batches, runs)


def read(
    lab: Lab,
    spark: SparkSession,
    shape: Shape,
    *,
    runs: int = 5,
    against: Collection[Against] = BUILTIN_ONLY,
    defaults: bool = True,
) -> Comparison:
    """Read a batch into noop."""
    data = lab.input(shape)
    participants = [
        sides.batch_to_noop(name, spark, lab, data, options)
        for name, (_, options) in _participants(against, defaults=defaults).items()
    ]
    return _compare(lab, "batch read to noop", participants, shape, 1, runs)


def copy(
    lab: Lab,
    spark: SparkSession,
    shape: Shape,
    *,
    batches: int = 1,
    runs: int = 5,
    against: Collection[Against] = BUILTIN_ONLY,
    defaults: bool = True,
    ways: Sequence[str] = (sides.EOS, sides.EOS_SINK, sides.EOS_AT_LEAST_ONCE),
) -> Comparison:
    """Copy a topic: ours exactly-once and at-least-once (`ways`), the built-in connector at-least-once."""
    data = lab.input(shape)
    ours = sides.stream(spark, lab, data, OUR_FORMAT, {}, batches, sides.columns_of(shape))
    fast = sides.stream(spark, lab, data, BUILT_IN_FORMAT, FETCH_WAIT, batches)
    starts = {
        sides.EOS: sides.ours_by_foreach_batch(lab, {"appendMode": "driver"}),
        sides.EOS_EXECUTORS: sides.ours_by_foreach_batch(lab, {"appendMode": "executors"}),
        sides.EOS_SINK: sides.ours_by_sink(lab),
        sides.EOS_AT_LEAST_ONCE: sides.ours_by_foreach_batch(
            lab, {"appendMode": "driver", "deliveryGuarantee": "at-least-once"}
        ),
    }
    participants = [sides.stream_to_kafka(name, lab, ours, shape, _compressed(starts[name], shape)) for name in ways]
    built_in = _compressed(sides.built_in_sink, shape)
    if Against.BUILTIN in against:
        participants.append(sides.stream_to_kafka(sides.BUILT_IN, lab, fast, shape, built_in))
        if defaults:
            slow = sides.stream(spark, lab, data, BUILT_IN_FORMAT, {}, batches)
            participants.append(sides.stream_to_kafka(sides.BUILT_IN_DEFAULTS, lab, slow, shape, built_in))
    if Against.RECIPE in against:
        participants.append(sides.stream_to_kafka(sides.RECIPE, lab, fast, shape, sides.recipe(lab)))
    if Against.LIBRDKAFKA in against and shape.topics == 1:
        participants.append(sides.librdkafka_copy(lab, data, batches))
    return _compare(lab, "source to sink", participants, shape, batches, runs)


def sink(
    lab: Lab,
    spark: SparkSession,
    shape: Shape,
    *,
    runs: int = 5,
    against: Collection[Against] = BUILTIN_ONLY,
) -> Comparison:
    """Write rows that Spark has in memory, in one transaction; the built-in sink writes at-least-once."""
    data = lab.input(shape)
    reader = spark.read.format(BUILT_IN_FORMAT).options(
        **{"kafka.bootstrap.servers": lab.bootstrap, "subscribe": ",".join(data.topics)}
    )
    frame = reader.load().select("key", "value").cache()
    try:
        frame.count()
        participants = [sides.frame_to_kafka(sides.EOS_SINK, lab, frame, shape, OUR_FORMAT)]
        if Against.BUILTIN in against:
            participants.append(sides.frame_to_kafka("built-in", lab, frame, shape, BUILT_IN_FORMAT))
        if Against.RECIPE in against:
            participants.append(sides.collect_to_kafka(lab, frame, shape))
        if Against.LIBRDKAFKA in against:
            keys, values = next(inputs.rows(shape))
            records = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
            participants.append(sides.librdkafka_producer(lab, records, shape))
        if Against.JAVA in against:
            participants.append(sides.java_producer(lab, shape))
        return _compare(lab, "rows in memory to sink", participants, shape, 1, runs)
    finally:
        frame.unpersist()


def _participants(against: Collection[Against], *, defaults: bool) -> dict[str, tuple[str, dict[str, object]]]:
    names = [sides.EOS_SOURCE]
    if Against.BUILTIN in against:
        names += [sides.BUILT_IN, sides.BUILT_IN_DEFAULTS] if defaults else [sides.BUILT_IN]
    return {name: (_SOURCES[name][0], dict(_SOURCES[name][1])) for name in names}


def _compressed(start: sides.Start, shape: Shape) -> sides.Start:
    """The sink with the compression of the input."""
    if shape.compression == "none":
        return start
    return lambda rows, options: start(rows, {**options, "kafka.compression.type": shape.compression})


def _compare(lab: Lab, title: str, participants: Sequence[Side], shape: Shape, batches: int, runs: int) -> Comparison:
    # The JVM compiles for more than one round: in a round of 20 micro-batches, the second takes 1.5 times as long as
    # the fifth.
    warm_up = min(runs, 2)
    series = alternate(participants, records=shape.records, runs=runs, warm_up=warm_up, show=lab.show)
    many = f" in {batches} micro-batches" if batches > 1 else ""
    return Comparison(
        title=f"{title}{many}: {shape}",
        series=series,
        settings={
            "records": shape.records,
            "value_bytes": shape.value_bytes,
            "partitions": shape.partitions,
            "topics": shape.topics,
            "compression": shape.compression,
            "batches": batches,
            "runs": runs,
            "phases_ms": {side.name: phases(side.batches) for side in participants if side.batches},
        },
    )
