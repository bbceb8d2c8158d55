"""A topic and a SQLite table of a test's own, and the processes that write to both."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from tests import held
from tests.broker.write_both import rows_in, rows_of, table_at, transaction_of, write
from tests.reading import await_stable

SCRIPT = Path(__file__).with_name("write_both.py")
numbers = itertools.count(1)


class Scene:
    """A topic with two partitions, a database, and the processes of one query."""

    def __init__(self, kafka, cluster, folder, consumed):
        self.kafka, self.cluster, self.folder, self._consumed = kafka, cluster, folder, consumed
        self.topic = kafka.create_topic(f"both-{next(numbers)}", 2)
        self.database = str(folder / f"{self.topic}.db")
        self.processes: list[subprocess.Popen[str]] = []
        database = sqlite3.connect(self.database)
        database.execute("CREATE TABLE rows (row TEXT)")
        database.commit()
        database.close()
        table_at(self.database).create()

    def process(self, number, point=None, *, timeout_ms=60_000):
        """A process that writes this batch, held at a failpoint if there is one: the process, and its folder."""
        folder = self.folder / f"process-{len(self.processes)}"
        folder.mkdir()
        told = {
            "bootstrap": self.kafka.bootstrap,
            "topic": self.topic,
            "database": self.database,
            "number": number,
            "run": f"run {folder.name}",
            "timeout_ms": timeout_ms,
        }
        armed = {} if point is None else {"KAFKA_EOS_FAILPOINT": point, "KAFKA_EOS_FAILPOINT_DIR": str(folder)}
        process = subprocess.Popen(
            [sys.executable, SCRIPT, json.dumps(told)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **armed},
        )
        self.processes.append(process)
        if point is not None:
            deadline = time.monotonic() + 60
            while not held.reached(folder):
                assert process.poll() is None, f"{point} was not reached: {process.communicate()[0]}"
                assert time.monotonic() < deadline, point
                time.sleep(0.01)
        return process, folder

    def killed(self, number, point, *, timeout_ms=60_000):
        """A process that writes this batch, and is killed at this point."""
        process, _ = self.process(number, point, timeout_ms=timeout_ms)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL

    @staticmethod
    def said(process):
        """What the process printed at its end."""
        return json.loads(process.communicate(timeout=60)[0])

    def driver(self, participant=None, *, timeout_ms=60_000):
        """A new driver in this process."""
        participant = participant or table_at(self.database)
        return transaction_of(self.kafka.bootstrap, self.topic, self.cluster, participant, timeout_ms=timeout_ms)

    def write(self, driver, number, run="here"):
        return write(driver, self.cluster, self.topic, number, run=run)

    def both_have(self, *batches):
        expected = sorted(row for number in batches for row in rows_of(number))
        await_stable(self.kafka.bootstrap, self.topic)
        assert sorted([*self._consumed(self.topic, 0), *self._consumed(self.topic, 1)]) == expected
        assert rows_in(self.database) == expected
