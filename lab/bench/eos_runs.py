"""Runs EOSPerformance with and without pre-registration, on brokers with either transaction protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median

from lab.bench.alternating import Show, silent
from lab.bench.eos_performance import EosResult, EosSettings, eos_performance
from lab.bench.figures import Point, Sweep
from lab.bench.inputs import Shape
from lab.bench.lab import BROKER, JVM, Lab, releases
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import EmbeddedKafka

RELEASES = {"TV1": "3.9.1", "TV2": jars.DEFAULT_VERSION}
PARTITIONS = (64, 128, 256, 512)
WITH, WITHOUT = "with pre-registration", "without pre-registration"
_WARM_UP = 10  # transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A line of the plot."""

    lab: Lab
    protocol: str
    pre_registration: bool

    @property
    def name(self) -> str:
        return f"{self.protocol}, {WITH if self.pre_registration else WITHOUT}"


@contextmanager
def both_protocols(show: Show = silent) -> Iterator[Mapping[str, Lab]]:
    """A broker for each of `RELEASES`."""
    with ExitStack() as stack:
        labs = {}
        for protocol, version in RELEASES.items():
            kafka = stack.enter_context(EmbeddedKafka(version, config=BROKER, jvm_options=JVM))
            labs[protocol] = stack.enter_context(Lab(kafka, show))
        yield labs


def compare_registration(
    labs: Mapping[str, Lab],
    report: Callable[[EosResult], None] = lambda _: None,
    *,
    transactions: int = 200,
    runs: int = 7,
    partitions: Sequence[int] = PARTITIONS,
    records: int = 2_000,
) -> Sweep:
    """Milliseconds of a transaction of `records` records over all partitions of a topic: the median of a run of
    `transactions` transactions; of several runs their median, with the quartiles.

    `labs` are by protocol. All ways run in turn, every second round in reverse order.
    """
    ways = [
        _Way(lab=labs[protocol], protocol=protocol, pre_registration=way) for protocol in labs for way in (False, True)
    ]
    points: list[Point] = []
    details: dict[str, dict[str, dict[str, float]]] = {}
    for count in partitions:
        for name, results in _runs(ways, transactions, runs, count, records, report).items():
            points.append(Point.of(name, count, [result.transactions.median for result in results]))
            details.setdefault(name, {})[str(count)] = _details(results)
    return Sweep(
        title="EOSPerformance (KIP-609)",
        x="partitions",
        y="ms per transaction",
        points=tuple(points),
        settings={
            "runs": runs,
            "transactions": transactions,
            "records": records,
            "requests": details,
            "kafka": releases(labs),
        },
    )


def added(before: Sweep, later: Sweep) -> Sweep:
    """Both results of `compare_registration`, which takes long for many partitions; of the same one, the later."""
    measured = {(point.line, point.at) for point in later.points}
    kept = [point for point in before.points if (point.line, point.at) not in measured]
    points = sorted([*kept, *later.points], key=lambda point: (before.lines.index(point.line), point.at))
    requests = {line: before.settings["requests"][line] | later.settings["requests"][line] for line in before.lines}
    runs = min(int(details["runs"]) for line in requests.values() for details in line.values())
    return replace(later, points=tuple(points), settings={**later.settings, "requests": requests, "runs": runs})


def _runs(
    ways: Sequence[_Way],
    transactions: int,
    runs: int,
    partitions: int,
    records: int,
    report: Callable[[EosResult], None],
) -> dict[str, list[EosResult]]:
    """The results of each way, in turn, after a short round that is not measured."""
    outputs = {lab: lab.topics("eos", 1, partitions) for lab in {way.lab for way in ways}}
    by_way: dict[str, list[EosResult]] = {way.name: [] for way in ways}
    written = 0
    for number in range(runs + 1):
        copied = (transactions if number else min(_WARM_UP, transactions)) * records
        for way in ways if number % 2 else reversed(ways):
            data = way.lab.input(Shape(records=transactions * records, partitions=1))
            settings = EosSettings(
                input_topic=data.topics[0],
                output_topic=outputs[way.lab][0],
                num_records=copied,
                consumer={"kafka.bootstrap.servers": way.lab.bootstrap},
                producer={"kafka.bootstrap.servers": way.lab.bootstrap},
                consumer_group_id=way.lab.name("group"),
                transactional_id=way.lab.name("id"),
                transaction_duration_ms=0,
                max_poll_records=records,
                pre_registration=way.pre_registration,
            )
            result = eos_performance(settings, way.lab.show)
            if number:
                by_way[way.name].append(result)
                report(result)
        written += copied
    for lab, output in outputs.items():
        lab.check(output, written * sum(way.lab is lab for way in ways), "EOSPerformance")
    return by_way


def _details(results: Sequence[EosResult]) -> dict[str, float]:
    """Medians of the runs, per transaction: requests, and milliseconds."""

    def each(figure: Callable[[EosResult], float]) -> float:
        return round(median(figure(result) / result.transactions.count for result in results), 3)

    return {
        "runs": len(results),
        "AddPartitionsToTxn": each(lambda result: result.requests.count("AddPartitionsToTxn")),
        "Produce": each(lambda result: result.requests.count("Produce")),
        "waited_ms": each(lambda result: result.requests.waited("CONCURRENT_TRANSACTIONS")),
        "commit_ms": each(lambda result: result.commits.mean * result.commits.count),
        "transactions": median(result.transactions.count for result in results),
    }
