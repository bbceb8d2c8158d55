"""Random transactional workloads: what the package reads, what librdkafka reads and what was sent, row by row.

The seed is part of a test's name. `KAFKA_EOS_SEEDS=7,100-120` names others (`tests.workload`), `-m slow` runs twenty.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

import pyarrow as pa
import pytest

from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.describe import transaction
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import arrow_schema, read
from tests.producing import KEEP
from tests.reading import librdkafkas, ours, rows
from tests.workload import Workload, seeds

pytestmark = pytest.mark.broker


@pytest.fixture
def check(kafka, topic):
    """`check(seed)`: run a workload, reading along."""

    def run(seed):
        chance = random.Random(seed)
        partitions = chance.randint(1, 4)
        name = topic(f"workload-{seed}", partitions=partitions, config=KEEP)
        workload = Workload(kafka.bootstrap, name, partitions, seed)
        reader = readers.enter_context(Reader(kafka.bootstrap, name, chance))
        for _ in workload.run():
            if chance.random() < 0.2:
                reader.micro_batch()
        # With transactions still open, as it is in the middle of things; then to its end.
        await_markers(reader.cluster, workload)
        compare(kafka.bootstrap, name, partitions, chance)
        workload.stop()
        await_markers(reader.cluster, workload)
        compare(kafka.bootstrap, name, partitions, chance)
        assert ours(kafka.bootstrap, name) == sorted(workload.committed, key=lambda row: row[:3])
        everything = ours(kafka.bootstrap, name, **{"kafka.isolation.level": "read_uncommitted"})
        assert everything == sorted(workload.written, key=lambda row: row[:3])
        assert 0 < len(workload.committed) < len(workload.written), "some are aborted"
        reader.to_the_end()
        assert reader.seen() == sorted(workload.committed, key=lambda row: row[:3])

    with ExitStack() as readers:
        yield run


@pytest.mark.parametrize("seed", seeds(or_else="1-2"))
def test_every_reader_sees_exactly_what_was_committed(check, seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(101, 121))
def test_every_reader_sees_exactly_what_was_committed_whatever_the_seed(check, seed):
    check(seed)


def await_markers(cluster, workload):
    """Markers are written after a producer was told that its transaction has ended."""
    deadline = time.monotonic() + 60
    for transactional_id in workload.transactional_ids:
        while (found := transaction(cluster, transactional_id, now_ms=0)) is None or prepared(found):
            assert time.monotonic() < deadline, f"{transactional_id} has no markers"


def prepared(found):
    assert isinstance(found, TransactionFacts), found
    return found.state.startswith("Prepare")


def sizes(chance):
    """Fetch sizes and tasks at random: they must not show in the rows."""
    return {
        "kafka.fetch.max.bytes": str(chance.choice([1_000, 50_000, 50_000_000])),
        "kafka.max.partition.fetch.bytes": str(chance.choice([1_000, 20_000, 8_000_000])),
        "minPartitions": str(chance.choice([1, 3, 10])),
    }


def compare(bootstrap, name, partitions, chance):
    for isolation_level in ("read_committed", "read_uncommitted"):
        theirs = librdkafkas(bootstrap, name, partitions, isolation_level=isolation_level)
        given = {"kafka.isolation.level": isolation_level}
        assert ours(bootstrap, name, **given, **sizes(chance)) == theirs
        last = {number: offset for _, number, offset, *_ in theirs}
        start = {number: chance.randint(0, last.get(number, -1) + 1) for number in range(partitions)}
        offsets = ", ".join(f'"{number}": {offset}' for number, offset in start.items())
        part = ours(bootstrap, name, startingOffsets=f'{{"{name}": {{{offsets}}}}}', **given, **sizes(chance))
        assert part == [row for row in theirs if row[2] >= start[row[1]]]


class Reader:
    """A stream that reads all along, in micro-batches of random sizes."""

    def __init__(self, bootstrap, name, chance):
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "startingOffsets": "earliest"}
        given |= {"maxOffsetsPerTrigger": str(chance.choice([5, 100, 2_000])), "includeHeaders": "true"}
        self.options = source_options(given | sizes(chance), streaming=True)
        self.batches = []
        self.positions, self.cluster = OffsetPlanner(self.options), Cluster(self.options.client)
        self.at = self.positions.initial()

    def micro_batch(self):
        """Whether there was anything to read."""
        start, self.at = self.at, self.positions.latest(self.at, limited=True)
        for task in self.positions.batch(start, self.at):
            self.batches += read(task, self.options, self.cluster)
        return start != self.at

    def to_the_end(self):
        while self.micro_batch():
            pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.positions.close()
        self.cluster.close()

    def seen(self):
        return rows(pa.Table.from_batches(self.batches, arrow_schema(include_headers=True)))
