"""A supervised process ends with its parent, however the parent ends. Real processes, no broker."""

import subprocess
import sys

import psutil
import pytest

from spark_kafka_eos.testing.supervised import SupervisedProcesses

ENDLESS = ["tail", "-f", "/dev/null"]
PARENT = """
import sys
from pathlib import Path
from spark_kafka_eos.testing.supervised import SupervisedProcesses
print(SupervisedProcesses().spawn(["tail", "-f", "/dev/null"], log=Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path / "log"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_a_parent_that_is_killed_takes_the_process_along(parent):
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    parent.kill()
    child.wait(timeout=10)


def test_a_parent_that_ends_by_itself_takes_the_process_along(parent):
    child = psutil.Process(int(parent.stdout.readline()))
    parent.stdin.close()
    child.wait(timeout=10)
    assert parent.wait(timeout=10) == 0


def test_a_stopped_process_is_killed_too(parent):
    child = psutil.Process(int(parent.stdout.readline()))
    child.suspend()
    parent.kill()
    child.wait(timeout=10)


def test_close_kills_what_is_left_and_may_be_repeated(tmp_path):
    group = SupervisedProcesses()
    process = group.spawn(ENDLESS, log=tmp_path / "log")
    group.close()
    assert process.wait(timeout=10) == -9
    group.close()


def test_output_is_appended_to_the_log(tmp_path):
    group = SupervisedProcesses()
    for text in ("first", "second"):
        assert group.spawn(["/bin/sh", "-c", f"echo {text} >&2"], log=tmp_path / "log").wait(timeout=10) == 0
    group.close()
    assert (tmp_path / "log").read_text() == "first\nsecond\n"
