"""`python -m lab soak`: runs the clusters, the source, the queries and the faults, and finally the check."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lab.bench.machine import machine
from lab.bench.plots import new_figure
from lab.soak import evidence
from lab.soak.brokers import Broker, Site
from lab.soak.check import SourceRecord, judge_copies, judge_figures, places_of, plan_of, succession
from lab.soak.drivers import Query
from lab.soak.faults import Faults, Injected
from lab.soak.queries import MIRROR, SOURCE, STATEFUL, STATELESS, Way, output
from lab.soak.report import Progress, QuerySide, Soaked, faults, remarks, summary, table, write
from lab.soak.schedule import ELSEWHERE, schedule
from lab.soak.screen import Screen
from lab.soak.source import Source
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing import read_offsets
from spark_kafka_eos.testing.driver import spark_home
from spark_kafka_eos.testing.embedded import JVM_OPTIONS, EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.tools.verify.follower import Follower
from spark_kafka_eos.tools.verify.verification import verify

NAMES = (STATELESS, STATEFUL, MIRROR)
PARTITIONS, SOURCE_PARTITIONS = 3, 4
_START_SECONDS = 120.0  # for a broker, on a busy machine
_POLL_SECONDS, _SAMPLE_SECONDS = 0.25, 1.0
_WARM_UP = 3  # micro-batches: the first reads what was sent before Spark ran, the second what was sent during the first
_TIMEOUT = 300.0  # seconds for the queries' first batches, and for the remaining ones at the end, on a slow machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The command's options: `rate` in records per second, `output` the folder of the report."""

    minutes: float
    seed: int
    rate: int
    brokers: int
    kafka_version: str
    output: Path
    keep: bool = False
    way: Way = Way.OWN

    @property
    def seconds(self) -> float:
        return 60 * self.minutes


def run(settings: Settings, console: Console) -> bool:
    """Run a soak; return whether its result is correct. If not, or with `keep`, logs, data and checkpoints are kept."""
    new_figure(1, 1)  # fails now, not at the end, if matplotlib is missing
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
        console.print(f"Seed {settings.seed}. Report: {write(soaked, settings.output)}", soft_wrap=True)
    finally:
        if holds and not settings.keep:
            shutil.rmtree(folder)
        else:
            console.print(f"Logs of drivers and brokers, checkpoints and data: {folder}", soft_wrap=True)
    return holds


def _soak(settings: Settings, folder: Path, console: Console) -> Soaked:
    with ExitStack() as stack:
        screen = stack.enter_context(Screen(console, settings.seconds))
        home = _site(stack, settings, folder / "kafka", settings.brokers)
        elsewhere = _site(stack, settings, folder / ELSEWHERE, 1, "-Xmx256m")
        brokers = f"{settings.brokers} broker(s) of Apache Kafka {settings.kafka_version}, and one in another cluster"
        screen.say(f"{brokers}, each behind a proxy")
        home.kafka.create_topic(SOURCE, SOURCE_PARTITIONS)
        sites = {STATELESS: home, STATEFUL: home, MIRROR: elsewhere}
        for name, site in sites.items():
            site.kafka.create_topic(output(name), PARTITIONS)
        followers = [
            stack.enter_context(Follower(evidence.client(site.proxy.bootstrap), output(name), PARTITIONS))
            for name, site in sites.items()
        ]
        spark = spark_home(folder / "spark")
        reached = home.proxy.bootstrap
        queries = {
            name: Query(
                name=name,
                source=reached,
                sink=site.proxy.bootstrap,
                folder=folder,
                spark_home=spark,
                way=settings.way,
            )
            for name, site in sites.items()
        }
        for query in queries.values():
            stack.callback(query.stop)
        soak = _Soak(settings, screen, home, sites, Source(reached, settings.rate), queries, followers)
        soak.warm_up()
        soak.play()
        drained = soak.drain()
        return soak.judge(drained=drained)


def _site(stack: ExitStack, settings: Settings, folder: Path, brokers: int, *jvm_options: str) -> Site:
    """A cluster that runs until the stack is closed."""
    kafka = EmbeddedKafka(
        settings.kafka_version,
        brokers=brokers,
        directory=folder,
        jvm_options=(*JVM_OPTIONS, *jvm_options),
        start_timeout=_START_SECONDS,
    )
    stack.enter_context(kafka)
    return Site(kafka=kafka, proxy=stack.enter_context(Proxy(kafka.bootstrap)))


class _Soak:
    """One soak on running clusters, step by step; the caller cleans up. `home` is the source's cluster, `sites` are the
    clusters of the queries' outputs.
    """

    def __init__(
        self,
        settings: Settings,
        screen: Screen,
        home: Site,
        sites: dict[str, Site],
        source: Source,
        queries: dict[str, Query],
        followers: list[Follower],
    ) -> None:
        self._settings, self._screen, self._home, self._sites = settings, screen, home, sites
        self._source, self._queries, self._followers = source, queries, followers
        self._faults = Faults(
            schedule(settings.seed, settings.seconds, brokers=settings.brokers),
            brokers={
                **{str(node): Broker(site=home, node=node) for node in home.kafka.nodes},
                ELSEWHERE: Broker(site=sites[MIRROR], node=1),
            },
            queries=queries,
            tell=self._tell,
        )
        self._samples: list[Progress] = []
        self._started = time.monotonic()

    def warm_up(self) -> None:
        """Start everything, and wait until the queries have read what was sent while they started."""
        self._source.start()
        for query in self._queries.values():
            query.start()
        self._screen.say("source and queries start")
        deadline = time.monotonic() + _TIMEOUT
        while any(query.batches < _WARM_UP for query in self._queries.values()):
            self._look()
            if time.monotonic() > deadline:
                raise ToolFailed(f"the queries have not written their first batches within {_TIMEOUT:g} s")

    def play(self) -> None:
        """Inject the faults."""
        self._started = time.monotonic()
        self._samples.clear()
        self._screen.begin()
        self._screen.say("all queries write; the faults begin")
        self._faults.start()
        while (now := self._now()) < self._settings.seconds:
            self._look()
            self._screen.move(now, self._figures())
        self._faults.stop()

    def drain(self) -> bool:
        """End faults and source, and let the queries read to its end; return whether they have reached it."""
        self._source.stop()
        for site in set(self._sites.values()):
            site.heal()
        self._screen.say("faults and input have ended; the queries read to the end")
        deadline = time.monotonic() + _TIMEOUT
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
        self._screen.say("checking with librdkafka's consumer and with kafka-eos verify")
        records = evidence.source_records(self._home.kafka.bootstrap)
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
            hanging=sum(evidence.hanging(site.kafka.bootstrap, topics) for site, topics in self._topics().items()),
            drained=drained,
        )

    def _topics(self) -> dict[Site, list[str]]:
        """The source topic and the output topics, by cluster."""
        topics = {self._home: [SOURCE]}
        for name, site in self._sites.items():
            topics.setdefault(site, []).append(output(name))
        return topics

    def _side(self, query: Query, follower: Follower, records: list[SourceRecord]) -> QuerySide:
        committed = succession([evidence.history(checkpoint) for checkpoint in query.checkpoints])
        history = [entry for entries in committed for entry in entries]
        plan = plan_of(history)
        written = self._sites[query.name].kafka.bootstrap
        if query.name == STATEFUL:
            outcome = judge_figures(records, plan, evidence.figures(written))
        else:
            outcome = judge_copies(records, plan, evidence.copies(written, query.name, places_of(committed)))
        report = verify(
            evidence.client(written),
            output(query.name),
            source=None if query.name == STATEFUL else SOURCE,
            source_client=evidence.client(self._home.kafka.bootstrap),
            transactional_id=query.name,
            history=history,
            followers=[follower],
        )
        return QuerySide(
            name=query.name,
            drivers=query.started,
            ended=tuple(query.ended),
            redone=query.redone,
            lost=query.lost,
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
        """Restart drivers that have ended, raise permanent failures, and take a sample."""
        for query in self._queries.values():
            if (why := query.revive()) is not None:
                self._screen.say(f"the {query.name} query's driver ended by itself ({why}); restarted", "yellow")
        self._source.check()
        self._faults.check()
        if not self._samples or self._now() - self._samples[-1].seconds >= _SAMPLE_SECONDS:
            seen = tuple(follower.records for follower in self._followers)
            self._samples.append(Progress(seconds=self._now(), source=self._source.committed, outputs=seen))
        time.sleep(_POLL_SECONDS)  # processes, files and a reader's count have no common event to wait for

    def _at_the_end(self) -> bool:
        source = self._home.kafka.bootstrap
        ends = read_offsets.ends(source, SOURCE, "read_committed")
        if ends != read_offsets.ends(source, SOURCE, "read_uncommitted"):
            return False
        return all(query.at_rest and self._has_committed(query.name, ends) for query in self._queries.values())

    def _has_committed(self, name: str, ends: dict[int, int]) -> bool:
        done = evidence.progress(name, self._home.kafka.bootstrap, self._sites[name].kafka.bootstrap)
        return all(done.get(partition, 0) >= end for partition, end in ends.items())

    def _figures(self) -> str:
        outputs = ", ".join(
            f"{name} {follower.records:,}" for name, follower in zip(self._queries, self._followers, strict=True)
        )
        return f"records: source {self._source.committed:,}, {outputs}; {len(self._faults.injected)} faults"

    def _tell(self, injected: Injected) -> None:
        self._screen.say(str(injected), "bold red")
