"""Measures micro-batches with the checkpoint in a slow store, on a local disk, and where Kafka is the checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from lab.bench import sides, slow_store
from lab.bench.alternating import Side, alternate
from lab.bench.figures import Point, Sweep
from lab.bench.inputs import Shape
from lab.bench.lab import CHECKPOINT_MANAGER, LOCAL_CHECKPOINTS, Input, Lab, temporary_directory
from spark_kafka_eos.errors import ToolFailed

KAFKA_IS_IT = "kafka-eos, Kafka is the checkpoint"

_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux has a tmpfs
_WARM_UP = 3  # micro-batches of a run that are not measured: those that start processes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One side. `store`: the checkpoint is in the slow store; `lost`: it is in memory, and Kafka has the progress."""

    session: SparkSession
    ours: bool
    store: bool = False
    lost: bool = False


def checkpoint(
    lab: Lab,
    spark: SparkSession,
    *,
    sizes: Sequence[int] = (1_000, 100_000),
    batches: int = 8,
    runs: int = 3,
    milliseconds: int = 100,
) -> Sweep:
    """Copy a topic in `batches` micro-batches of `sizes` records. A store's operation takes `milliseconds`.

    Each value is the median trigger of a run. Spark has its default file manager, unless Kafka is the checkpoint.
    """
    if batches <= _WARM_UP:
        raise ToolFailed(f"{batches} batches are too few", action=f"Use more than {_WARM_UP}.")
    plain, local = spark.newSession(), spark.newSession()
    plain.conf.unset(CHECKPOINT_MANAGER)
    local.conf.set(CHECKPOINT_MANAGER, LOCAL_CHECKPOINTS)
    store = f"store of {milliseconds} ms"
    ways = {
        f"kafka-eos, {store}": _Way(session=plain, ours=True, store=True),
        "kafka-eos, local disk": _Way(session=plain, ours=True),
        KAFKA_IS_IT: _Way(session=local, ours=True, lost=True),
        f"built-in, {store}": _Way(session=plain, ours=False, store=True),
        "built-in, local disk": _Way(session=plain, ours=False),
    }
    points: list[Point] = []
    with temporary_directory() as folder:
        slow_store.register(spark, folder, milliseconds)
        for size in sizes:
            data = lab.input(Shape(records=size * batches))
            measured = alternate(
                [_side(lab, name, way, data, batches) for name, way in ways.items()],
                records=size,
                runs=runs,
                show=lab.show,
            )
            points += [
                Point.of(series.name, size, [1e3 * seconds for seconds in series.seconds]) for series in measured
            ]
            lab.drop(data)
    return Sweep(
        title="a micro-batch, by where its checkpoint is",
        x="records of a batch",
        y="ms of a trigger",
        points=tuple(points),
        settings={"batches": batches, "runs": runs, "store_ms": milliseconds},
    )


def _side(lab: Lab, name: str, way: _Way, data: Input, batches: int) -> Side:
    output: list[str] = []

    def before() -> None:
        output[:] = lab.topics("out", 1, data.shape.partitions)

    return Side(
        name=name,
        run=lambda: _run(lab, name, way, data, output, batches),
        before=before,
        after=functools.partial(lab.check, output, data.shape.records, name),
    )


def _run(lab: Lab, name: str, way: _Way, data: Input, output: list[str], batches: int) -> float:
    """The median trigger of a new query, in seconds."""
    transactional_id = lab.name("id")
    with (
        temporary_directory(_MEMORY if way.lost and _MEMORY.is_dir() else None) as folder,
        temporary_directory() as staging,
    ):
        kind = sides.OUR_FORMAT if way.ours else sides.BUILT_IN_FORMAT
        reading = _reading(way, transactional_id)
        frame = sides.stream(way.session, lab, data, kind, reading, batches)
        rows, options = sides.addressed(frame, output, lab.bootstrap)
        if way.ours:
            changes = {"kafka.transactional.id": transactional_id, "appendMode": "driver", "stagingDir": str(staging)}
            writer = sides.ours_by_foreach_batch(lab, changes)(rows, options)
        else:
            writer = sides.built_in_sink(rows, options)
        location = f"{slow_store.SCHEME}://{folder}" if way.store else folder.as_uri()
        query = writer.option("checkpointLocation", location).trigger(availableNow=True).start()
        query.awaitTermination()
        triggers: list[float] = [
            batch.durationMs["triggerExecution"] / 1e3 for batch in query.recentProgress if batch.numInputRows
        ]
    if len(triggers) < batches:
        raise ToolFailed(f"{name}: only {len(triggers)} of {batches} micro-batches")
    return median(triggers[_WARM_UP:batches])  # without one more of what the limit left over


def _reading(way: _Way, transactional_id: str) -> Mapping[str, object]:
    if way.lost:
        return {"startingOffsets": "committed-or-earliest", "sink.kafka.transactional.id": transactional_id}
    return {} if way.ours else sides.FETCH_WAIT
