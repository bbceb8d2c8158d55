"""A driver that has ended is restarted, and its log says why it ended."""

import sys
import time

import pytest

from lab.soak.drivers import Query, cause
from spark_kafka_eos.testing.driver import Driver
from tests.waiting import until

LOG = """
26/11/21 14:45:18 WARN ProcessingTimeExecutor: Current batch is falling behind.
Traceback (most recent call last):
  File "writer.py", line 1, in <module>
spark_kafka_eos.errors.ProducerFenced: another driver runs under the transactional.id. The batch was not committed.
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query terminated with exception
"""
# Instead of spark-submit: records that it runs, and ends when the test says so.
JOB = """
import pathlib, subprocess, sys, time
folder = pathlib.Path(sys.argv[5]).parent
runs = folder / "runs"
runs.write_text(runs.read_text() + "." if runs.exists() else ".")
while not (folder / "end").exists():
    time.sleep(0.02)
    if (folder / "work").exists():
        (folder / "work").unlink()
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", "pyspark.daemon"])
(folder / "end").unlink()
raise SystemExit("spark_kafka_eos.errors.UnknownTopic: topic 'x' does not exist.")
"""


@pytest.fixture
def query(tmp_path):
    job = tmp_path / "job.py"
    job.write_text(JOB)

    def driver(_job, arguments, *, conf, env, log):
        return Driver(job, arguments, conf=(), env=env, log=log, submit=sys.executable)

    started = Query(
        name="stateless", source="localhost:1", sink="localhost:1", folder=tmp_path, spark_home=tmp_path, driver=driver
    )
    started.start()
    yield started
    started.stop()


def await_runs(query, count):
    runs, deadline = query.folder / "runs", time.monotonic() + 60
    while not runs.exists() or len(runs.read_text()) < count:
        assert time.monotonic() < deadline, "no driver runs"
        time.sleep(0.02)


def test_a_driver_that_ended_by_itself_is_followed_by_another_and_its_reason_kept(query):
    await_runs(query, 1)
    assert query.revive() is None
    (query.folder / "end").touch()
    deadline = time.monotonic() + 60
    while (why := query.revive()) is None:
        assert time.monotonic() < deadline, "the driver does not end"
        time.sleep(0.02)
    assert why == "UnknownTopic: topic 'x' does not exist."
    await_runs(query, 2)
    assert (query.started, query.ended) == (2, [why])


def test_a_driver_that_is_killed_is_followed_by_another_and_did_not_end_by_itself(query):
    await_runs(query, 1)
    assert query.kill() == "1 processes, between two batches"
    await_runs(query, 2)
    assert (query.started, query.ended) == (2, [])


def test_a_driver_whose_checkpoint_is_lost_is_followed_by_one_with_a_new_checkpoint(query):
    (query.checkpoint / "offsets").mkdir(parents=True)
    (query.checkpoint / "offsets" / "0").touch()
    assert not query.at_rest
    await_runs(query, 1)
    assert query.kill(lose_checkpoint=True) == "1 processes, in batch 0"
    await_runs(query, 2)
    before, now = query.checkpoints
    assert (query.checkpoint, query.lost) == (now, 1)
    assert (before / "offsets" / "0").exists(), "the check needs it"
    assert not now.exists()


def test_a_driver_that_has_ended_by_itself_is_not_killed_and_no_checkpoint_lost(query):
    await_runs(query, 1)
    (query.folder / "end").touch()
    until(lambda: not (query.folder / "end").exists())
    until(lambda: not query._current().running)
    assert query.kill(lose_checkpoint=True) is None
    assert (query.started, query.lost) == (1, 0)
    assert not query.pause()
    assert query.revive() == "UnknownTopic: topic 'x' does not exist."
    await_runs(query, 2)
    assert query.kill() == "1 processes, between two batches"


def test_a_query_is_at_rest_when_all_planned_batches_are_noted_and_there_are_some(query):
    assert not query.at_rest
    for log in ("offsets", "commits"):
        (query.checkpoint / log).mkdir(parents=True)
        (query.checkpoint / log / "0").touch()
    assert query.at_rest
    (query.checkpoint / "offsets" / "1").touch()
    assert not query.at_rest


def test_batches_written_again_are_counted_over_all_checkpoints(query):
    line = "batch 3 of query x, attempt 1: aborted\n"
    query.log.write_text(2 * line)
    query.kill(lose_checkpoint=True)
    query.log.write_text(line)
    assert query.redone == 2


def test_a_stopped_query_stays_stopped(query):
    await_runs(query, 1)
    query.stop()
    assert query.revive() is None
    assert query.started == 1


def test_a_driver_is_at_work_once_it_has_workers(query):
    await_runs(query, 1)
    assert not query.at_work
    (query.folder / "work").touch()
    deadline = time.monotonic() + 60
    while not query.at_work:
        assert time.monotonic() < deadline, "no worker is seen"
        time.sleep(0.02)


def test_a_driver_without_executors_loses_none(query):
    await_runs(query, 1)
    assert query.kill_executor() is None


def test_the_last_error_of_this_package_is_why():
    expected = "ProducerFenced: another driver runs under the transactional.id. The batch was not committed."
    assert cause(LOG.splitlines()) == expected


def test_without_one_it_is_what_spark_says_last():
    lines = [line for line in LOG.splitlines() if "kafka_eos" not in line]
    assert cause(lines) == "[STREAM_FAILED] Query terminated with exception"


def test_a_silent_end_is_called_one():
    assert cause([]) == "the log does not say why"
