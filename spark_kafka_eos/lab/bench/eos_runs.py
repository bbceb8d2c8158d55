"""Runs EOSPerformance with and without pre-registration, on a separate broker with the older protocol (TV1)."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from spark_kafka_eos.lab.bench.alternating import Show, silent
from spark_kafka_eos.lab.bench.eos_performance import EosResult, EosSettings, eos_performance
from spark_kafka_eos.lab.bench.figures import Comparison, Series
from spark_kafka_eos.lab.bench.inputs import Shape
from spark_kafka_eos.lab.bench.lab import BROKER, JVM, Lab
from spark_kafka_eos.testing.embedded import EmbeddedKafka

VERSION_BEFORE_KIP_890 = "3.9.1"
WITH, WITHOUT = "with pre-registration", "without pre-registration"


def compare_registration(
    show: Show = silent,
    said: Callable[[EosResult], None] = lambda _: None,
    *,
    num_records: int,
    runs: int = 3,
    partitions: int = 16,
    transaction_duration_ms: int = 50,
) -> Comparison:
    """Compare in short transactions over many partitions: one request for each partition, or one for all."""
    with EmbeddedKafka(VERSION_BEFORE_KIP_890, config=BROKER, jvm_options=JVM) as kafka, Lab(kafka, show) as lab:
        data = lab.input(Shape(records=num_records, partitions=partitions))
        by_side: dict[str, list[EosResult]] = {WITHOUT: [], WITH: []}
        for number in range(runs + 1):
            for name, results in by_side.items():
                (output,) = lab.topics("eos", 1, partitions)
                settings = EosSettings(
                    input_topic=data.topics[0],
                    output_topic=output,
                    num_records=num_records,
                    consumer={"kafka.bootstrap.servers": lab.bootstrap},
                    producer={"kafka.bootstrap.servers": lab.bootstrap},
                    consumer_group_id=lab.name("group"),
                    transactional_id=lab.name("id"),
                    transaction_duration_ms=transaction_duration_ms,
                    pre_registration=name == WITH,
                )
                result = eos_performance(settings, show)
                lab.check([output], num_records, name)
                if number:
                    results.append(result)
                    said(result)
        return comparison(by_side, partitions=partitions, transaction_duration_ms=transaction_duration_ms)


def comparison(by_side: dict[str, list[EosResult]], **settings: object) -> Comparison:
    """The comparison of these runs; `settings` has the medians of ProducerPerformance's figures, in milliseconds."""
    return Comparison(
        title="EOSPerformance (KIP-609), transaction.version 1",
        series=tuple(
            Series(name=name, records=results[0].records, seconds=tuple(result.seconds for result in results))
            for name, results in by_side.items()
        ),
        settings={
            **settings,
            "latency_ms": {
                name: {f"p{100 * q:g}": median(r.latency.quantiles[q] for r in results) for q in (0.5, 0.95, 0.99)}
                for name, results in by_side.items()
            },
            "commit_ms": {name: median(r.transactions.median for r in results) for name, results in by_side.items()},
            "transactions": {name: median(r.transactions.count for r in results) for name, results in by_side.items()},
        },
    )
