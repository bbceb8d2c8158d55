"""The least that a query through Spark's rows can take: what is left if our own work takes no time.

The source's rows are ready-made, so fetching and decoding are free; a copy's rows are dropped in Python, so encoding,
staging, appending and the transaction are free, too. What remains is Spark's: scheduling, the checkpoint, and the way
of each row from the source's Python through the JVM, in a copy to Python again. With `arrow_stream` no record has that
way, and only offset ranges are dropped.

A fourth side also fetches the bytes, and appends as many in a transaction, without reading them: what the brokers and
the network need.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from lab.bench.apart import SparkApart
from lab.bench.figures import Comparison
from lab.bench.inputs import Shape
from lab.bench.lab import PLAIN, Lab
from lab.bench.ready_made import Count, Dropping, ReadyMade, dropping
from lab.bench.relayed import Fetched, Offsets, Relaying, relay, sink_of
from lab.bench.sides import OUR_FORMAT
from lab.bench.steady import Load, Participant, Query, Ran, compare, run_query, written
from lab.bench.steady_figures import BUILT_IN, FLOOR, OURS, READY_MADE, RELAYED, Way
from spark_kafka_eos.appending.append_mode import SMALL_BYTES
from spark_kafka_eos.options import source_options


def floor(
    lab: Lab, name: str, load: Load, *, ways: Collection[Way] = tuple(Way), rounds: int = 3
) -> Iterator[tuple[str, Comparison]]:
    """In steady state on plain settings: ours, the built-in connector, and ours without its own work."""
    for way in ways:
        with ExitStack() as stack:
            sides = _sides(way, load, lambda: stack.enter_context(SparkApart(PLAIN)))
            yield f"{FLOOR}-{name}-{way}", compare(lab, f"{way.words}, and its floor", way, load, sides, rounds)
    lab.drop(lab.input(load.shape))


def _sides(way: Way, load: Load, session: Callable[[], SparkApart]) -> dict[str, Participant]:
    """A session for each side, because a worker keeps the rows that are ready-made. `few` as for our writer, which has
    them in the driver.
    """
    few = load.rows * load.records.value_bytes <= SMALL_BYTES
    run = functools.partial(run_ready_made, way=way, few=few)
    relayed = functools.partial(run_relayed, records=load.records, few=few)
    return {
        OURS: Participant(spark=session()),
        BUILT_IN: Participant(spark=session(), ours=False),
        READY_MADE: Participant(spark=session(), way=Way.NOOP, run=run),
        RELAYED: Participant(spark=session(), run=relayed),
    }


# -- in the session's process


def run_ready_made(spark: SparkSession, query: Query, way: Way, few: bool) -> Ran:
    """Run a query that drops rows that are ready-made where this way has them: in Spark, or in Python."""
    return run_query(spark, replace(query, way=way), functools.partial(_writer, few=few))


def _writer(spark: SparkSession, query: Query, few: bool) -> Any:
    if query.way is Way.ARROW:
        return _ranges(spark, query).writeStream.foreachBatch(dropping(Offsets()))
    rows = _rows(spark, query, ReadyMade, Dropping)
    return written(rows, query.way, sink=Dropping.name(), function=lambda: dropping(Count(), few=few))


def run_relayed(spark: SparkSession, query: Query, records: Shape, few: bool) -> Ran:
    """Run a query whose rows are also ready-made, but whose bytes are fetched and appended."""
    return run_query(spark, query, functools.partial(_relayed_writer, records=records, few=few))


def _relayed_writer(spark: SparkSession, query: Query, records: Shape, few: bool) -> Any:
    options = sink_of(query.sink, records)
    if query.way is Way.ARROW:
        fetching = Offsets(source_options(query.source, streaming=True))
        return _ranges(spark, query).writeStream.foreachBatch(relay(options, fetching))
    rows = _rows(spark, query, Fetched, Relaying)
    copying = functools.partial(relay, options, Count(), few=few)
    return written(rows, query.way, sink=Relaying.name(), options=options, function=copying)


def _rows(spark: SparkSession, query: Query, source: type[DataSource], sink: type[DataSource]) -> DataFrame:
    """The rows of this source, in a session that knows the sink, too."""
    for kind in (source, sink):
        spark.dataSource.register(kind)
    return spark.readStream.format(source.name()).options(**query.source).load()


def _ranges(spark: SparkSession, query: Query) -> DataFrame:
    """The offset ranges of the source, which are all the rows that `arrow_stream` has in Spark."""
    return spark.readStream.format(OUR_FORMAT).options(**query.source, rows="offsetRanges").load()
