"""The commands of README and pages, as they are there, from an empty folder with the wheel and without the checkout.

A block with a note is not run here (`tests/pages.py`). The folder has what the pages speak of: a `client.properties`, a
checkpoint, a table, trace files; the cluster has the topics and queries that they name. `localhost:9092` is that
cluster, and a path under one of FOLDERS is in the folder.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from lab.jars import perf_tools_class_path
from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Trace
from spark_kafka_eos.observe import trace_file
from spark_kafka_eos.testing.java import java
from tests.broker.conftest import options_of
from tests.copying import Copy
from tests.kafka_tools import TOOLS
from tests.letters import headers_of
from tests.pages import PAGES, ROOT, Block, blocks
from tests.producing import produce
from tests.reading import await_stable
from tests.wheel import wheel_environment

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

BLOCKS = [each for page in PAGES for each in blocks(page) if each.language == "sh" and not each.note]
FOLDERS = ("/data/", "/checkpoints/", "/var/log/", "/tmp/")
RECORDS = 100
# What goes on until it is interrupted, and what it shows before.
LIVES = {"broker": "Kafka", "exporter": "", "top": "Open transactions", "--watch": "last commit"}
CODES = {
    "kafka-eos query resolve": (0, 1),  # 1: the batch would be refused
    "kafka-eos doctor": (0, 1),  # 1: this machine lacks something
    "kafka-eos verify": (0, 3),  # 3: nothing is violated, and something was not checked
    "kafka-eos dead-letters replay": (0, 3),  # 3: nothing of this cause is left, which an earlier line has sent back
}


class Site:
    """The folder, the cluster and the environment."""

    def __init__(self, folder: Path, bootstrap: str, environment: dict[str, str]) -> None:
        self.folder, self.bootstrap, self.environment = folder, bootstrap, environment

    def here(self, text: str) -> str:
        text = re.sub(rf"(?<![\w/])({'|'.join(FOLDERS)})", rf"{self.folder}\1", text)
        return re.sub(r"\b(localhost|a|b):9092", self.bootstrap, text)

    def run(self, command: str) -> tuple[int, str]:
        """A line of bash; its exit code and what it printed."""
        done = subprocess.run(
            ["bash", "-ec", self.here(command)],
            cwd=self.folder,
            env=self.environment,
            input="y\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stdout

    def live(self, command: str, shows: str) -> tuple[int, str]:
        """The same on a terminal, for a command that goes on: it is interrupted once it has shown this."""
        terminal, other = pty.openpty()
        # Who runs the tests in a shell's background has Ctrl-C ignored, and so have all of their processes.
        words = ["env", "--default-signal=INT", "bash", "-ec", f"exec {self.here(command)}"]
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.environment | {"TERM": "xterm"}, stdin=other, stdout=other, stderr=other
        )
        os.close(other)
        seen = ""
        deadline = time.monotonic() + 120
        try:
            while not (seen and shows in seen) and process.poll() is None:
                assert time.monotonic() < deadline, seen
                seen += _read(terminal)
            os.write(terminal, b"q")  # ends what has keys
            process.send_signal(signal.SIGINT)
            while process.poll() is None:
                assert time.monotonic() < deadline, seen
                seen += _read(terminal)
        finally:
            process.terminate()  # the next command may need its port
        os.close(terminal)
        return process.returncode, seen


def _read(terminal: int) -> str:
    """What is there within a moment; nothing once the program has closed it."""
    if not select.select([terminal], [], [], 0.2)[0]:
        return ""
    try:
        return os.read(terminal, 65_536).decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def site(kafka, tmp_path_factory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    environment = wheel_environment(tmp_path_factory.mktemp("wheel") / "environment")
    _cluster(kafka)
    for each in FOLDERS:
        (folder / each[1:]).mkdir(parents=True)
    (folder / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    tools = folder / "kafka" / "bin"
    tools.mkdir(parents=True)
    script = tools / "kafka-delete-records.sh"
    script.write_text(f'#!/bin/sh\nexec {java()} -cp "{perf_tools_class_path()}" {TOOLS}.DeleteRecordsCommand "$@"\n')
    script.chmod(0o755)
    for checkpoint in ("data/checkpoints/orders-copy", "checkpoints/orders-copy"):
        _checkpoint(folder / checkpoint)
    with sqlite3.connect(folder / "data" / "shop.db") as database:
        database.execute("CREATE TABLE bookings (id INTEGER, amount INTEGER)")
        database.executemany("INSERT INTO bookings VALUES (?, ?)", [(n, 10 * n) for n in range(5)])
    sent = Request(api="EndTxn", node="b:1", start=1.0, milliseconds=1.0)
    trace = Trace(
        began_ms=1.0, milliseconds=9.0, phases=(Phase(name="end", start=0.0, milliseconds=2.0),), requests=(sent,)
    )
    report = CommitReport(
        query_id="q", batch_id=2, outcome="committed", producer_id=1, epoch=0, append_mode="driver", trace=trace
    )
    trace_file.append(folder / "var" / "log" / "kafka-eos", "orders", report.to_json())
    site = Site(folder, kafka.bootstrap, environment | {"PATH": f"{tools}{os.pathsep}{environment['PATH']}"})
    (program,) = (each for each in blocks(ROOT / "docs" / "verify.md") if each.text.startswith("# shop/rows.py"))
    (folder / "shop").mkdir()
    (folder / "shop" / "rows.py").write_text(site.here(program.text))
    return site


def _cluster(kafka) -> None:
    """The topics, and the queries orders-copy, orders-clean and bids-loud, which have read a part of their source."""
    for topic in ("orders", "orders-copy", "orders-clean", "bids-loud", "events-copy", "bookings-seen"):
        kafka.create_topic(topic, 2)
    kafka.create_topic("orders-dead", 1)
    for partition in (0, 1):
        values = [b'{"order": %d}' % number for number in range(RECORDS)]
        produce(kafka.bootstrap, "orders", values, partition=partition)
    rows = [json.dumps({"id": n, "amount": 10 * n}).encode() for n in range(5)]
    produce(kafka.bootstrap, "bookings-seen", rows)
    for number, cause in enumerate((Cause.UNDECODABLE, Cause.UNKNOWN_SCHEMA, "no-amount")):
        letter = DeadLetter(cause=cause, topic="orders", partition=0, offset=number, query_id="q")
        produce(kafka.bootstrap, "orders-dead", [b"bad"], headers=headers_of(letter))
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        for target in ("orders-copy", "orders-clean", "bids-loud"):
            query = Copy(kafka.bootstrap, cluster, "orders", target, options={"kafka.transactional.id": target})
            query.write_as = lambda rows, _: rows
            for batch in range(2):
                assert query.run(batch, batch * RECORDS // 2, (batch + 1) * RECORDS // 2).outcome == "committed"
    await_stable(kafka.bootstrap, "kafka-eos-ledger")


def _checkpoint(folder: Path) -> None:
    """Of the query: batches 0 and 1 are done."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "query"}))
    for batch in range(2):
        end = (batch + 1) * RECORDS // 2
        offsets = json.dumps({"orders": {"0": end, "1": end}})
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{offsets}')
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def lines(block: Block) -> list[str]:
    """The commands of a block."""
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_package_in_the_folder_is_the_wheel(site):
    code, shown = site.run('python -c "import spark_kafka_eos as it; print(it.__file__)"')
    assert code == 0 and "site-packages" in shown and str(ROOT) not in shown, shown
    code, shown = site.run('python -c "import lab"')
    assert code == 1 and "No module named 'lab'" in shown


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_commands_of_a_page_run_as_they_are_there(block, site):
    for command in lines(block):
        words = shlex.split(command, comments=True)
        lives = [each for each in LIVES if each in words and "--once" not in words]
        code, shown = site.live(command, LIVES[lives[0]]) if lives else site.run(command)
        allowed = (0, 130) if lives else CODES.get(" ".join(words[:3]), CODES.get(" ".join(words[:2]), (0,)))
        assert code in allowed, f"{command}\n{shown}"
        assert "Traceback" not in shown, shown


def test_there_are_commands_of_every_kind():
    commands = {line.split()[1] for block in BLOCKS for line in lines(block) if line.startswith("kafka-eos ")}
    assert commands >= {"broker", "dead-letters", "doctor", "exporter", "preflight", "query", "top", "transactions"}
    assert commands >= {"trace", "verify"}
