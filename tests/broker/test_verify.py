"""The checker on real brokers: it holds for what was written exactly once, and names each bug that is put in.

Every bug is put into the code that runs (a decision is replaced, no log is forged), in a situation that the right code
survives; the same situation without the bug must hold.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from spark_kafka_eos.broker import offsets as broker_offsets
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core import barrier, recovery
from spark_kafka_eos.core.barrier import AppendReport, Commit
from spark_kafka_eos.core.findings import Invariant
from spark_kafka_eos.core.history import to_line
from spark_kafka_eos.core.visibility import visible
from spark_kafka_eos.eos import blocks as eos_blocks
from spark_kafka_eos.eos import reading
from spark_kafka_eos.eos.distributed import SharedTransaction
from spark_kafka_eos.errors import CommitOutcomeUnknown, KafkaEosError, LedgerRefused, TransactionAborted
from spark_kafka_eos.model import OffsetRange, TopicPartition
from spark_kafka_eos.tools import scan
from spark_kafka_eos.tools.cli import app
from spark_kafka_eos.tools.follower import Follower
from spark_kafka_eos.tools.verify import verify
from tests.broker.conftest import options_of
from tests.copying import SLOTS, Copy, Stage
from tests.producing import produce, transact

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
BATCH = 30  # offsets of each source partition
ONCE, ORDER, IDENTITY, VISIBILITY, LEDGER, HEALED = Invariant


class Killed(BaseException):
    """The driver is gone in the middle of something."""


@pytest.fixture
def world(either_kafka, cluster):
    return World(either_kafka, cluster)


def run(driver, *batches):
    for number in batches:
        driver.run(number, BATCH * number, BATCH * (number + 1))


class World:
    """A source of two partitions with holes, an empty output, drivers, and the checker."""

    def __init__(self, kafka, cluster):
        number = next(numbers)
        self.kafka, self.cluster = kafka, cluster
        self.source, self.target = (kafka.create_topic(f"verify-{name}-{number}", 2) for name in ("in", "out"))
        for partition in (0, 1):
            produce(kafka.bootstrap, self.source, [b"x"] * 90, partition=partition)
        transact(kafka.bootstrap, self.source, [b"aborted"] * 10, "abort")
        self._await_marker()
        for partition in (0, 1):
            produce(kafka.bootstrap, self.source, [b"x"] * 30, partition=partition)
        self.history = []
        self.readers = {}

    def _await_marker(self):
        """EndTxn is answered before its markers are written; what is appended until then stands in front of them."""
        partitions = [TopicPartition(self.source, 0)]
        deadline = time.monotonic() + 20
        while broker_offsets.latest(self.cluster, partitions) != {partitions[0]: 101}:
            assert time.monotonic() < deadline

    def driver(self, query="query"):
        copy = Copy(self.kafka.bootstrap, self.cluster, self.source, self.target, query=query)
        copy.history = self.history
        return copy

    def observe(self):
        """What this package's source shows of the output now."""
        partitions = [TopicPartition(self.target, number) for number in range(SLOTS)]
        ends = broker_offsets.latest(self.cluster, partitions)
        ranges = [OffsetRange(partition=tp, start=0, end=end) for tp, end in ends.items()]
        self.readers["the source"] = scan.seen(self.cluster, self.target, ranges, lambda _: None)

    def verify(self, **more):
        return verify(
            self.cluster.options,
            self.target,
            source=self.source,
            transactional_id=f"id-{self.target}",
            history=self.history,
            readers=self.readers,
            wait_s=0.5,
            **more,
        )


def test_what_was_written_exactly_once_holds(world, tmp_path):
    driver = world.driver()
    with Follower(world.cluster.options, world.target, SLOTS) as follower:
        run(driver, 0, 1, 2, 3)
        report = world.verify(followers=[follower])
    assert report.holds, report
    assert {finding.verdict for finding in report.findings} == {"holds"}
    # Of the source's first partition 11 of 120 offsets are without a record: ten aborted ones and their marker.
    assert (report.records, report.uncommitted) == (229, 0)
    assert report.readers == ("spark-kafka-eos", "librdkafka", "follower 1")
    assert report.findings[VISIBILITY - 1].checked == 3 * 229

    noted = tmp_path / "history"
    noted.write_text("".join(map(to_line, world.history)))
    arguments = ["--bootstrap-servers", world.kafka.bootstrap, "--topic", world.target, "--source", world.source]
    arguments += ["--transactional-id", f"id-{world.target}", "--history", str(noted), "--json"]
    shown = CliRunner().invoke(app, ["verify", *arguments])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["records"] == 229


# -- situations


def all_is_well(world, patch):
    run(world.driver(), 0, 1, 2, 3)


def three_equal_batches(world, patch):
    run(world.driver(), 0, 1, 2)


def in_batch(number, driver, spark):
    """`spark(stage)` runs the first try of one batch, all else goes well."""
    run(driver, *range(number))
    tries = iter([spark])

    def run_stage(stage):
        next(tries, Stage.run)(stage)

    driver.spark = run_stage
    run(driver, *range(number, 4))


def a_task_dies_and_runs_again(world, patch):
    def spark(stage):
        stage.run([0])
        stage.append(1, stage.blocks[1][:1])  # dies behind its first block, so nobody hears of it
        stage.reports.append(AppendReport(stage_id=0, slot=1, attempt=1, sent={}, acked={}))
        stage.attempts = replace(stage.attempts, failed_tasks=1)

    in_batch(2, world.driver(), spark)


def a_stage_runs_again_with_its_blocks_in_another_order(world, patch):
    def spark(stage):
        stage.append(0, stage.blocks[0][:1])
        first, second, third, *others = stage.blocks[0]
        stage.blocks[0] = [third, second, first, *others]
        stage.run()
        stage.attempts = replace(stage.attempts, current_attempt=1)

    in_batch(2, world.driver(), spark)


def a_commit_is_applied_and_not_answered(world, patch):
    end, first = TransactionCoordinator.end, iter([True])

    def lossy(self, identity, *, commit):
        following = end(self, identity, commit=commit)
        if commit and next(first, False):
            raise CommitOutcomeUnknown("the answer was lost")
        return following

    driver = world.driver()
    run(driver, 0)
    patch.setattr(TransactionCoordinator, "end", lossy)
    run(driver, 1, 2, 3)


def a_driver_commits_while_its_successor_starts(world, patch):
    driver, successor = world.driver(), world.driver()
    run(driver, 0)
    batch = driver.batch(1, BATCH, 2 * BATCH)
    driver.transaction.begin(batch)
    driver.transaction.appending()
    identity = driver.transaction.identity
    driver.write(batch, identity)
    init, first = TransactionCoordinator.init_producer_id, iter([True])

    def late(self, held=None):
        if next(first, False):
            driver.transaction.commit(batch)
            driver.note(batch, identity.producer_id, identity.epoch)
        return init(self, held)

    patch.setattr(TransactionCoordinator, "init_producer_id", late)
    run(successor, 1, 2, 3)


def a_checkpoint_is_restored_and_plans_a_committed_batch_anew(world, patch):
    run(world.driver(), 0, 1)
    driver = world.driver()
    with contextlib.suppress(LedgerRefused):
        driver.run(1, BATCH, 3 * BATCH)
        driver.run(2, 3 * BATCH, 4 * BATCH)


def a_driver_dies_between_a_batchs_offsets_and_its_end(world, patch):
    driver = world.driver()
    run(driver, 0)

    def die(self, identity, *, commit):
        raise Killed

    with patch.context() as gone, contextlib.suppress(Killed):
        gone.setattr(TransactionCoordinator, "end", die)
        run(driver, 1)
    run(world.driver(), 1, 2, 3)


def a_batch_fails_for_good(world, patch):
    def spark(stage):
        stage.run([0])
        raise KafkaEosError("a row of slot 1 is too large")

    driver = world.driver()
    run(driver, 0)
    driver.spark = spark
    with pytest.raises(KafkaEosError, match="too large"):
        run(driver, 1)


def a_try_is_aborted_while_somebody_reads(world, patch):
    def spark(stage):
        stage.run()
        world.observe()
        raise TransactionAborted("something happened")

    in_batch(2, world.driver(), spark)


def a_try_is_aborted_and_somebody_reads_then(world, patch):
    a_task_dies_and_runs_again(world, patch)
    world.observe()


def the_ledger_expires(world, patch):
    driver = world.driver()
    run(driver, 0, 1)
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap})
    (deleted,) = admin.delete_consumer_groups([driver.options.ledger_group]).values()
    deleted.result()
    try:
        run(world.driver(), 1, 2, 3)
    except LedgerRefused:  # and what it advises: a new checkpoint, startingOffsets=committed
        successor = world.driver(query="successor")
        successor.run(0, 2 * BATCH, 3 * BATCH)
        successor.run(1, 3 * BATCH, 4 * BATCH)


# -- bugs


def no_barrier(patch):
    patch.setattr(barrier, "decide", lambda reports, stages, expected: Commit(records=sum(expected.values())))


def stage_attempts_not_looked_at(patch):
    patch.setattr(barrier, "_stage_that_ran_again", lambda stages: None)


def abort_after_an_unknown_commit(patch):
    def settle(self, batch, error):
        known = self._entry
        with contextlib.suppress(KafkaEosError):
            self._coordinator.end(self.identity, commit=False)
        self._initialise()
        self._entry = known
        raise TransactionAborted("the commit was not answered, so the batch was aborted") from error

    patch.setattr(SharedTransaction, "_settle", settle)


def ledger_read_before_init(patch):
    initialise = SharedTransaction._initialise

    def early(self):
        entry = self._read_ledger()
        initialise(self)
        self._entry = entry

    patch.setattr(SharedTransaction, "_initialise", early)


def skip_by_batch_id_alone(patch):
    own_entry = recovery._own_entry

    def decide(entry, batch):
        return recovery.Skip(reason="its id") if entry.batch_id == batch.batch_id else own_entry(entry, batch)

    patch.setattr(recovery, "_own_entry", decide)


def no_ledger_taken_for_a_new_one(patch):
    patch.setattr(recovery, "_without_entry", lambda batch, committed: recovery.Write(reason="a new ledger"))


def no_epoch_bump(patch):
    init = TransactionCoordinator.init_producer_id
    patch.setattr(TransactionCoordinator, "init_producer_id", lambda self, held=None: held or init(self, held))


def offsets_outside_the_transaction(patch):
    patch.setattr(SharedTransaction, "_send_offsets", lambda self, group, offsets: group.commit_offsets(offsets))


def no_abort(patch):
    patch.setattr(SharedTransaction, "abort", lambda self: None)


def last_stable_offset_ignored(patch):
    patch.setitem(broker_offsets.ISOLATION_LEVELS, "read_committed", 0)


def aborted_list_ignored(patch):
    patch.setattr(reading, "visible", lambda batches, *_: [not batch.is_control for batch in batches])


def abort_markers_ignored(patch):
    def forgetful(batches, markers, aborted, isolation):
        return visible(batches, [None if marker == "abort" else marker for marker in markers], aborted, isolation)

    patch.setattr(reading, "visible", forgetful)


def rows_not_kept_in_order(patch):
    class Numpy:
        def __getattr__(self, name):
            return getattr(np, name)

        def argsort(self, keys, kind):
            return np.lexsort((-np.arange(len(keys)), keys))

    patch.setattr(eos_blocks, "np", Numpy())


def a_transaction_for_each_partition(patch):
    def run(self, number, start, end):
        batch = self.batch(number, start, end)
        for slot in range(SLOTS):
            owner = SharedTransaction(self.options, self.cluster, None)
            owner.begin(batch)
            owner.appending()
            blocks = [block for block in self.blocks(batch) if block.partition.partition == slot]
            self.append(owner.identity, slot, blocks)
            owner.commit(batch)

    patch.setattr(Copy, "run", run)


# Situation, bug, what must find it. Each needs the protocol after KIP-890, but for the last: there the broker refuses.
SEEDED = [
    (a_task_dies_and_runs_again, no_barrier, ONCE),
    (a_stage_runs_again_with_its_blocks_in_another_order, stage_attempts_not_looked_at, ONCE),
    (a_commit_is_applied_and_not_answered, abort_after_an_unknown_commit, IDENTITY),
    (a_driver_commits_while_its_successor_starts, ledger_read_before_init, LEDGER),
    (a_checkpoint_is_restored_and_plans_a_committed_batch_anew, skip_by_batch_id_alone, LEDGER),
    (the_ledger_expires, no_ledger_taken_for_a_new_one, ONCE),
    (a_driver_dies_between_a_batchs_offsets_and_its_end, offsets_outside_the_transaction, ONCE),
    (a_batch_fails_for_good, no_abort, HEALED),
    (a_try_is_aborted_while_somebody_reads, last_stable_offset_ignored, VISIBILITY),
    (a_try_is_aborted_and_somebody_reads_then, aborted_list_ignored, VISIBILITY),
    (a_try_is_aborted_and_somebody_reads_then, abort_markers_ignored, VISIBILITY),
    (all_is_well, last_stable_offset_ignored, ONCE),
    (all_is_well, rows_not_kept_in_order, ORDER),
    (all_is_well, a_transaction_for_each_partition, IDENTITY),
]  # fmt: skip


@pytest.mark.parametrize(("situation", "bug", "invariant"), SEEDED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_seeded_bug_is_caught_and_without_it_all_holds(kafka, situation, bug, invariant, cell):
    check_seeded(kafka, situation, bug, invariant, cell)


def test_an_epoch_that_serves_two_batches_is_caught_where_the_broker_lets_it(kafka39, cell):
    check_seeded(kafka39, three_equal_batches, no_epoch_bump, ONCE, cell)


def check_seeded(kafka, situation, bug, invariant, cell):
    cell("seeded bugs", bug.__name__.replace("_", " "), f"{invariant} {invariant.name.lower()}")
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        sound, broken = World(kafka, cluster), World(kafka, cluster)
        with pytest.MonkeyPatch.context() as patch:
            situation(sound, patch)
        report = sound.verify()
        assert report.holds, report
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            situation(broken, patch)
        report = broken.verify()
        assert invariant in report.violated, report
        print(report)
