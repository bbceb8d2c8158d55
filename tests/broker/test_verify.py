"""The checker on real brokers: it holds for what was written exactly once, and names each bug that is put in.

Every bug is put into the code that runs (a decision is replaced, no log is forged), in a situation that the right code
survives; the same situation without the bug must hold.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from spark_kafka_eos.appending import barrier
from spark_kafka_eos.appending import blocks as eos_blocks
from spark_kafka_eos.appending.barrier import AppendReport
from spark_kafka_eos.appending.blocks import ROWS, BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.errors import CommitOutcomeUnknown, KafkaEosError, LedgerRefused, ToolFailed, TransactionAborted
from spark_kafka_eos.kafka.fetching import visibility
from spark_kafka_eos.kafka.fetching.visibility import visible
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import describe, transactions
from spark_kafka_eos.kafka.protocol import offsets as broker_offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import end_transaction
from spark_kafka_eos.kafka.wire.batch_header import CONTROL
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger import verdicts as ledger_verdicts
from spark_kafka_eos.ledger.ends import CommittedEnd
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.verify import scan
from spark_kafka_eos.tools.verify.findings import Invariant
from spark_kafka_eos.tools.verify.follower import Follower
from spark_kafka_eos.tools.verify.history import to_line
from spark_kafka_eos.tools.verify.verification import verify
from spark_kafka_eos.transaction.attempt import Event
from spark_kafka_eos.transaction.doubt import CommitDoubt
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.broker.conftest import options_of
from tests.copying import SLOTS, Copy, Stage, traced, with_values
from tests.letters import headers_of
from tests.producing import produce, transact

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
BATCH = 30  # offsets of each source partition
ONCE, ORDER, IDENTITY, VISIBILITY, LEDGER, HEALED, _ = Invariant


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
        self.fill()
        self.write_as = traced
        self.history = []
        self.readers = {}
        # Kept, as an answer does not come once its client is garbage.
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})

    def fill(self):
        for partition in (0, 1):
            produce(self.kafka.bootstrap, self.source, [b"x"] * 90, partition=partition)
        transact(self.kafka.bootstrap, self.source, [b"aborted"] * 10, "abort")
        self._await_marker()
        for partition in (0, 1):
            produce(self.kafka.bootstrap, self.source, [b"x"] * 30, partition=partition)

    def _await_marker(self):
        """EndTxn is answered before its markers are written; what is appended until then stands in front of them."""
        partitions = [TopicPartition(self.source, 0)]
        deadline = time.monotonic() + 60
        while broker_offsets.latest(self.cluster, partitions) != {partitions[0]: 101}:
            assert time.monotonic() < deadline

    def driver(self, query="query", origin=None, **options):
        copy = Copy(
            self.kafka.bootstrap, self.cluster, self.source, self.target, query=query, origin=origin, options=options
        )
        copy.history, copy.write_as = self.history, self.write_as
        return copy

    def delete_pointer(self):
        """As it is when it has expired."""
        (deleted,) = self.admin.delete_consumer_groups([f"id-{self.target}.ledger"]).values()
        deleted.result(30)

    def delete_group(self):
        (deleted,) = self.admin.delete_consumer_groups([f"id-{self.target}"]).values()
        deleted.result(30)

    def delete_record(self):
        """By a tombstone that somebody else writes."""
        produce(self.kafka.bootstrap, LEDGER_TOPIC, [None], key=f"id-{self.target}".encode())

    def observe(self):
        """What this package's source shows of the output now."""
        partitions = [TopicPartition(self.target, number) for number in range(SLOTS)]
        ends = broker_offsets.latest(self.cluster, partitions)
        ranges = [OffsetRange(partition=tp, start=0, end=end) for tp, end in ends.items()]
        self.readers["the source"] = scan.seen(self.cluster, ranges, lambda _: None)

    def verify(self, **more):
        return verify(
            self.cluster.options,
            self.target,
            source=self.source,
            transactional_id=f"id-{self.target}",
            history=self.history or None,
            readers=self.readers,
            wait_s=0.5,
            **more,
        )

    def ask(self, *more):
        """What the command says of the output: its exit code and its JSON."""
        arguments = ["--bootstrap-servers", self.kafka.bootstrap, "--topic", self.target, "--source", self.source]
        arguments += ["--transactional-id", f"id-{self.target}", "--json", *more]
        shown = CliRunner().invoke(app, ["verify", *arguments])
        assert shown.exit_code in (0, 1, 3), shown.output
        return shown.exit_code, json.loads(shown.stdout)


def test_what_was_written_exactly_once_holds(world, tmp_path):
    driver = world.driver()
    with Follower(world.cluster.options, world.target, SLOTS) as follower:
        run(driver, 0, 1, 2, 3)
        report = world.verify(followers=[follower])
    assert report.holds, report
    assert [finding.verdict for finding in report.findings] == ["holds"] * 6
    # Of the source's first partition 11 of 120 offsets are without a record: ten aborted ones and their marker.
    assert (report.records, report.uncommitted) == (229, 0)
    assert report.readers == ("spark-kafka-eos", "librdkafka", "follower 1")
    assert report.findings[VISIBILITY - 1].checked == 3 * 229

    noted = tmp_path / "history"
    noted.write_text("".join(map(to_line, world.history)))
    exit_code, shown = world.ask("--history", str(noted))
    assert (exit_code, shown["verdict"], shown["records"]) == (0, "holds", 229)


# -- situations


def all_is_well(world, patch):
    run(world.driver(), 0, 1, 2, 3)


def three_equal_batches(world, patch):
    run(world.driver(), 0, 1, 2)


def in_batch(number, driver, spark):
    """`spark(stage)` runs the first attempt at one batch; everything else succeeds."""
    run(driver, *range(number))
    tries = iter([spark])

    def run_stage(stage):
        next(tries, Stage.run)(stage)

    driver.spark = run_stage
    run(driver, *range(number, 4))


def a_task_dies_and_runs_again(world, patch):
    def spark(stage):
        stage.run([0])
        stage.append(1, stage.blocks[1][:1])  # dies after its first block, so there is no report
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
    end, first = transactions.end_transaction, iter([True])

    def lossy(cluster, identity, *, commit):
        following = end(cluster, identity, commit=commit)
        if commit and next(first, False):
            raise CommitOutcomeUnknown("the answer was lost")
        return following

    driver = world.driver()
    run(driver, 0)
    patch.setattr(transactions, "end_transaction", lossy)
    run(driver, 1, 2, 3)


def a_driver_commits_while_its_successor_starts(world, patch):
    driver, successor = world.driver(), world.driver()
    run(driver, 0)
    batch = driver.batch(1, BATCH, 2 * BATCH)
    driver.transaction.begin(batch)
    driver.transaction.appending()
    identity = driver.transaction.identity
    driver.write(batch, identity)
    init, first = transactions.init_producer_id, iter([True])

    def late(*names, **more):
        if next(first, False):
            driver.transaction.commit(batch)
            driver.note(batch, identity.producer_id, identity.epoch)
        return init(*names, **more)

    patch.setattr(transactions, "init_producer_id", late)
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

    def die(cluster, identity, *, commit):
        raise Killed

    with patch.context() as gone, contextlib.suppress(Killed):
        gone.setattr(transactions, "end_transaction", die)
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


def an_attempt_is_aborted_while_somebody_reads(world, patch):
    def spark(stage):
        stage.run()
        world.observe()
        raise TransactionAborted("something happened")

    in_batch(2, world.driver(), spark)


def an_attempt_is_aborted_and_somebody_reads_then(world, patch):
    a_task_dies_and_runs_again(world, patch)
    world.observe()


def the_ledger_is_deleted(world, patch):
    run(world.driver(), 0, 1)
    world.delete_pointer()
    world.delete_record()
    try:
        run(world.driver(), 1, 2, 3)
    except LedgerRefused:  # and what it advises: a new checkpoint, startingOffsets=committed
        successor = world.driver(query="successor")
        successor.run(0, 2 * BATCH, 3 * BATCH)
        successor.run(1, 3 * BATCH, 4 * BATCH)


# -- bugs


def no_barrier(patch):
    patch.setattr(barrier, "obstacle", lambda reports, stages, expected: None)


def stage_attempts_not_looked_at(patch):
    patch.setattr(barrier, "_stage_that_ran_again", lambda stages: None)


def abort_after_an_unknown_commit(patch):
    def settle(self, batch, entry, error, *, is_over):
        steps = self._steps
        steps.attempt.apply(Event.COMMIT_IN_DOUBT)
        with contextlib.suppress(KafkaEosError):
            end_transaction(steps._cluster, steps.identity, commit=False)
        with mock.patch.object(steps.ledger, "read"):  # which knows of no commit
            self._owner.initialise()
        raise TransactionAborted("the commit was not answered, so the batch was aborted") from error

    patch.setattr(CommitDoubt, "doubt", settle)


def ledger_read_before_init(patch):
    take = Owner._take

    def early(self, named, before, read_under):
        steps = self._steps
        if steps.hold.identity is not None:  # its own last transaction may not have its markers yet
            return take(self, named, before, read_under)
        steps.ledger.read()
        entry = steps.ledger.entry
        take(self, named, before, None)
        steps.ledger.remember_committed(entry, steps.identity)
        return "read"

    patch.setattr(Owner, "_take", early)


def skip_by_batch_id_alone(patch):
    own_entry = ledger_verdicts._own_entry

    def decide(entry, batch, ended, **more):
        return (
            ledger_verdicts.Skip(reason="its id")
            if entry.batch_id == batch.batch_id
            else own_entry(entry, batch, ended, **more)
        )

    patch.setattr(ledger_verdicts, "_own_entry", decide)
    # Or the batch after it is refused, since it does not start where the ledger says that this one ended.
    patch.setattr(CommittedEnd, "mismatch", lambda self: None)


def no_ledger_taken_for_a_new_one(patch):
    patch.setattr(ledger_verdicts, "without_entry", lambda *_, **__: ledger_verdicts.Write(reason="a new ledger"))


def no_epoch_bump(patch):
    init = transactions.init_producer_id

    def keep(cluster, name, timeout_ms, previous=None, **more):
        if previous is None:
            return init(cluster, name, timeout_ms, **more)
        deadline = time.monotonic() + 60
        # InitProducerId waits for the last transaction's markers; without them its ledger entry is not seen.
        while "Prepare" in str(describe.transaction(cluster, name, now_ms=0)):
            assert time.monotonic() < deadline
        return previous

    patch.setattr(transactions, "init_producer_id", keep)


def offsets_outside_the_transaction(patch):
    patch.setattr(LedgerKeeper, "_commit_offsets", lambda self, identity, group, offsets: group.commit_offsets(offsets))


def no_abort(patch):
    patch.setattr(SharedTransaction, "abort", lambda self: None)


def last_stable_offset_ignored(patch):
    patch.setitem(broker_offsets.ISOLATION_LEVELS, "read_committed", 0)


def aborted_list_ignored(patch):
    patch.setattr(visibility, "visible", lambda headers, *_: headers["attributes"] & CONTROL == 0)


def abort_markers_ignored(patch):
    def forgetful(headers, aborted, aborts, isolation_level):
        return visible(headers, aborted, lambda rows: np.zeros(len(rows), bool), isolation_level)

    patch.setattr(visibility, "visible", forgetful)


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
    (the_ledger_is_deleted, no_ledger_taken_for_a_new_one, ONCE),
    (a_driver_dies_between_a_batchs_offsets_and_its_end, offsets_outside_the_transaction, ONCE),
    (a_batch_fails_for_good, no_abort, HEALED),
    (an_attempt_is_aborted_while_somebody_reads, last_stable_offset_ignored, VISIBILITY),
    (an_attempt_is_aborted_and_somebody_reads_then, aborted_list_ignored, VISIBILITY),
    (an_attempt_is_aborted_and_somebody_reads_then, abort_markers_ignored, VISIBILITY),
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


# -- values without provenance


class Plain(World):
    """Thousands of records, each different, that are copied as they are."""

    def __init__(self, kafka, cluster):
        super().__init__(kafka, cluster)
        self.write_as = lambda rows, batch: rows

    def fill(self):
        for part, partition in itertools.product("ab", (0, 1)):
            if part == "b":
                transact(self.kafka.bootstrap, self.source, [b"aborted"] * 10, "abort", partition=partition)
            values = [f"{part}-{partition}-{n}".encode() for n in range(1_000)]
            produce(self.kafka.bootstrap, self.source, values, partition=partition, key=f"of {partition}".encode())

    def copy(self, write_as=None):
        """The whole source in four batches of one driver."""
        self.write_as = write_as or self.write_as
        driver = self.driver()
        for number, (start, end) in enumerate(itertools.pairwise((0, 500, 1_000, 1_500, 2_011))):
            driver.run(number, start, end)


@pytest.fixture
def plain(either_kafka, cluster):
    return Plain(either_kafka, cluster)


def verdicts(shown):
    return {finding["invariant"]: finding["verdict"] for finding in shown["findings"]}


def test_a_plain_copy_holds_by_its_contents(plain):
    plain.copy()
    exit_code, shown = plain.ask()
    assert (exit_code, shown["verdict"], shown["records"]) == (0, "holds", 4_000), shown
    assert verdicts(shown) == {
        "once": "holds",
        "order": "holds",
        "identity": "not checked",
        "visibility": "holds",
        "ledger": "not checked",
        "healed": "holds",
    }
    assert "keys and values are those of the source" in shown["findings"][0]["note"]
    assert plain.ask("--copy")[0] == 0


def test_a_job_that_sorts_violates_nothing_unless_it_is_said_to_copy(plain):
    plain.copy(lambda rows, batch: rows.take(pa.array(range(len(rows) - 1, -1, -1))))
    exit_code, shown = plain.ask()
    assert (exit_code, shown["verdict"], verdicts(shown)["once"]) == (0, "holds", "holds"), shown
    exit_code, shown = plain.ask("--copy")
    assert (exit_code, verdicts(shown)["once"], verdicts(shown)["order"]) == (1, "holds", "violated"), shown


def test_the_source_counts_up_to_the_ledgers_offsets_else_up_to_the_groups_else_to_its_end(plain):
    plain.copy()
    produce(plain.kafka.bootstrap, plain.source, [b"not read yet"] * 3)

    arguments = ["--bootstrap-servers", plain.kafka.bootstrap, "--topic", plain.target, "--source", plain.source]

    def ask(*more):
        shown = CliRunner().invoke(app, ["verify", *arguments, "--copy", "--json", *more])
        return shown.exit_code, json.loads(shown.stdout)["findings"][0]

    def compared(*more):
        exit_code, once = ask(*more)
        assert exit_code == 0, once
        return once["note"].partition("; ")[2]

    later = "after which the source has 3 records"
    query, group = f"id-{plain.target}", f"group 'id-{plain.target}'"
    assert compared("--transactional-id", query) == f"compared up to the offsets of the ledger, {later}"
    assert compared("--group", query) == f"compared up to the offsets of {group}, {later}"
    plain.delete_group()
    assert compared("--transactional-id", query) == f"compared up to the offsets of the ledger, {later}"
    exit_code, once = ask()
    assert exit_code == 1
    (lost,) = once["violations"]
    assert (lost["kind"], lost["count"]) == ("missing", 3)
    assert once["note"] == "compared up to the source's end"


def set_group(world, offset):
    """Somebody sets the query's group, as kafka-consumer-groups --reset-offsets does."""
    partitions = [RdTopicPartition(world.source, number, offset) for number in (0, 1)]
    request = [ConsumerGroupTopicPartitions(f"id-{world.target}", partitions)]
    (changed,) = world.admin.alter_consumer_group_offsets(request).values()
    changed.result(30)


def test_a_group_that_was_set_back_hides_no_loss(world):
    world.write_as = lambda rows, batch: traced(rows.slice(batch), batch)
    run(world.driver(), 0, 1)
    set_group(world, BATCH)
    exit_code, shown = world.ask()
    (lost,) = shown["findings"][0]["violations"]
    assert (exit_code, lost["kind"], lost["count"]) == (1, "missing", 2), shown
    at = f"{world.source}-0@{BATCH}, {world.source}-1@{BATCH}"
    assert shown["findings"][0]["note"].startswith(
        f"compared up to the offsets of the ledger (group 'id-{world.target}' is at {at})"
    )


def test_a_group_that_was_set_to_what_the_query_has_not_read_refutes_nothing(world):
    run(world.driver(), 0)
    set_group(world, 2 * BATCH)
    exit_code, shown = world.ask()
    once = shown["findings"][0]
    assert (exit_code, once["verdict"], once["violations"]) == (3, "not checked", []), shown
    assert "somebody has set the group, or the ledger has lost a commit" in once["unchecked"]


@pytest.mark.parametrize("copy", [[], ["--copy"]], ids=["traced", "plain"])
def test_a_source_that_was_created_again_is_not_what_the_query_read(world, copy):
    world.write_as = (lambda rows, batch: rows) if copy else traced
    run(world.driver(), 0, 1)
    assert world.ask(*copy)[0] == 0
    world.kafka.delete_topic(world.source)
    world.kafka.create_topic(world.source, 2)
    for partition in (0, 1):
        produce(world.kafka.bootstrap, world.source, [b"other"] * 2 * BATCH, partition=partition)
    exit_code, shown = world.ask(*copy)
    once = shown["findings"][0]
    assert (exit_code, once["verdict"], once["violations"]) == (3, "not checked", []), shown
    assert once["unchecked"].startswith(
        f"'{world.source}' is not what the query read: the topic was deleted and created again: its id was "
    )


def test_without_a_group_or_a_ledger_the_source_counts_up_to_where_the_history_ends(world):
    run(world.driver(), 0, 1, 2)
    found = verify(world.cluster.options, world.target, source=world.source, history=world.history)
    assert found.holds, found
    assert (
        found.findings[ONCE - 1].note
        == "compared up to the offsets of the history, after which the source has 60 records"
    )


def test_what_was_asked_for_and_is_not_there_is_said_and_no_success(plain, tmp_path):
    plain.copy()
    (tmp_path / "history").touch()
    arguments = ["--bootstrap-servers", plain.kafka.bootstrap, "--topic", plain.target, "--source", plain.source]

    def ask(*more):
        shown = CliRunner().invoke(app, ["verify", *arguments, "--json", *more])
        return shown.exit_code, {each["invariant"]: each for each in json.loads(shown.stdout)["findings"]}

    exit_code, found = ask("--history", str(tmp_path / "history"))
    assert (exit_code, found["ledger"]["unchecked"]) == (3, "the history has no committed batch")
    exit_code, found = ask("--transactional-id", "typo")
    assert (exit_code, found["ledger"]["unchecked"]) == (3, "the ledger has no entry of 'typo'")
    exit_code, found = ask("--group", "typo", "--copy")
    assert exit_code == 0, "the output has every record of the source"
    note = found["once"]["note"]
    assert note.endswith("; compared up to the source's end (group 'typo' has no offsets of the source)")


def forget_offset(world, partition):
    """As if the group's offset of one of the source's partitions had expired."""
    group = GroupCoordinator(world.cluster, f"id-{world.target}")
    committed = group.fetch_offsets(TopicPartition(world.source, number) for number in (0, 1))
    world.delete_group()
    group.commit_offsets({tp: at for tp, at in committed.items() if at is not None and tp.partition != partition})


@pytest.mark.parametrize(
    ("write_as", "more"), [(traced, []), (lambda rows, batch: rows, ["--copy"])], ids=["traced", "plain"]
)
def test_a_partition_that_is_missing_is_not_passed_over_where_the_group_has_no_offset_of_it(plain, write_as, more):
    plain.copy(lambda rows, batch: write_as(rows.filter(pc.equal(rows["partition"], 0)), batch))
    forget_offset(plain, 1)
    arguments = ["--bootstrap-servers", plain.kafka.bootstrap, "--topic", plain.target, "--source", plain.source]
    shown = CliRunner().invoke(app, ["verify", *arguments, "--group", f"id-{plain.target}", "--json", *more])
    once = json.loads(shown.stdout)["findings"][0]
    assert (shown.exit_code, once["verdict"]) == (3, "not checked"), once
    assert once["unchecked"] == (
        f"it is not known how many of the 2,000 records of {plain.source}-1 the query has read"
    )
    exit_code, known = plain.ask(*more)
    (lost,) = known["findings"][0]["violations"]
    assert (exit_code, lost["kind"], lost["count"]) == (1, "missing", 2_000), "the ledger says that it has read them"


def test_an_open_transaction_of_any_program_is_waited_for_and_then_a_violation(either_kafka):
    bootstrap = either_kafka.bootstrap
    topic = either_kafka.create_topic(f"verify-others-{next(numbers)}", 1)
    transact(bootstrap, topic, [b"a"] * 5, "commit")
    transact(bootstrap, topic, [b"b"] * 5, "abort")

    def ask(wait):
        arguments = ["--bootstrap-servers", bootstrap, "--topic", topic, "--wait", wait, "--json"]
        shown = CliRunner().invoke(app, ["verify", *arguments])
        return shown.exit_code, verdicts(json.loads(shown.stdout))

    exit_code, found = ask("5")
    assert (exit_code, found["visibility"], found["healed"]) == (0, "holds", "holds")
    assert found["ledger"] == "not checked", "what is not of this package has none"
    owner = transact(bootstrap, topic, [b"c"] * 5, "leave open")
    exit_code, found = ask("0.5")
    assert (exit_code, found["healed"]) == (1, "violated")
    commit = threading.Timer(1, owner.commit_transaction)
    commit.start()
    exit_code, found = ask("60")
    commit.join()
    assert (exit_code, found["visibility"], found["healed"]) == (0, "holds", "holds")


# -- an output of several topics


class Aside(World):
    """Every tenth record becomes a dead letter, in the same transaction; the others say in their values where they
    come from.
    """

    def __init__(self, kafka, cluster):
        super().__init__(kafka, cluster)
        self.dead = kafka.create_topic(f"{self.target}-dead")

    def driver(self, query="query", origin=None, **options):
        driver = super().driver(query, origin, **options)
        driver.blocks = lambda batch: self.blocks(driver, batch)
        return driver

    def blocks(self, driver, batch):
        topics = {self.target: Target(partitions=SLOTS), self.dead: Target(partitions=SLOTS)}
        encoder = BlockEncoder(EncodeSettings(topic=None, targets=topics), 0, pytest.fail, lambda: 0)
        for origin, wanted in driver.tasks(batch):
            for rows in read([wanted], SourceOptions(client=origin.options, subscribe=(self.source,)), origin):
                offsets = rows["offset"].to_pylist()
                good = traced(rows, batch.batch_id)["value"].to_pylist()
                dead = [offset % 10 == 0 for offset in offsets]
                letters = [self.letter(wanted.partition, offset, batch.batch_id) for offset in offsets]
                columns = {
                    "key": [None] * len(dead),
                    "value": [b"not Avro" if bad else value for bad, value in zip(dead, good, strict=True)],
                    "topic": [self.dead if bad else self.target for bad in dead],
                    "partition": [0 if bad else offset % SLOTS for bad, offset in zip(dead, offsets, strict=True)],
                    "headers": [each if bad else [] for bad, each in zip(dead, letters, strict=True)],
                }
                yield from encoder.add(
                    pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, ROWS[name]) for name in columns]))
                )
        yield from encoder.finish()

    def letter(self, of, offset, batch_id):
        cause = Cause.NOT_FRAMED
        return headers_of(
            DeadLetter(cause=cause, topic=of.topic, partition=of.partition, offset=offset, batch_id=batch_id)
        )


def test_good_records_and_dead_letters_are_together_the_source(either_kafka, cluster):
    world = Aside(either_kafka, cluster)
    run(world.driver(), 0, 1, 2, 3)
    exit_code, shown = world.ask("--topic", world.dead)
    assert (exit_code, shown["verdict"]) == (0, "holds"), shown
    assert shown["topics"] == {world.target: 207, world.dead: 22}
    assert [each["checked"] for each in shown["findings"][:3]] == [229, 207, 4], "dead letters are in no order"
    assert world.ask()[0] == 1, "without them, records are missing"
    # A dead letter of a record that was written as well.
    produce(either_kafka.bootstrap, world.dead, [b"x"], headers=world.letter(TopicPartition(world.source, 0), 1, 0))
    exit_code, shown = world.ask("--topic", world.dead)
    assert (exit_code, shown["findings"][0]["violations"][0]["kind"]) == (1, "more than once")


def test_a_follower_is_of_one_of_the_topics_and_of_all_its_partitions(either_kafka, cluster):
    world = Aside(either_kafka, cluster)
    with (
        Follower(cluster.options, world.dead, 1) as follower,
        Follower(cluster.options, world.target, 1) as other,
    ):
        run(world.driver(), 0, 1, 2, 3)
        query = {"source": world.source, "transactional_id": f"id-{world.target}"}
        report = verify(cluster.options, [world.target, world.dead], followers=[follower], **query)
        assert report.holds, report
        assert report.findings[VISIBILITY - 1].checked == 2 * 229 + 22
        with pytest.raises(ToolFailed, match=f"a follower reads 1 partitions of topic '{world.target}', of which 2"):
            verify(cluster.options, world.target, followers=[other])
        with pytest.raises(ToolFailed, match="of which 0 are checked"):
            verify(cluster.options, world.dead, followers=[other])


def test_a_batch_of_plain_values_that_is_redone_under_another_epoch_violates_nothing(plain):
    driver = plain.driver()
    driver.spark = a_first_attempt_that_fails()
    reports = [driver.run(number, 500 * number, 500 * (number + 1)) for number in range(3)]
    assert [len(report.redone) for report in reports] == [1, 0, 0]
    exit_code, shown = plain.ask()
    assert (exit_code, shown["verdict"]) == (0, "holds"), shown
    assert shown["uncommitted"] == 1_000


def a_first_attempt_that_fails():
    tries = itertools.count()

    def spark(stage):
        stage.run()
        if next(tries) == 0:
            raise TransactionAborted("something happened")

    return spark


def test_a_batch_of_traced_values_that_is_redone_under_another_epoch_violates_nothing(world):
    driver = world.driver()
    driver.spark = a_first_attempt_that_fails()
    run(driver, 0, 1, 2, 3)
    exit_code, shown = world.ask()
    assert (exit_code, shown["verdict"]) == (0, "holds"), shown


def test_a_transformation_of_the_source_cannot_be_told_from_a_loss_and_the_report_says_so(plain):
    plain.copy(lambda rows, batch: with_values(rows, pa.array([b"<%b>" % v for v in rows["value"].to_pylist()])))
    exit_code, shown = plain.ask()
    assert (exit_code, shown["verdict"]) == (3, "not checked"), shown
    assert verdicts(shown)["once"] == "not checked"
    assert "4,000 of the source's records are not in the output" in shown["findings"][0]["unchecked"]


def a_record_lost_and_one_twice(rows, batch):
    """Of the second batch's first partition: offset 503 is left out, offset 505 comes twice."""
    offset = rows["offset"].to_numpy()
    if batch != 1 or rows["partition"][0].as_py() != 0:
        return rows
    assert offset[0] == 500
    return rows.take(pa.array([n for n in range(len(offset)) if n != 3 for _ in range(2 if n == 5 else 1)]))


def test_in_a_declared_copy_each_lost_or_duplicated_record_is_named(plain):
    plain.copy(a_record_lost_and_one_twice)
    assert plain.ask()[0] == 3
    exit_code, shown = plain.ask("--copy")
    assert (exit_code, shown["verdict"]) == (1, "violated"), shown
    lost, twice = shown["findings"][0]["violations"]
    assert (lost["kind"], lost["where"], lost["count"]) == ("missing", f"{plain.source}-0@503", 1)
    assert (twice["kind"], twice["count"]) == ("more than once", 1)
    assert f"is another copy of {plain.source}-0@505" in twice["what"]


def test_a_bug_is_caught_by_contents_too(kafka):
    with Cluster(options_of(kafka.bootstrap)) as cluster, pytest.MonkeyPatch.context() as patch:
        plain = Plain(kafka, cluster)
        no_barrier(patch)
        a_task_dies_and_runs_again(plain, patch)
        assert ONCE in plain.verify(copy=True).violated


def test_a_copy_of_equal_records_is_checked_by_their_number(world):
    world.write_as = lambda rows, batch: rows
    run(world.driver(), 0, 1, 2, 3)
    exit_code, shown = world.ask("--copy")
    assert (exit_code, shown["verdict"], verdicts(shown)["order"]) == (0, "holds", "not checked"), shown


def test_a_plain_copy_of_values_that_have_somebody_elses_provenance_is_not_checked_by_that(kafka):
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        first = World(kafka, cluster)
        run(first.driver(), 0, 1, 2, 3)
        second = World(kafka, cluster)
        second.source, second.write_as = first.target, lambda rows, batch: rows
        run(second.driver(), 0, 1, 2)
        exit_code, shown = second.ask()
        assert (exit_code, shown["verdict"]) == (3, "not checked"), shown
        exit_code, shown = second.ask("--copy")
        assert (exit_code, shown["verdict"]) == (0, "holds"), shown


def test_what_the_source_no_longer_has_is_not_held_against_the_output(world):
    run(world.driver(), 0, 1, 2, 3)
    delete_before(world, world.source, 45)
    exit_code, shown = world.ask()
    assert (exit_code, shown["verdict"]) == (0, "holds"), shown
    assert "90 are copies of records that the source no longer has" in shown["findings"][0]["note"]


def test_what_is_gone_of_the_source_and_has_no_copy_is_not_known_to_be_there(world):
    world.write_as = lambda rows, batch: traced(rows.slice(5), batch)
    run(world.driver(), 0)
    delete_before(world, world.source, BATCH)
    exit_code, shown = world.ask()
    once = shown["findings"][0]
    assert (exit_code, once["verdict"], once["violations"]) == (3, "not checked", []), shown
    assert once["unchecked"] == (
        "of the offsets that are compared, the source no longer has 60, and the output has no copy of 10 of these: "
        "whether they had records is not known"
    )


@pytest.mark.parametrize("more", [[], ["--copy"]], ids=["", "copy"])
def test_a_source_of_which_all_is_gone_proves_nothing_of_contents(world, more):
    world.write_as = lambda rows, batch: rows.slice(0, 0)
    run(world.driver(), 0)
    delete_before(world, world.source, BATCH)
    exit_code, shown = world.ask(*more)
    once = shown["findings"][0]
    assert (exit_code, once["verdict"], once["violations"]) == (3, "not checked", []), shown
    assert once["unchecked"].startswith("of the offsets that are compared, the source no longer has 60: whether")


def test_what_the_output_no_longer_has_does_not_prove_a_loss(world):
    run(world.driver(), 0, 1, 2, 3)
    delete_before(world, world.target, 45)
    exit_code, shown = world.ask()
    assert (exit_code, shown["verdict"], verdicts(shown)["once"]) == (3, "not checked", "not checked"), shown


def delete_before(world, topic, offset):
    partitions = [RdTopicPartition(topic, number, offset) for number in (0, 1)]
    for deleted in world.admin.delete_records(partitions).values():
        deleted.result(30)


# -- the ledger's record and its pointer


def test_a_pointer_that_has_expired_violates_nothing(world):
    run(world.driver(), 0, 1, 2, 3)
    world.delete_pointer()
    report = world.verify()
    assert report.holds, report


def test_a_record_that_the_ledgers_topic_lost_is_a_violation_even_of_values_without_provenance(plain):
    plain.copy()
    exit_code, shown = plain.ask()
    assert (exit_code, verdicts(shown)["ledger"]) == (0, "not checked"), shown
    plain.delete_record()
    exit_code, shown = plain.ask()
    assert (exit_code, verdicts(shown)["ledger"]) == (1, "violated"), shown
    (violation,) = shown["findings"][LEDGER - 1]["violations"]
    assert (violation["kind"], violation["where"]) == ("behind its pointer", "commit 4")
    assert "the ledger topic has no record: it lost records" in violation["what"]


def test_a_record_that_contradicts_its_pointer_is_a_violation(world, monkeypatch):
    encode = entry_format.encode_pointer
    monkeypatch.setattr(
        entry_format, "encode_pointer", lambda entry, *more: encode(replace(entry, digest="another"), *more)
    )
    run(world.driver(), 0)
    finding = world.verify().findings[LEDGER - 1]
    assert [violation.kind for violation in finding.violations] == ["not its pointer's"], finding


def test_a_record_is_compared_with_its_pointer_where_the_ledger_has_moved_to(world, monkeypatch):
    books = world.kafka.create_topic(f"{world.target}-books", 1, {"cleanup.policy": "compact"})
    run(world.driver(), 0)
    run(world.driver(ledgerTopic=books), 1)
    assert world.verify().holds
    encode = entry_format.encode_pointer
    monkeypatch.setattr(
        entry_format, "encode_pointer", lambda entry, *more: encode(replace(entry, digest="another"), *more)
    )
    run(world.driver(ledgerTopic=books), 2)
    finding = world.verify().findings[LEDGER - 1]
    assert [violation.kind for violation in finding.violations] == ["not its pointer's"], finding


# -- a source on another cluster


@pytest.fixture(params=[("elsewhere", "kafka"), ("kafka", "elsewhere")], ids=["TV2", "TV1"])
def apart(request):
    """A world whose source is on another cluster; the output's has a topic of the source's name, with other records."""
    a, b = (request.getfixturevalue(name) for name in request.param)
    with Cluster(options_of(a.bootstrap)) as at_a, Cluster(options_of(b.bootstrap)) as at_b:
        yield Apart(a, b, at_a, at_b)


class Apart(World):
    """`a` is the source's broker, `kafka` the output's."""

    def __init__(self, a, b, at_a, at_b):
        world = World(a, at_a)  # its source is there
        super().__init__(b, at_b)
        self.kafka.delete_topic(self.source)
        self.kafka.create_topic(world.source, 2)
        produce(b.bootstrap, world.source, [b"of another cluster"] * 300)
        self.source, self.a, self.at_a = world.source, a, at_a

    def driver(self, query="query", origin=None, **options):
        copy = super().driver(query, origin or self.at_a, sourceClusters=self.at_a.cluster_id(), **options)
        copy.history = []  # the checker knows only where the source is
        return copy

    def verify(self, **more):
        return super().verify(source_client=self.at_a.options, **more)

    def ask(self, *more):
        return super().ask("--source-bootstrap-servers", self.a.bootstrap, *more)


def test_a_source_on_another_cluster_is_read_there_as_far_as_the_ledger_says(apart, tmp_path):
    run(apart.driver(), 0, 1, 2)
    exit_code, shown = apart.ask()
    assert (exit_code, verdicts(shown)["once"]) == (0, "holds"), shown
    assert shown["records"] == 3 * 2 * BATCH, "and a fourth batch is still to come"
    properties = tmp_path / "source.properties"
    properties.write_text(f"bootstrap.servers={apart.a.bootstrap}\n")
    exit_code, again = super(Apart, apart).ask("--source-properties", str(properties))
    assert (exit_code, again["findings"]) == (0, shown["findings"])
    assert apart.verify().holds


def test_what_the_ledger_says_of_a_source_on_another_cluster_must_be_in_the_output(apart):
    driver = apart.driver()
    run(driver, 0, 1)

    def lose_one(rows, batch):
        return traced(rows.slice(1), batch)

    driver.write_as = lose_one
    run(driver, 2)
    exit_code, shown = apart.ask()
    assert (exit_code, verdicts(shown)["once"]) == (1, "violated"), shown
    (violation,) = shown["findings"][ONCE - 1]["violations"]
    assert (violation["kind"], violation["where"]) == ("missing", f"{apart.source}-0@{2 * BATCH}")


def test_the_topic_of_the_sources_name_on_the_outputs_cluster_is_another_one(apart):
    run(apart.driver(), 0, 1, 2)
    exit_code, shown = super(Apart, apart).ask()
    assert (exit_code, verdicts(shown)["once"]) == (1, "violated"), shown
