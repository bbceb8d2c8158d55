"""Topics with random contents, read with random options, in batches and as streams: what the package reads, what
librdkafka reads and what was sent, row by row.

A failure names the seed of its topic: `KAFKA_EOS_SEEDS=7,100-120` fills only these (`tests.fuzzed_topics`). `-m slow`
reads four thousand.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as RdTopicPartition

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import IsolationLevel as Level
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import arrow_schema, read
from spark_kafka_eos.testing import EmbeddedKafka
from tests.fuzzed_topics import EAGER_BROKERS, Bounds, Life, Lives, named
from tests.reading import librdkafkas_of, rows
from tests.workload import seeds

pytestmark = pytest.mark.broker

LEVELS: tuple[Level, ...] = ("read_committed", "read_uncommitted")
IN_EVERY_RUN, TOGETHER = 20, 50  # topics
PARTS, PER_PART = 4, 1_000
prefixes = (f"fuzzed-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def eager(kafka_version):
    with EmbeddedKafka(kafka_version, config=EAGER_BROKERS) as kafka:
        yield kafka


@pytest.fixture
def check(eager):
    """`check(seeds)`: fill these topics, reading along, and compare what is read with what there is."""

    def run(wanted):
        with (
            Lives(eager.bootstrap, wanted, prefix=next(prefixes)) as lives,
            Cluster(source_options(given(eager.bootstrap, "any")).client) as cluster,
        ):
            Check(lives, cluster).run()

    return run


def test_topics_with_random_contents_are_read_as_librdkafka_reads_them(check):
    check(seeds(or_else=f"1-{IN_EVERY_RUN}"))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(PARTS))
def test_thousands_of_topics_with_random_contents_are_read_as_librdkafka_reads_them(check, part):
    first = 1_000 + part * PER_PART
    for start in range(first, first + PER_PART, TOGETHER):
        check(range(start, start + TOGETHER))


class Check:
    """Compares all topics: while they are filled, with transactions still open, and in the end."""

    def __init__(self, lives: Lives, cluster: Cluster) -> None:
        self.lives, self.cluster = lives, cluster

    def run(self):
        streams = {life.topic: Along(self.lives.bootstrap, self.cluster, life) for life in self.lives.lives}
        for _ in self.lives.rounds():
            self.each(lambda life: streams[life.topic].now_and_then())
        self.compare("open")
        self.lives.settle()
        there = self.compare("ended")
        self.each(lambda life: streams[life.topic].finish(there[life.topic]))

    def each(self, step):
        """All topics, even if some fail."""
        errors = []
        for life in self.lives.lives:
            try:
                with named(life):
                    step(life)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is raised with the others
                errors.append(error)
        if errors:
            raise ExceptionGroup("topics are not read as they should be", errors)

    def compare(self, moment):
        """Read each topic in several ways. Returns what librdkafka reads of each, by isolation level."""
        there = Contents.of(self.lives, self.lives.lives)
        self.each(lambda life: self.compare_one(life, there[life.topic], moment))
        return there

    def compare_one(self, life, there, moment, attempts=5):
        try:
            self.read_in_many_ways(life, there, random.Random(f"{life.seed}-{moment}"))
        except Exception:
            # The brokers may have been about to delete something: that is seen by reading it again with librdkafka.
            again = Contents.of(self.lives, [life])[life.topic]
            if again == there or not attempts or not life.loses:
                raise
            self.compare_one(life, again, moment, attempts - 1)

    def read_in_many_ways(self, life, there, chance):
        sent = {"read_committed": life.committed, "read_uncommitted": life.written}
        for level in LEVELS:
            if not life.loses and not life.pending:
                assert there.rows[level] == in_order(sent[level]), "librdkafka reads what was sent"
            assert set(there.rows[level]) <= set(sent[level])
        for number in range(4):
            ask = Ask.drawn(life, there, chance, streaming=number == 3)
            self.read(life, ask, chance)

    def read(self, life, ask, chance):
        options = source_options(
            {"kafka.bootstrap.servers": self.lives.bootstrap} | ask.options, streaming=ask.streaming
        )
        positions = OffsetPlanner(options, self.cluster)
        if ask.is_reversed:
            with pytest.raises(ConfigurationError, match="start after its end"):
                positions.latest(positions.initial(), limited=True) if ask.streaming else positions.batch_read()
            return
        if ask.streaming:
            stream = Stream(options, self.cluster, chance)
            stream.to_the_end()
            found = stream.batches
        else:
            tasks = positions.batch_read()
            if options.max_records_per_partition:
                sizes = [one.size for task in tasks for one in task]
                assert max(sizes, default=0) <= options.max_records_per_partition
            found = [batch for task in tasks for batch in read(task, options, self.cluster)]
        seen = rows_of(found, options, life)
        wanted = ask.rows if options.include_headers else [(*row[:6], None) for row in ask.rows]
        assert seen == wanted, f"{ask.options}: {difference(seen, wanted)}"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a topic has: its bounds, and what librdkafka reads by isolation level."""

    bounds: Bounds
    rows: Mapping[str, list]

    @staticmethod
    def of(lives, wanted):
        bounds = lives.bounds(wanted)
        written = seen_by_librdkafka(lives, wanted, "read_uncommitted")
        # Where the records of an open transaction were deleted, librdkafka may not say that it is at the end.
        said = [life for life in wanted if not (life.pending and life.loses)]
        committed = seen_by_librdkafka(lives, said, "read_committed")
        for life in wanted:
            if life.topic not in committed:
                visible, stable = set(life.committed), bounds[life.topic].stable
                committed[life.topic] = [
                    row for row in written[life.topic] if row in visible and row[2] < stable[row[1]]
                ]
        return {
            life.topic: Contents(
                bounds[life.topic],
                {"read_committed": committed[life.topic], "read_uncommitted": written[life.topic]},
            )
            for life in wanted
        }


def seen_by_librdkafka(lives, wanted, level):
    """What librdkafka reads of these topics."""
    from_the_beginning = [
        RdTopicPartition(life.topic, tp.partition, OFFSET_BEGINNING) for life in wanted for tp in life.tps()
    ]
    return librdkafkas_of(lives.bootstrap, from_the_beginning, isolation_level=level)


@dataclass(frozen=True, slots=True)
class Ask:
    """Options of a read, and the rows that it should return."""

    options: dict[str, str]
    streaming: bool
    rows: list
    is_reversed: bool

    @staticmethod
    def drawn(life: Life, there: Contents, chance: random.Random, *, streaming: bool):
        level = chance.choice(LEVELS)
        drawing = Drawing(life, there, chance, level, streaming=streaming, fails=chance.random() < 0.5)
        (starting, start), (ending, end) = drawing.start(), drawing.end()
        options = sizes(chance) | starting | ending | (limits(chance) if streaming else {})
        options |= {"kafka.isolation.level": level, "failOnDataLoss": str(drawing.fails).lower()}
        options["includeHeaders"] = chance.choice(["true", "false"])
        numbers = [*range(life.now_partitions)]
        selecting = {"assign": json.dumps({life.topic: numbers}), "subscribePattern": f"^{life.topic}$|nothing-else"}
        how = chance.choice(["subscribe", "subscribe", *selecting])
        options[how] = selecting.get(how, life.topic)
        rows = [row for row in there.rows[level] if start[row[1]] <= row[2] < end[row[1]]]
        return Ask(options, streaming, rows, any(start[number] > end[number] for number in end))


class Drawing:
    """Where a read starts and ends: as options, and as the offset of each partition that they mean."""

    def __init__(self, life, there, chance, level: Level, *, streaming, fails):
        self.life, self.chance = life, chance
        self.streaming, self.fails = streaming, fails
        self.numbers = range(life.now_partitions)
        self.first, self.latest = there.bounds.first, there.bounds.latest(level)
        self.rows = there.rows[level]
        self.times = [row[3] for row in self.rows] or [0]

    def start(self):
        match self.chance.choice(["earliest", "offsets", "minus", "time", "times"]):
            case "earliest":
                return {"startingOffsets": "earliest"}, self.first
            case "offsets":
                # Where data may be lost, also offsets that were deleted.
                since = self.first if self.fails else dict.fromkeys(self.numbers, 0)
                values, start = self.offsets([-2, -1] if self.streaming else [-2], since)
                return {"startingOffsets": self.json_of(values)}, start
            case "minus":
                back = self.chance.choice([1, 5, 1_000])
                start = {number: max(self.first[number], self.latest[number] - back) for number in self.numbers}
                return {"startingOffsets": f"latest-{back}"}, start
            case how:
                name, wanted = self.by_time("starting", how)
                return name | {"startingOffsetsByTimestampStrategy": "latest"}, self.at(wanted)

    def end(self):
        match self.chance.choice(["latest", "latest", "offsets", "time", "times"]):
            case "latest":
                return {}, self.latest
            case "offsets":
                values, end = self.offsets([-1], self.first)
                return {"endingOffsets": self.json_of(end if self.streaming else values)}, end
            case how:
                name, wanted = self.by_time("ending", how)
                return name, self.at(wanted)

    def offsets(self, special, since):
        """Some as -2 and -1, earliest and latest; and what these mean."""
        latest = self.latest
        values = {n: self.chance.randint(min(since[n], latest[n]), latest[n]) for n in self.numbers}
        values |= {n: self.chance.choice(special) for n in self.numbers if self.chance.random() < 0.2}
        return values, {n: {-2: self.first[n], -1: latest[n]}.get(value, value) for n, value in values.items()}

    def by_time(self, bound, how):
        """One time for all partitions, or one for each."""
        times = {n: max(0, self.chance.choice(self.times) + self.chance.choice([-1, 0, 1])) for n in self.numbers}
        if how == "times":
            return {f"{bound}OffsetsByTimestamp": self.json_of(times)}, times
        return {f"{bound}Timestamp": str(times[0])}, dict.fromkeys(self.numbers, times[0])

    def at(self, times):
        """The first record at or after these times that the reader sees; the latest offset where there is none.

        Brokers name markers and aborted records, too, so they cannot be asked.
        """
        backwards = sorted(self.rows, key=lambda row: row[2], reverse=True)
        return self.latest | {
            partition: offset for _, partition, offset, time, *_ in backwards if time >= times[partition]
        }

    def json_of(self, values):
        return json.dumps({self.life.topic: {str(number): values[number] for number in self.numbers}})


class Stream:
    """Micro-batches one after the other, with the position as a checkpoint keeps it."""

    def __init__(self, options, cluster, chance):
        self.options, self.cluster, self.chance = options, cluster, chance
        self.batches = []
        self.positions = self.started()
        self.at = self.positions.initial()

    def started(self):
        clock = itertools.count(0, 10)  # a query looks for new partitions only every few seconds
        return OffsetPlanner(self.options, self.cluster, clock=lambda: float(next(clock)))

    def micro_batch(self):
        """Whether there was anything to read. Some queries start again before it, and some while it runs."""
        if self.chance.random() < 0.2:
            self.positions = self.started()
        start, self.at = self.at, json.loads(json.dumps(self.positions.latest(self.at, limited=True)))
        if start == self.at:
            return False
        if self.chance.random() < 0.2:
            self.positions = self.started()
        tasks = self.positions.batch(start, self.at)
        self.batches += [batch for task in tasks for batch in read(task, self.options, self.cluster)]
        return True

    def to_the_end(self):
        while self.micro_batch():
            pass


class Along:
    """A stream that reads a topic while it is filled."""

    def __init__(self, bootstrap: str, cluster: Cluster, life: Life) -> None:
        self.life, self.chance = life, random.Random(f"{life.seed}-along")
        self.level = self.chance.choice(LEVELS)
        options = given(bootstrap, life.topic) | sizes(self.chance) | limits(self.chance)
        options |= {"startingOffsets": self.chance.choice(["earliest", "latest"]), "includeHeaders": "true"}
        options |= {"kafka.isolation.level": self.level, "failOnDataLoss": str(not life.loses).lower()}
        self.stream = Stream(source_options(options, streaming=True), cluster, self.chance)
        self.stream.micro_batch()  # before there is a record: whatever comes is read

    def now_and_then(self):
        if self.chance.random() < 0.3:
            self.stream.micro_batch()

    def finish(self, there):
        self.stream.to_the_end()
        seen = rows_of(self.stream.batches, self.stream.options, self.life)
        sent = in_order(self.life.committed if self.level == "read_committed" else self.life.written)
        if not self.life.loses:
            assert seen == sent, difference(seen, sent)
            return
        assert len(seen) == len(set(seen)), "a record was read twice"
        assert set(seen) <= set(sent), "a record was read that a reader must not see"
        left = there.rows[self.level]
        assert set(left) <= set(seen), difference(seen, left)


def given(bootstrap, topic):
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}


def sizes(chance):
    """Fetch sizes, tasks and checks at random: they must not show in the rows."""
    options = {
        "kafka.fetch.max.bytes": str(chance.choice([1_000, 50_000, 50_000_000])),
        "kafka.max.partition.fetch.bytes": str(chance.choice([1_000, 20_000, 8_000_000])),
        "kafka.fetch.max.wait.ms": str(chance.choice([1, 20])),
        "kafka.check.crcs": chance.choice(["true", "true", "false"]),
    }
    if chance.random() < 0.4:
        options["minPartitions"] = str(chance.choice([2, 10]))
    if chance.random() < 0.2:
        options["maxRecordsPerPartition"] = str(chance.choice([7, 50]))
    elif chance.random() < 0.2:
        options["maxBytesPerPartition"] = str(chance.choice([100, 10_000]))
    return options


def limits(chance):
    options = {"maxOffsetsPerTrigger": str(chance.choice([20, 100, 2_000]))} if chance.random() < 0.7 else {}
    if chance.random() < 0.3:
        options["maxBytesPerTrigger"] = chance.choice(["1k", "50k"])
    if chance.random() < 0.2:
        options |= {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1"}
    return options


def rows_of(batches, options, life):
    """The rows, whose timestamps are of the topic's kind."""
    found = pa.Table.from_batches(batches, arrow_schema(include_headers=options.include_headers))
    assert set(found["timestampType"].to_pylist()) <= {1 if life.appends_time else 0}
    return rows(found)


def in_order(found):
    return sorted(found, key=lambda row: row[:3])


def difference(seen, wanted):
    """The first row that is missing, and the first that should not be there."""
    missing = next((row for row in wanted if row not in set(seen)), None)
    extra = next((row for row in seen if row not in set(wanted)), None)
    return f"{len(seen)} rows for {len(wanted)}; missing {str(missing)[:200]}, not there {str(extra)[:200]}"
