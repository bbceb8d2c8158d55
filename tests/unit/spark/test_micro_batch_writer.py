"""What is done around a batch of foreachBatch: the preflight, the calls that are refused, what is left to Spark; what a
batch does is tested on a broker (tests/spark)."""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

from spark_kafka_eos.appending.append_mode import SessionKind
from spark_kafka_eos.appending.files import LocalFiles
from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport
from spark_kafka_eos.appending.staging import Staging, folder_of
from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.errors import (
    AuthorizationFailed,
    CommitOutcomeUnknown,
    ConfigurationError,
    IllegalTransactionState,
    KafkaEosError,
    LedgerRefused,
    PreflightFailed,
    ReplayFailed,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.single import encode_record
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.spark import micro_batch_writer, stopping
from spark_kafka_eos.spark.micro_batch_writer import BatchRows, MicroBatchWriter, TableRows
from spark_kafka_eos.transaction import calls
from tests.batches import reads
from tests.both import Table
from tests.model_kafka import KafkaModel, lost, refused

ORDERS = TopicPartition("orders", 0)
UNAUTHORIZED = 53
_numbers = itertools.count()


class Kafka(KafkaModel):
    """The model, and what became of the preflight: how often it ran, and what it raised if it failed."""

    def __init__(self) -> None:
        super().__init__(2, {"orders": 1, "a": 1})
        self.preflights, self.failing = 0, False
        self.transactional_id = f"t{next(_numbers)}"  # of each test its own: a process remembers the calls under it
        self.clusters: list[Cluster] = []

    def connect(self, options: Any) -> Cluster:
        self.clusters.append(self.cluster(options))
        return self.clusters[-1]

    def preflight(self, cluster: Cluster, options: SinkOptions, staging: Staging | None) -> None:
        cluster.controller()
        self.preflights += 1
        if self.failing:
            raise PreflightFailed("the preflight found 1 error")

    def batches(self) -> list[Any]:
        """The ledger's committed records."""
        log = self.partitions.get(TopicPartition("kafka-eos-ledger", 0))
        return [entry_format.decode_record(entry.content[0]) for entry in log.committed()] if log else []

    def numbers(self) -> list[int]:
        return [entry.batch_id for entry in self.batches()]


def batch_of(number: int, start: int, end: int) -> MicroBatch:
    sources = reads({ORDERS: start}, {ORDERS: end})
    return MicroBatch(query_id="q", batch_id=number, digest=f"{number}", sources=sources)


class Query:
    """The running query, in a run of its own; a test may change what it is asked for."""

    def __init__(self, checkpoint_location: str) -> None:
        self.checkpoint_location, self.run_id = checkpoint_location, "run"
        self.key = checkpoint_location
        self.evaluation = False

    def __call__(self, frame: object, location: object) -> Query:
        return self

    def collector(self) -> None:
        """No listener."""

    def micro_batch(self, number: int) -> MicroBatch:
        return batch_of(number, 10 * number, 10 * number + 10)

    def after_others(self, batch: MicroBatch) -> MicroBatch:
        return batch

    def needs_evaluation(self) -> bool:
        return self.evaluation


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def query(tmp_path) -> Query:
    return Query(str(tmp_path))


@pytest.fixture
def writer_of(kafka, query):
    """`writer_of(**options)`: a writer of the query."""

    def make(**given):
        servers = {"kafka.bootstrap.servers": "node-0:9092", "kafka.transactional.id": kafka.transactional_id}
        options = sink_options(servers | {"topic": "a", "appendMode": "driver", "sourceClusters": "there"} | given)
        doubles: Any = {"connect": kafka.connect, "preflight": kafka.preflight, "running_query": query}
        return MicroBatchWriter(options, **doubles | ({"session_kind": cluster} if "appendMode" in given else {}))

    return make


def cluster(_session: object) -> SessionKind:
    return SessionKind(classic=True, local=False, speculates=False)


def run(writer, number, frame: Any = None):
    """A batch without rows."""
    return commit(writer, number, frame or SimpleNamespace(sparkSession=None), BatchRows())


def commit(writer, number, frame: Any, rows, table=None):
    with writer.begin(frame, number) as begun:
        return writer.commit(begun, rows, table)


def test_the_preflight_runs_once_before_the_first_batch_whichever_that_is(kafka, writer_of):
    writer = writer_of()
    run(writer, 0)
    run(writer, 1)
    assert (kafka.preflights, kafka.numbers()) == (1, [0, 1])


def test_a_batch_without_output_says_nothing_of_the_next_ones_size(writer_of):
    writer = writer_of(appendMode="auto")
    assert run(writer, 0).append_reason.startswith("10 offsets result in about 10,000 bytes")
    assert run(writer, 1).append_reason.startswith("10 offsets result in about 10,000 bytes")


class Encoded:
    """Rows that Spark encodes as this block. `staging` has the names in the staging directory as the tasks started."""

    def __init__(self, block: bytearray, staging: Path) -> None:
        self.sparkSession = None
        place = EncodedBlock(partition=TopicPartition("a", 0), records=1, length=len(block), data=bytes(block))
        self._report = EncodeReport(task=0, blocks=(place,))
        self._directory = staging
        self.staging: list[str] | None = None

    def mapInArrow(self, *_: object) -> Encoded:
        self.staging = sorted(path.name for path in self._directory.glob("*"))
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(report=pickle.dumps(self._report))]


@pytest.fixture
def frame(kafka, tmp_path):
    """A batch of 2 kB: 200 bytes for each of its offsets."""
    block = encode_record(b"key", bytes(2_000), 0)
    return Encoded(block, tmp_path / "kafka-eos-staging" / kafka.transactional_id)


def staged(frame, *names):
    for name in names:
        (frame._directory / name).mkdir(parents=True)


def test_what_killed_attempts_staged_is_removed_before_the_first_batch_is_encoded(kafka, writer_of, frame, monkeypatch):
    def preflight(*_):
        staged(frame, newer)  # by a driver that started in the meantime

    newer, later = folder_of(0), folder_of(1)
    staged(frame, folder_of(0), folder_of(0), later, "other")
    monkeypatch.setattr(kafka, "preflight", preflight)
    commit(writer_of(), 0, frame, BatchRows(frame=frame))
    assert frame.staging == sorted([newer, later, "other"])


@pytest.mark.parametrize(("topic", "error"), [("typo", UnknownTopic), (LEDGER_TOPIC, ConfigurationError)])
def test_a_topic_that_a_call_of_write_names_beside_another_one_is_looked_up_before_any_row(
    kafka, writer_of, frame, topic, error
):
    rows = BatchRows(frame=frame, topics=frozenset({"a", topic}))
    kafka.topics.create(LEDGER_TOPIC, 1)
    with pytest.raises(error, match=f"{topic}.*Nothing was committed"):
        commit(writer_of(), 0, frame, rows)
    assert (frame.staging, kafka.numbers()) == (None, [])


def test_without_a_transactional_id_nobody_knows_whose_they_are(kafka, writer_of, frame):
    staged(frame, killed := folder_of(0))
    commit(writer_of(deliveryGuarantee="at-least-once"), 0, frame, BatchRows(frame=frame))
    assert frame.staging == [killed]


def test_a_batchs_size_is_estimated_from_the_largest_of_the_last_ones(kafka, writer_of, tmp_path):
    writer, sizes = writer_of(appendMode="auto"), [20, 2_000, *[20] * 9]
    expected = []
    for number, size in enumerate(sizes):
        frame: Any = Encoded(encode_record(b"key", bytes(size), 0), tmp_path)
        reason = commit(writer, number, frame, BatchRows(frame=frame)).append_reason
        expected.append(int(reason.split("about ")[1].split(" bytes")[0].replace(",", "")))
    small, large = expected[1], expected[2]
    assert 20 <= small < 200 and 2_000 <= large < 2_200
    assert expected == [10_000, small, *[large] * 8, small]


def test_a_batch_with_much_output_of_few_offsets_does_not_stop_the_next_one(
    kafka, query, writer_of, frame, monkeypatch
):
    """The first one is a window's end, of 2 kB. For the second one's 100,000 offsets that would be 200 MB."""
    monkeypatch.setattr(LocalFiles, "space", lambda _: Space(free=60_000_000, total=1_000_000_000))
    ends = [0, 1, 100_001]
    monkeypatch.setattr(query, "micro_batch", lambda number: batch_of(number, ends[number], ends[number + 1]))
    writer = writer_of()
    for number in range(2):
        commit(writer, number, frame, BatchRows(frame=frame))
    assert kafka.numbers() == [0, 1]


def test_a_writer_in_another_process_runs_it_again(kafka, writer_of):
    writer = writer_of()
    run(writer, 0)
    run(pickle.loads(pickle.dumps(writer)), 1)
    assert (kafka.preflights, kafka.numbers()) == (2, [0, 1])


def test_a_writer_closes_its_connections_when_it_goes(kafka, writer_of):
    one, other = writer_of(), writer_of()
    run(one, 0)
    run(other, 1)
    del one
    gc.collect()
    assert [bool(cluster._connections) for cluster in kafka.clusters] == [False, True]


def test_after_an_error_nothing_is_begun_and_the_next_attempt_looks_again(kafka, writer_of):
    kafka.failing = True
    writer = writer_of()
    for _ in range(2):
        with pytest.raises(PreflightFailed):
            run(writer, 0)
    assert (kafka.preflights, kafka.sent("InitProducerId")) == (2, [])
    assert not any(cluster._connections for cluster in kafka.clusters)


@pytest.mark.parametrize("outcome", ["committed", "skipped"])
def test_a_second_call_for_a_batch_is_refused_and_the_batch_noted_as_incomplete(kafka, query, writer_of, outcome):
    writer = writer_of()
    if outcome == "skipped":
        query.run_id = "an earlier one"
        run(writer, 0)
        query.run_id = "run"
    assert run(writer, 0).outcome == outcome
    assert not kafka.batches()[-1].incomplete
    for again in (writer, writer_of(), pickle.loads(pickle.dumps(writer))):
        with pytest.raises(IllegalTransactionState, match="a second call for batch 0 .*ONE `with writer.transaction"):
            run(again, 0)
        assert kafka.batches()[-1].incomplete
    assert set(kafka.numbers()) == {0}


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn"])
def test_the_next_batch_does_not_disturb_the_note_that_a_thread_that_came_late_makes_of_the_last_one(
    kafka, query, writer_of, api
):
    writer, ended, errors = writer_of(), threading.Event(), []
    run(writer, 0)

    def next_batch():
        try:
            run(writer, 1)
        except KafkaEosError as error:
            errors.append(error)
        ended.set()

    thread = threading.Thread(target=next_batch)

    def meanwhile():
        thread.start()
        assert not ended.wait(0.5)

    kafka.before(api, meanwhile)
    with pytest.raises(IllegalTransactionState, match="a second call for batch 0"):
        run(writer, 0)
    thread.join(30)
    assert [str(error) for error in errors if "batch 0 is incomplete" in str(error)]
    query.run_id = "after a restart"
    with pytest.raises(LedgerRefused, match="batch 0 is incomplete"):
        run(writer_of(), 1)


def test_a_query_that_was_started_again_finds_the_batch_written(kafka, query, writer_of):
    writer = writer_of()
    run(writer, 0)
    query.run_id = "another"
    assert run(writer, 0).outcome == "skipped"
    assert kafka.numbers() == [0]


@pytest.fixture
def stopped(monkeypatch):
    """`query.stop()` was called: from now on, calls of Spark fail with INTERRUPTED."""
    monkeypatch.setattr(stopping, "is_stopped", lambda _: True)


INTERRUPTED = Py4JError("An error occurred while calling o1.collect.")


def interrupted(*_: object, **__: object) -> Any:
    raise INTERRUPTED


@pytest.mark.usefixtures("stopped")
def test_a_stop_while_a_batch_that_was_written_is_skipped_does_not_say_that_nothing_is_committed(
    query, writer_of, monkeypatch
):
    run(writer_of(), 0)
    query.run_id = "another"
    monkeypatch.setattr(query, "needs_evaluation", interrupted)
    with pytest.raises(ReplayFailed) as raised:
        run(writer_of(), 0)
    assert raised.value.committed == "everything"


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(("guarantee", "committed"), [("exactly-once", "nothing"), ("at-least-once", "acknowledged")])
def test_a_stop_among_append_tasks_says_what_stays_of_those_that_have_ended(
    kafka, writer_of, frame, monkeypatch, guarantee, committed
):
    kafka.meets["InitProducerId"] = lambda *_: SimpleNamespace(error_code=0, producer_id=1, producer_epoch=0)
    monkeypatch.setattr(micro_batch_writer, "append_stage", interrupted)
    frame.columns = ["value"]
    with pytest.raises(TransactionAborted, match="stopped in the middle of a batch") as raised:
        commit(writer_of(deliveryGuarantee=guarantee, appendMode="executors"), 0, frame, BatchRows(frame=frame))
    assert raised.value.committed == committed


@pytest.mark.usefixtures("stopped")
def test_a_stop_while_a_batch_is_committed_leaves_that_open(kafka, writer_of):
    kafka.meets["EndTxn"] = interrupted
    with pytest.raises(CommitOutcomeUnknown, match="stopped in the middle of a batch"):
        run(writer_of(), 0)


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("call", ["running_query", "micro_batch"])
def test_a_stop_before_anything_is_written_says_so(query, writer_of, monkeypatch, call):
    writer = writer_of()
    monkeypatch.setattr(*((writer, "_running_query") if call == "running_query" else (query, call)), interrupted)
    with pytest.raises(TransactionAborted, match="Nothing was committed"):
        run(writer, 0)


def test_a_call_that_failed_with_nothing_committed_may_be_made_again(kafka, writer_of):
    kafka.meets["InitProducerId"] = refused(UNAUTHORIZED)
    writer = writer_of()
    with pytest.raises(AuthorizationFailed):
        run(writer, 0)
    kafka.meets.clear()
    assert run(writer, 0).outcome == "committed"
    assert [entry.incomplete for entry in kafka.batches()] == [False]


def test_after_an_unknown_outcome_that_error_is_the_only_one_and_no_second_call_is_let_in(kafka, writer_of):
    def unanswered(_request, answer):
        answer()
        kafka.meets["DescribeTransactions"] = lost

    kafka.meets["EndTxn"] = unanswered
    writer = writer_of()
    with pytest.raises(CommitOutcomeUnknown):
        run(writer, 0)
    asked = len(kafka.requests)
    with pytest.raises(IllegalTransactionState, match="It is unknown"):
        run(writer, 0)
    assert len(kafka.requests) == asked, "it may be under way in another thread"
    assert not any(entry.incomplete for entry in kafka.batches())


def interrupt(_request: Any, _answer: Any) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_after_the_append_leaves_the_outcome_open_and_one_before_it_does_not(kafka, writer_of):
    writer = writer_of()
    for api in ("InitProducerId", "EndTxn"):
        kafka.meets = {api: interrupt}
        with pytest.raises(KeyboardInterrupt):
            run(writer, 0)
    kafka.meets.clear()
    with pytest.raises(IllegalTransactionState):
        run(writer, 0)


@pytest.mark.parametrize("address", ["node-0:9092", "localhost:9092"])
def test_a_second_threads_call_fails_at_once_and_the_first_one_commits_nothing(kafka, writer_of, address):
    entered, leave, errors = threading.Event(), threading.Event(), []

    def hold():
        entered.set()
        leave.wait(30)

    def first():
        with pytest.raises(IllegalTransactionState) as raised:
            run(writer_of(), 0)
        errors.append(str(raised.value))

    kafka.before("InitProducerId", hold)
    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(30)
    with pytest.raises(IllegalTransactionState, match="still running"):
        run(writer_of(**{"kafka.bootstrap.servers": address}), 0)
    leave.set()
    thread.join()
    assert "so neither is committed" in errors[0]
    assert kafka.batches() == []


def test_two_first_calls_at_the_same_time_have_one_connection_and_one_of_them_is_refused(kafka, writer_of):
    """Or neither is committed, where the second one comes before the first one's commit."""
    writer, errors = writer_of(), []
    connect, together = kafka.connect, threading.Barrier(2)

    def slowly(options):
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return connect(options)

    writer._connect = slowly

    def call():
        try:
            run(writer, 0)
        except IllegalTransactionState as error:
            errors.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kafka.clusters) == 1
    assert len(errors) + sum(not entry.incomplete for entry in kafka.batches()) == 2, errors


def test_a_second_call_of_another_process_is_known_by_the_ledger(kafka, query, writer_of):
    run(writer_of(), 0)
    calls._calls.clear()  # what this process remembers; another one does not
    with pytest.raises(IllegalTransactionState, match="this run has committed batch 0 already") as raised:
        run(writer_of(), 0)
    assert raised.value.committed == "everything"
    assert [entry.incomplete for entry in kafka.batches()] == [False, True]


def test_a_replay_by_another_run_in_the_same_process_is_skipped(kafka, query, writer_of):
    run(writer_of(), 0)
    query.run_id = "the next one"
    run(writer_of(), 0)
    assert [entry.incomplete for entry in kafka.batches()] == [False]


def test_a_function_that_calls_the_writer_only_for_some_batches_goes_on_in_its_run(kafka, query, writer_of):
    writer = writer_of()
    for number in (0, 3, 4, 7):
        run(writer, number)
    assert kafka.numbers() == [0, 3, 4, 7]


def test_a_batch_whose_call_failed_and_was_not_repeated_stops_the_next_one(kafka, query, writer_of):
    writer = writer_of()
    run(writer, 0)
    kafka.meets["TxnOffsetCommit"] = refused(UNAUTHORIZED)
    with pytest.raises(KafkaEosError):
        run(writer, 1)
    kafka.meets.clear()
    for next_one in (writer, writer_of()):
        with pytest.raises(LedgerRefused, match="in this run, batch 1 began and did not end in a commit"):
            run(next_one, 2)
    query.run_id = "another"
    with pytest.raises(LedgerRefused, match="the last committed batch is 0, but the checkpoint is at batch 2"):
        run(writer_of(), 2)


def test_a_batch_whose_plan_could_not_be_read_stops_the_next_one(kafka, query, writer_of, monkeypatch):
    def unreadable(number):
        raise OSError(number)

    run(writer_of(), 0)
    with monkeypatch.context() as patch:
        patch.setattr(query, "micro_batch", unreadable)
        with pytest.raises(OSError, match="1"):
            run(writer_of(), 1)
    with pytest.raises(LedgerRefused, match="batch 1 began"):
        run(writer_of(), 2)
    assert kafka.numbers() == [0]


def test_a_batch_whose_outcome_is_unknown_is_followed_by_the_next_one_if_the_ledger_has_it(kafka, writer_of):
    def unanswered(_request, answer):
        answer()
        kafka.meets["DescribeTransactions"] = lost

    run(writer_of(), 0)
    kafka.meets["EndTxn"] = unanswered
    with pytest.raises(CommitOutcomeUnknown):
        run(writer_of(), 1)
    kafka.meets.clear()
    run(writer_of(), 2)
    run(writer_of(), 3)
    assert kafka.numbers() == [0, 1, 2, 3]


def test_at_least_once_a_batch_may_be_written_in_two_calls(kafka, writer_of):
    # A producer without a transaction, which the model does not know.
    kafka.meets["InitProducerId"] = lambda *_: SimpleNamespace(error_code=0, producer_id=1, producer_epoch=0)
    writer = writer_of(deliveryGuarantee="at-least-once")
    assert [run(writer, 0).outcome for _ in range(2)] == ["committed"] * 2
    with pytest.raises(AttributeError):  # a frame that cannot be encoded
        commit(writer, 1, SimpleNamespace(sparkSession=None), BatchRows(frame=cast(Any, SimpleNamespace(columns=[]))))
    run(writer, 1)
    with pytest.raises(IllegalTransactionState, match="batch 1 began and did not end in a commit"):
        run(writer_of(deliveryGuarantee="at-least-once"), 2)


# -- with a table


def run_with(table, writer, number, rows=None):
    """A batch with these rows for the table, and none for Kafka."""
    given = None if table is None else TableRows(participant=table, rows=rows)
    return commit(writer, number, SimpleNamespace(sparkSession=None), BatchRows(), given)


def test_a_table_gets_the_rows_of_each_batch_and_the_ledger_its_version(kafka, writer_of):
    writer, table = writer_of(), Table()
    run_with(table, writer, 0, [b"a"])
    report = run_with(table, writer, 1)
    assert (table.rows, table.log) == ([b"a"], ["fence", "commit", "commit"])
    assert [entry.table for entry in kafka.batches()][-1] == table.now.version == 3
    assert list(report.milliseconds) == ["begin", "encode", "append", "offsets", "table", "end"]


def test_a_new_participant_for_each_batch_is_correct_and_begins_as_after_a_restart(writer_of, tmp_path):
    path = str(tmp_path / "rows.db")
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE rows (row TEXT)")
    database.close()

    def participant():
        return SqlTable(lambda: sqlite3.connect(path), insert="INSERT INTO rows VALUES (?)", key="key")

    participant().create()
    writer = writer_of()
    for number in range(3):
        run_with(participant(), writer, number, [(str(number),)])
    database = sqlite3.connect(path)
    assert database.execute("SELECT row FROM rows ORDER BY row").fetchall() == [("0",), ("1",), ("2",)]
    database.close()
    assert participant().held().version == 6, "a fence before each commit"


def test_another_participant_is_looked_at_as_after_a_restart(writer_of):
    writer, table = writer_of(), Table()
    run_with(table, writer, 0, [b"a"])
    with pytest.raises(LedgerRefused, match="version 2 of the table, but the table is at version 0"):
        run_with(Table(), writer, 1, [b"b"])
    run_with(table, writer, 1, [b"b"])
    assert table.rows == [b"a", b"b"]
    assert table.log == ["fence", "commit", "fence", "commit"]


def test_a_table_that_missed_a_batch_may_only_begin_anew(kafka, writer_of):
    writer, table = writer_of(), Table()
    run_with(table, writer, 0, [b"a"])
    run_with(None, writer, 1)
    with pytest.raises(LedgerRefused, match="the table has batch 0 .* but Kafka has batch 1"):
        run_with(table, writer, 2, [b"c"])
    anew = Table()
    run_with(anew, writer, 2, [b"c"])
    assert (table.rows, anew.rows, kafka.numbers()) == ([b"a"], [b"c"], [0, 1, 2])


def test_a_second_call_with_a_table_is_refused_and_changes_nothing_there(kafka, writer_of):
    writer, table = writer_of(), Table()
    run_with(table, writer, 0, [b"a"])
    held = table.now
    with pytest.raises(IllegalTransactionState, match="the first call completed"):
        run_with(table, writer, 0, [b"b"])
    assert (table.now, kafka.batches()[-1].incomplete) == (held, True)


def test_at_least_once_no_table_can_take_part(writer_of):
    writer = writer_of(deliveryGuarantee="at-least-once", **{"kafka.transactional.id": None})
    with pytest.raises(ConfigurationError, match="in which a table can take part"):
        run_with(Table(), writer, 0, [b"a"])


class Frame:
    """A frame that can be written to `noop`, which is all that is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sparkSession = None
        self.computed = 0
        self._error = error

    @property
    def write(self):
        return self

    def format(self, name):
        assert name == "noop"
        return self

    def mode(self, name):
        return self

    def save(self):
        self.computed += 1
        if self._error is not None:
            raise self._error


def run_again(writer, query, frame):
    """A batch that an earlier run has committed."""
    run(writer, 0)
    query.run_id = "another"
    return run(writer, 0, frame)


@pytest.mark.parametrize("needed", [True, False])
def test_a_batch_that_is_skipped_is_computed_if_spark_needs_it(query, writer_of, needed):
    query.evaluation, frame = needed, Frame()
    assert run_again(writer_of(), query, frame).outcome == "skipped"
    assert frame.computed == needed


def test_a_batch_that_is_committed_is_not_computed_again(query, writer_of):
    query.evaluation, frame = True, Frame()
    assert run(writer_of(), 0, frame).outcome == "committed"
    assert frame.computed == 0


def test_a_skipped_batch_that_cannot_be_computed_says_that_it_is_committed(query, writer_of):
    query.evaluation = True
    with pytest.raises(ReplayFailed, match="was committed in an earlier run.*The transaction was committed."):
        run_again(writer_of(), query, Frame(RuntimeError("the records are gone")))
