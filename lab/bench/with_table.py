"""Measures what a table that takes part adds to a micro-batch: runs with and without one, in pairs, as in `watched`.

The table is in SQLite, on the disk of the checkpoint; its commit waits for that disk (`synchronous=FULL`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lab.bench.figures import Comparison, Series
from lab.bench.lab import Lab, temporary_directory
from lab.bench.watched import cost, median_trigger
from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.spark.writer import TransactionalWriter

TOPIC, BOTH = "topic", "topic and table"


def cost_of_a_table(
    lab: Lab, spark: SparkSession, *, pairs: int = 10, batches: int = 25, records: int = 100
) -> Comparison:
    """Each pair is two runs of `batches` micro-batches of `records` records, in an order that alternates.

    A series has the median trigger of each of its runs. `settings["cost_percent"]` has the median, and the quartiles,
    of how much longer a trigger took in the run with a table of a pair, in percent; `settings["cost_ms"]` has the
    median in milliseconds.
    """
    seconds: dict[str, list[float]] = {TOPIC: [], BOTH: []}
    for number in range(-1, pairs):
        for side in (TOPIC, BOTH) if number % 2 else (BOTH, TOPIC):
            lab.show(side if number >= 0 else f"{side} (warm-up)", number + 1, pairs + 1)
            with temporary_directory() as folder:
                start = _start(lab, folder / "rows.db" if side == BOTH else None)
                took = median_trigger(lab, spark, side, start, batches, records)
            if number >= 0:
                seconds[side].append(took)
    lab.show("done", 1, 1)
    more = [both - alone for alone, both in zip(seconds[TOPIC], seconds[BOTH], strict=True)]
    return Comparison(
        title=f"the cost of a table: median trigger of {batches} micro-batches of {records:,} records",
        series=tuple(Series(name=side, records=records, seconds=tuple(took)) for side, took in seconds.items()),
        settings={
            "pairs": pairs,
            "batches": batches,
            "cost_percent": {BOTH: cost(seconds[TOPIC], seconds[BOTH])},
            "cost_ms": {BOTH: {"median": median(more) * 1e3}},
        },
    )


def _start(lab: Lab, database: Path | None) -> Any:
    table = None if database is None else _table(database)

    def start(rows: DataFrame, options: Mapping[str, str]) -> Any:
        writer = TransactionalWriter({**options, "kafka.transactional.id": lab.name("both"), "appendMode": "driver"})

        def write(batch: DataFrame, batch_id: int) -> None:
            with writer.transaction(batch, batch_id, participant=table) as transaction:
                transaction.write(batch)
                if table is not None:
                    transaction.write_table(batch)

        return rows.writeStream.foreachBatch(write)

    return start


def _table(database: Path) -> SqlTable:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE rows (key BLOB, value BLOB)")
    table = SqlTable(lambda: sqlite3.connect(database), insert="INSERT INTO rows VALUES (?, ?)", key="rows")
    table.create()
    return table
