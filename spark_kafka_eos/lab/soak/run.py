"""`kafka-eos chaos soak`: the cluster, the source, the queries, the faults, and in the end the check."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.bench.machine import machine
from spark_kafka_eos.lab.bench.plots import new_figure
from spark_kafka_eos.lab.soak import evidence
from spark_kafka_eos.lab.soak.brokers import await_in_sync
from spark_kafka_eos.lab.soak.check import SourceRecord, judge_copies, judge_figures
from spark_kafka_eos.lab.soak.drivers import Query
from spark_kafka_eos.lab.soak.faults import Faults, Injected
from spark_kafka_eos.lab.soak.queries import SOURCE, STATEFUL, STATELESS, output
from spark_kafka_eos.lab.soak.report import Sample, Side, Soaked, faults, remarks, summary, table, write
from spark_kafka_eos.lab.soak.schedule import schedule
from spark_kafka_eos.lab.soak.screen import Screen
from spark_kafka_eos.lab.soak.source import Source
from spark_kafka_eos.options import ClientOptions, source_options
from spark_kafka_eos.testing import read_offsets
from spark_kafka_eos.testing.driver import spark_home
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.verify.follower import Follower
from spark_kafka_eos.verify.verification import verify

NAMES = (STATELESS, STATEFUL)
PARTITIONS, SOURCE_PARTITIONS = 3, 4
_START_SECONDS = 120.0  # for a broker, beside all that goes on then
_LOOK_SECONDS, _SAMPLE_SECONDS = 0.25, 1.0
_WARM = 3  # micro-batches: the first takes what was sent until Spark ran, the second what was sent during the first
_PATIENCE = 300.0  # seconds for the queries' first batches, and for what is left at the end, on a slow machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is asked for; `rate` in records per second, `output` takes the report."""

    minutes: float
    seed: int
    rate: int
    brokers: int
    kafka_version: str
    output: Path
    keep: bool = False

    @property
    def seconds(self) -> float:
        return 60 * self.minutes


def run(settings: Settings, console: Console) -> bool:
    """Whether all is as it must be. Logs, data and checkpoints stay with `keep`, and when something is off."""
    new_figure(1, 1)  # that matplotlib is missing should not be learned at the end
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-soak-"))
    holds = False
    try:
        soaked = _soak(settings, folder, console)
        holds = soaked.holds
        console.print(table(soaked))
        for remark in remarks(soaked):
            console.print(remark, markup=False, soft_wrap=True)
        console.print(f"faults: {faults(soaked)}", soft_wrap=True)
        console.print(summary(soaked), soft_wrap=True, style="bold green" if holds else "bold red")
        console.print(f"Seed {settings.seed}. The report: {write(soaked, settings.output)}", soft_wrap=True)
    finally:
        if holds and not settings.keep:
            shutil.rmtree(folder)
        else:
            console.print(f"Logs of drivers and brokers, checkpoints and data: {folder}", soft_wrap=True)
    return holds


def _soak(settings: Settings, folder: Path, console: Console) -> Soaked:
    with ExitStack() as stack:
        screen = stack.enter_context(Screen(console, settings.seconds))
        kafka = EmbeddedKafka(
            settings.kafka_version, brokers=settings.brokers, directory=folder / "kafka", start_timeout=_START_SECONDS
        )
        stack.enter_context(kafka)
        screen.say(f"{settings.brokers} broker(s) of Apache Kafka {settings.kafka_version}, each behind a proxy")
        kafka.create_topic(SOURCE, SOURCE_PARTITIONS)
        kafka.create_topics([output(name) for name in NAMES], PARTITIONS)
        proxy = stack.enter_context(Proxy(kafka.bootstrap))
        followers = [
            stack.enter_context(Follower(_client(proxy.bootstrap), output(name), PARTITIONS)) for name in NAMES
        ]
        home = spark_home(folder / "spark")
        queries = {name: Query(name=name, bootstrap=proxy.bootstrap, folder=folder, spark_home=home) for name in NAMES}
        for query in queries.values():
            stack.callback(query.stop)
        soak = _Soak(settings, screen, kafka, proxy, Source(proxy.bootstrap, settings.rate), queries, followers)
        soak.warm_up()
        soak.play()
        drained = soak.drain()
        return soak.judge(drained=drained)


class _Soak:
    """One soak on a running cluster, step by step; the caller cleans up."""

    def __init__(
        self,
        settings: Settings,
        screen: Screen,
        kafka: EmbeddedKafka,
        proxy: Proxy,
        source: Source,
        queries: dict[str, Query],
        followers: list[Follower],
    ) -> None:
        self._settings, self._screen, self._kafka = settings, screen, kafka
        self._source, self._queries, self._followers = source, queries, followers
        self._faults = Faults(
            schedule(settings.seed, settings.seconds, brokers=settings.brokers),
            kafka=kafka,
            proxy=proxy,
            queries=queries,
            tell=self._tell,
        )
        self._samples: list[Sample] = []
        self._started = time.monotonic()

    def warm_up(self) -> None:
        """Start everything, and wait until both queries have caught up with what was sent while they started."""
        self._source.start()
        for query in self._queries.values():
            query.start()
        self._screen.say("source and queries start")
        deadline = time.monotonic() + _PATIENCE
        while any(query.batches < _WARM for query in self._queries.values()):
            self._look()
            if time.monotonic() > deadline:
                raise ToolFailed(f"the queries have not written their first batches within {_PATIENCE:g} s")

    def play(self) -> None:
        """The minutes of faults."""
        self._started = time.monotonic()
        self._samples.clear()
        self._screen.begin()
        self._screen.say("both queries write; the faults begin")
        self._faults.start()
        while (now := self._now()) < self._settings.seconds:
            self._look()
            self._screen.move(now, self._figures())
        self._faults.stop()

    def drain(self) -> bool:
        """End faults and source, let the queries get to its end; whether they did."""
        self._source.stop()
        self._kafka.resume()
        self._kafka.start()
        await_in_sync(self._kafka.bootstrap)
        self._screen.say("no more faults, no more input; the queries go on to its end")
        deadline = time.monotonic() + _PATIENCE
        drained = False
        while not drained and time.monotonic() < deadline:
            self._look()
            drained = self._at_the_end()
        for query in self._queries.values():
            query.stop()
        self._look()
        return drained

    def judge(self, *, drained: bool) -> Soaked:
        """Read everything and compare."""
        self._screen.say("checking, with librdkafka's consumer and with this package's own checker")
        records = evidence.source_records(self._kafka.bootstrap)
        return Soaked(
            seed=self._settings.seed,
            minutes=self._settings.minutes,
            brokers=self._settings.brokers,
            kafka_version=self._settings.kafka_version,
            machine=machine(),
            faults=tuple(sorted(self._faults.injected, key=lambda injected: injected.at)),
            samples=tuple(self._samples),
            records=len(records),
            aborted=self._source.aborted,
            sides=tuple(
                self._side(query, follower, records)
                for query, follower in zip(self._queries.values(), self._followers, strict=True)
            ),
            hanging=evidence.hanging(self._kafka.bootstrap),
            drained=drained,
        )

    def _side(self, query: Query, follower: Follower, records: list[SourceRecord]) -> Side:
        history = evidence.history(query.checkpoint)
        plan = evidence.plan(history)
        if query.name == STATELESS:
            outcome = judge_copies(records, plan, evidence.copies(self._kafka.bootstrap))
        else:
            outcome = judge_figures(records, plan, evidence.figures(self._kafka.bootstrap))
        report = verify(
            _client(self._kafka.bootstrap),
            output(query.name),
            source=SOURCE if query.name == STATELESS else None,
            transactional_id=query.name,
            history=history,
            followers=[follower],
        )
        return Side(
            name=query.name,
            drivers=query.started,
            ended=tuple(query.ended),
            redone=query.redone,
            outcome=outcome,
            violated=tuple(
                f"{finding.invariant.name.lower()}: {problem}"
                for finding in report.findings
                for problem in (*finding.violations, *([finding.unchecked] if finding.unproven else []))
            ),
        )

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _look(self) -> None:
        """Start drivers again that have ended, notice what broke for good, note how far everything is."""
        for query in self._queries.values():
            if (why := query.revive()) is not None:
                self._screen.say(f"the {query.name} query's driver ended by itself ({why}); started again", "yellow")
        self._source.check()
        self._faults.check()
        if not self._samples or self._now() - self._samples[-1].seconds >= _SAMPLE_SECONDS:
            seen = tuple(follower.records for follower in self._followers)
            self._samples.append(Sample(seconds=self._now(), source=self._source.committed, outputs=seen))
        time.sleep(_LOOK_SECONDS)  # processes, files and a reader's count: none of them tells when it changes

    def _at_the_end(self) -> bool:
        bootstrap = self._kafka.bootstrap
        ends = read_offsets.ends(bootstrap, SOURCE, "read_committed")
        if ends != read_offsets.ends(bootstrap, SOURCE, "read_uncommitted"):
            return False
        return all(query.stands_at(ends, bootstrap) for query in self._queries.values())

    def _figures(self) -> str:
        outputs = ", ".join(
            f"{name} {follower.records:,}" for name, follower in zip(self._queries, self._followers, strict=True)
        )
        return f"records: source {self._source.committed:,}, {outputs}; {len(self._faults.injected)} faults"

    def _tell(self, injected: Injected) -> None:
        self._screen.say(str(injected), "bold red")


def _client(bootstrap: str) -> ClientOptions:
    return source_options(
        {"kafka.bootstrap.servers": bootstrap, "kafka.request.timeout.ms": 10_000, "subscribe": SOURCE}
    ).client
