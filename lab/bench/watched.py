"""Measures the cost of looking: small micro-batches with and without ProgressListener and its endpoint for metrics.

A difference of a hundredth is far below what other load on a machine does to a run. So each run without is followed or
preceded by one with, seconds later, and what counts is the median of the pairs' ratios.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lab.bench import sides
from lab.bench.figures import Comparison, Series
from lab.bench.inputs import KEY_BYTES
from lab.bench.lab import Lab, temporary_directory
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.listener.progress import ProgressListener

_PARTITIONS, _VALUE_BYTES = 4, 100
_WARM_UP = 3  # micro-batches of a run that are not measured: those that start processes
_SCRAPE_SECONDS = 1.0  # Prometheus' default is a minute


def watched(name: str) -> str:
    """The name of a side that is looked at."""
    return f"{name}, watched"


def cost_of_looking(
    lab: Lab, spark: SparkSession, *, pairs: int = 20, batches: int = 25, records: int = 100
) -> Comparison:
    """Each pair is two runs of `batches` micro-batches of `records` records, in an order that alternates.

    A series has the median trigger of each of its runs. `settings["cost_percent"]` has by side the median, and the
    quartiles, of how much longer a trigger took in the watched run of a pair, in percent.
    """
    ways = {
        sides.EOS: sides.ours_by_foreach_batch(lab, {"appendMode": "driver"}),
        sides.EOS_SINK: sides.ours_by_sink(lab),
    }
    seconds: dict[str, list[float]] = {side: [] for name in ways for side in (name, watched(name))}
    looked_at = spark.newSession()  # a session's listener hears of its own queries only
    with _looking(lab, looked_at):
        for number in range(-1, pairs):
            for name, start in ways.items():
                both = [(name, spark), (watched(name), looked_at)]
                for side, session in both if number % 2 else reversed(both):
                    lab.show(side if number >= 0 else f"{side} (warm-up)", number + 1, pairs + 1)
                    took = median_trigger(lab, session, side, start, batches, records)
                    if number >= 0:
                        seconds[side].append(took)
    lab.show("done", 1, 1)
    return Comparison(
        title=f"the cost of looking: median trigger of {batches} micro-batches of {records} records",
        series=tuple(Series(name=side, records=records, seconds=tuple(took)) for side, took in seconds.items()),
        settings={
            "pairs": pairs,
            "batches": batches,
            "cost_percent": {name: cost(seconds[name], seconds[watched(name)]) for name in ways},
        },
    )


def cost(without: list[float], looked_at: list[float]) -> dict[str, float]:
    """Median and quartiles of the pairs' differences, in percent of the run without."""
    percent = [100 * (seconds / base - 1) for seconds, base in zip(looked_at, without, strict=True)]
    low, _, high = quantiles(percent, method="inclusive") if len(percent) > 1 else percent * 3
    return {"median": median(percent), "lower quartile": low, "upper quartile": high}


def median_trigger(lab: Lab, spark: SparkSession, who: str, start: sides.Start, batches: int, records: int) -> float:
    """The median trigger of a new query, in seconds."""
    (source,), (target,) = lab.topics("slow", 1, _PARTITIONS), lab.topics("out", 1, _PARTITIONS)
    kafka = {"kafka.bootstrap.servers": lab.bootstrap}
    rows = spark.readStream.format(sides.OUR_FORMAT).options(**kafka, subscribe=source, startingOffsets="earliest")
    producer = Producer({"bootstrap.servers": lab.bootstrap, "log_level": 0, "linger.ms": 0})
    with temporary_directory() as checkpoint:
        writer = start(rows.load().select("key", "value"), kafka | {"topic": target})
        # With one name, a scrape shows one query, as in a driver, and not one for each run.
        query = writer.queryName(who).option("checkpointLocation", str(checkpoint)).start()
        try:
            for _ in range(_WARM_UP + batches):
                for number in range(records):
                    producer.produce(source, key=b"%0*d" % (KEY_BYTES, number), value=bytes(_VALUE_BYTES))
                producer.flush(10)
                query.processAllAvailable()
            triggers: list[float] = [
                p.durationMs["triggerExecution"] / 1e3 for p in query.recentProgress if p.numInputRows
            ]
        finally:
            query.stop()
    lab.kafka.delete_topics([source, target])
    if len(triggers) < _WARM_UP + batches:
        raise ToolFailed(f"{who}: only {len(triggers)} micro-batches")
    return median(triggers[_WARM_UP:])


@contextmanager
def _looking(lab: Lab, spark: SparkSession) -> Iterator[None]:
    """While the block runs, a listener watches the session's queries, and its endpoint is scraped."""
    options = {"kafka.bootstrap.servers": lab.bootstrap, "subscribe": "any", "metricsPort": 0}
    listener, ended = ProgressListener(options, spark=spark), threading.Event()

    def scrape() -> None:
        while not ended.wait(_SCRAPE_SECONDS):
            urllib.request.urlopen(f"http://{listener.metrics_address}/metrics").close()

    spark.streams.addListener(listener)
    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    try:
        yield
    finally:
        ended.set()
        scraper.join()
        spark.streams.removeListener(listener)
        listener.close()
