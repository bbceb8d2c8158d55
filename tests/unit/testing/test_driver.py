"""A driver dies whole and only where it should; its checkpoint says in which micro-batch it died."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import (
    EXECUTOR,
    Driver,
    Kill,
    batch_in_flight,
    committed_batches,
    spark_home,
    spark_submit,
)

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(child.pid))
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
child.wait()
"""

CLUSTER = """
import subprocess, sys
code, *codes = sys.argv[2:]
child = subprocess.Popen([sys.executable, "-c", code, sys.argv[1], *codes])
print("executor ended with", child.wait(), flush=True)
import signal
signal.pause()
"""
WORKER = """
import os, signal, sys
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
signal.pause()
"""


Start = Callable[..., Driver]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts Python code in the place of spark-submit."""

    def starter(code: str, *arguments: str, env: dict[str, str] | None = None) -> Driver:
        job = tmp_path / "job.py"
        job.write_text(code)
        return Driver(job, arguments, conf=(), env=env or {}, log=tmp_path / "driver.log", submit=sys.executable)

    return starter


def checkpoint(folder: Path, *, offsets: list[str], commits: list[str]) -> Path:
    for log, names in (("offsets", offsets), ("commits", commits)):
        (folder / log).mkdir()
        for name in names:
            (folder / log / name).touch()
    return folder


def test_a_driver_that_has_ended_harms_no_process_that_has_its_id_now(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start("pass") as driver:
        driver.wait(timeout=60)
        bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        monkeypatch.setattr(Driver, "pid", bystander.pid)
        assert driver.kill() == 0
        assert bystander.poll() is None
        bystander.communicate(b"\n")
        assert bystander.returncode == 0


def test_a_kill_takes_the_children_along(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    with start(PARENT, str(pid_file)) as driver:
        driver.wait_until(pid_file.exists, timeout=60)
        child = psutil.Process(int(pid_file.read_text()))
        assert driver.kill() == 2
    _, alive = psutil.wait_procs([child], timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_worker_dies_with_its_executor_and_the_driver_lives_on(start: Start, tmp_path: Path) -> None:
    pid_file, log = tmp_path / "worker", tmp_path / "driver.log"
    with start(CLUSTER, str(pid_file), CLUSTER, WORKER) as driver:
        driver.wait_until(pid_file.exists, timeout=60)
        worker = psutil.Process(int(pid_file.read_text()))
        assert driver.kill_executor(worker.pid) == 2
        driver.wait_until(lambda: "executor ended with -9" in log.read_text(), timeout=60)
    _, alive = psutil.wait_procs([worker], timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_process_of_the_driver_itself_has_no_executor_to_kill(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    with start(PARENT, str(pid_file)) as driver:
        driver.wait_until(pid_file.exists, timeout=60)
        with pytest.raises(ToolFailed, match="not a worker of an executor"):
            driver.kill_executor(int(pid_file.read_text()))
        assert driver.kill() == 2, "nothing was killed"


def test_a_worker_that_has_ended_has_no_executor_to_kill(start: Start, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with start("input()") as driver, pytest.raises(ToolFailed, match=f"process {ended.pid} has ended"):
        driver.kill_executor(ended.pid)


def test_any_executor_can_be_killed_once_there_is_one(start: Start, tmp_path: Path) -> None:
    pid_file, log = tmp_path / "worker", tmp_path / "driver.log"
    with start(PARENT, str(pid_file)) as driver:
        driver.wait_until(pid_file.exists, timeout=60)
        assert driver.kill_an_executor() == 0, "that child is none"
    pid_file.unlink()
    with start(CLUSTER, str(pid_file), WORKER, EXECUTOR) as driver:
        driver.wait_until(pid_file.exists, timeout=60)
        assert driver.kill_an_executor() == 1
        driver.wait_until(lambda: "executor ended with -9" in log.read_text(), timeout=60)
        assert driver.running
    assert not driver.running


def test_a_pause_stops_the_children_too_until_it_ends(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "child"

    def stopped(driver: Driver) -> list[bool]:
        pids = (driver.pid, int(pid_file.read_text()))
        return [psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids]

    with start(PARENT, str(pid_file)) as driver:
        driver.wait_until(pid_file.exists, timeout=60)
        driver.pause()
        driver.wait_until(lambda: all(stopped(driver)), timeout=60)
        driver.resume()
        driver.wait_until(lambda: not any(stopped(driver)), timeout=60)
        driver.pause()
        assert driver.kill() == 2, "a paused one can be killed"


def test_a_driver_that_ends_before_its_point_is_a_failure_that_shows_its_log(start: Start) -> None:
    with (
        start("raise SystemExit('no such topic')") as driver,
        pytest.raises(ToolFailed, match="exit code 1") as failure,
    ):
        driver.wait_until(lambda: False, timeout=60)
    assert "no such topic" in str(failure.value)


def test_a_failure_shows_what_a_spark_log_hides_among_its_lines(start: Start) -> None:
    code = """
print("26/11/21 14:45:18 INFO Executor: Exception handling ready")
print("spark_kafka_eos.errors.UnknownTopic: topic 'x' does not exist.")
print("\\tat org.apache.spark.Something")
for _ in range(50): print("+- Project")
raise SystemExit(1)
"""
    with start(code) as driver, pytest.raises(ToolFailed) as failure:
        driver.wait(timeout=60)
    assert failure.value.action.splitlines()[1:] == ["spark_kafka_eos.errors.UnknownTopic: topic 'x' does not exist."]


def test_a_driver_that_fails_is_not_taken_for_one_that_is_done(start: Start) -> None:
    with start("raise SystemExit(3)") as driver, pytest.raises(ToolFailed, match="exit code 3"):
        driver.wait(timeout=60)


def test_a_driver_that_takes_too_long_is_given_up(start: Start) -> None:
    with (
        start("import signal; signal.pause()") as driver,
        pytest.raises(ToolFailed, match=r"within 0\.3 s"),
    ):
        driver.wait(timeout=0.3)
    assert not psutil.pid_exists(driver.pid)


def test_a_driver_that_makes_no_progress_is_given_up_and_one_that_makes_some_is_not(start: Start) -> None:
    steps = iter(range(3))
    looks: list[object] = []

    def progress() -> object:
        looks.append(next(steps, "none"))
        return looks[-1]

    with (
        start("import signal; signal.pause()") as driver,
        pytest.raises(ToolFailed, match=r"made no progress for 1\.5 s; it may still wait"),
    ):
        driver.wait(timeout=1.5, progress=progress)
    assert looks[:4] == [0, 1, 2, "none"], "it was given up although it went on"


def test_a_driver_that_computes_is_at_work_whatever_its_checkpoint_says(start: Start) -> None:
    with start("while True: pass") as driver:
        driver.wait_until(lambda: driver.cpu_seconds > 0.2, timeout=60)


def test_the_environment_reaches_the_driver(start: Start, tmp_path: Path) -> None:
    kill = Kill(point="half appended", batch=3)
    code = "import os; assert os.environ['KAFKA_EOS_FAILPOINT'] == 'half appended@3'"
    with start(code, env=kill.environment(tmp_path)) as driver:
        driver.wait(timeout=60)


def test_a_batch_planned_and_not_committed_is_in_flight(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, offsets=["8", "9", "10", ".10.crc"], commits=["8", "9", ".9.crc"])
    assert committed_batches(folder) == 10
    assert batch_in_flight(folder) == 10


def test_between_batches_none_is_in_flight(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, offsets=["0", "1"], commits=["0", "1"])
    assert batch_in_flight(folder) is None


def test_a_checkpoint_that_is_not_there_yet_has_no_batches(tmp_path: Path) -> None:
    assert committed_batches(tmp_path) == 0
    assert batch_in_flight(tmp_path) is None


def test_what_executors_leave_in_a_spark_home_of_links_does_not_reach_the_package(tmp_path: Path) -> None:
    home, package = spark_home(tmp_path / "spark"), spark_submit().parent.parent
    assert (home / "bin" / "spark-submit").resolve() == spark_submit().resolve()
    assert (home / "jars").is_dir()
    assert not list(home.rglob("pyspark.zip")), "compiled anew by each Python process that Spark does not fork"
    (home / "work" / "app-of-this-test").mkdir(parents=True)
    assert not (package / "work" / "app-of-this-test").exists()
