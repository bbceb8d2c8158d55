"""Stateful queries that are killed between EndTxn and Spark's own commit: they start again, their state and their
watermark are those of a query that was never killed, and nothing is lost or written twice."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from spark_kafka_eos.testing.driver import Driver, committed_batches, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.topic_reader import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600), pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "keep_state.py"
PLANS, FORMATS = ("counts", "windows", "pairs", "first-ones"), ("format-1", "format-2")
QUERIES = {f"{plan}-{form}": plan for plan in PLANS for form in FORMATS}
SINKS = {f"sink-{form}": "windows" for form in FORMATS}
BATCHES, KILLED = 4, 1

# How each driver keeps checkpoints and state: in files with checksums beside them, as Spark does, or without
# (docs/deploying.md). All but the last one are killed.
WITH, WITHOUT = "with-checksums", "without"
DRIVERS = [
    pytest.param((WITH, WITH), id="with-checksums"),
    pytest.param((WITHOUT, WITHOUT), id="without"),
    pytest.param((WITHOUT, WITH), id="with-again"),
    pytest.param((WITH, WITHOUT, WITHOUT), id="no-more"),
    pytest.param((WITH, WITHOUT, WITH), id="there-and-back"),
]
_FILE_SYSTEM = "spark.hadoop.fs.AbstractFileSystem.file.impl=org.apache.hadoop.fs.local.RawLocalFs"


@pytest.fixture(scope="module", params=DRIVERS)
def killed_and_started_again(
    request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, int]:
    """All queries, killed at the end of one batch or two, and then run to their end, in one driver each; the job's
    folder, the prefix of the topics, and the last batch at which they were killed.
    """
    folder = tmp_path_factory.mktemp("state")
    prefix = f"state-{folder.name}"
    (folder / "in").mkdir()
    write_files(folder / "in")
    for name in [*QUERIES, *SINKS]:
        kafka.create_topic(f"{prefix}-{name}", 2)

    def driver(wait_after: int, kept: str, env: dict[str, str]) -> Driver:
        return Driver(
            JOB,
            [kafka.bootstrap, prefix, str(folder), str(wait_after)],
            conf=[
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
                *(("--conf", _FILE_SYSTEM) if kept == WITHOUT else ()),
            ],
            env=python_environment() | env,
            log=folder / "driver.log",
        )

    def all_wait() -> bool:
        waiting = {path.name for path in (folder / "waiting").iterdir()}
        held = [path for path in (folder / "failpoint").iterdir() if path.name.startswith("reached")]
        return waiting == set(QUERIES) and len(held) == len(SINKS)

    *killed, last = request.param
    for batch, kept in enumerate(killed, KILLED):
        for name in ("waiting", "failpoint"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir()
        armed = {
            "KAFKA_EOS_FAILPOINT": f"ended@{batch}",
            "KAFKA_EOS_FAILPOINT_DIR": str(folder / "failpoint"),
            "KAFKA_EOS_FAILPOINT_HOLDS": str(len(SINKS)),
        }
        with driver(batch, kept, armed) as waiting:
            waiting.wait_until(all_wait, timeout=240)
            waiting.kill()
        for name in [*QUERIES, *SINKS]:
            assert committed_batches(folder / "checkpoints" / name) == batch, "Spark had not noted the batch"
        checksum = folder / "checkpoints" / "counts-format-1" / "offsets" / f".{batch}.crc"
        assert checksum.exists() == (kept == WITH), "the setting has its effect"
    with driver(-1, last, {}) as finished:
        finished.wait(timeout=240)
    return folder, prefix, KILLED + len(killed) - 1


def write_files(folder: Path) -> None:
    """A file for each batch, of ten seconds each. The last one has rows that are too late by the watermark which the
    killed batch brought about: Spark drops late rows by the one before the last."""
    written = int(time.time()) - BATCHES
    for batch in range(BATCHES):
        rows = [{"n": 100 * batch + n, "key": "abc"[n % 3], "t": 10 * batch + n % 10} for n in range(40)]
        if batch == KILLED + 2:
            rows += [{"n": 900 + n, "key": "abc"[n % 3], "t": 10 * KILLED + 4} for n in range(6)]
        partial = folder.parent / "partial"
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Spark takes files in the order of these times; files written within one millisecond have no order.
        os.utime(partial, (written + batch, written + batch))
        shutil.move(partial, folder / f"{batch}.json")


@pytest.mark.parametrize("name", [*QUERIES, *SINKS])
def test_a_stateful_query_killed_after_its_commit_continues_with_its_state(
    killed_and_started_again: tuple[Path, str, int], kafka: EmbeddedKafka, name: str
) -> None:
    (folder, prefix, killed), plan = killed_and_started_again, (QUERIES | SINKS)[name]
    expected = Counter(json.loads((folder / f"{plan}.expected.json").read_text()))
    messages = read_topic(kafka.bootstrap, f"{prefix}-{name}", "read_committed")
    assert Counter((message.value() or b"").decode() for message in messages) == expected
    assert committed_batches(folder / "checkpoints" / name) >= BATCHES
    if name in QUERIES:
        outcomes = json.loads((folder / f"{name}.json").read_text())
        assert outcomes[0] == [killed, "skipped"]
        assert {outcome for _, outcome in outcomes[1:]} == {"committed"}
    if plan == "windows":
        assert f"{10 * KILLED} a=7" in expected, "the late rows are left out"
