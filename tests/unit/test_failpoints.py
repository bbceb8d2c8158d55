from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_eos import failpoints

REACH = "from spark_kafka_eos.failpoints import failpoint; failpoint('before append', 3); print('passed')"
# Both threads may find that nobody is held yet.
REACH_TWICE = """
import os, threading
from spark_kafka_eos.failpoints import failpoint
both, mkfifo = threading.Barrier(2), os.mkfifo
os.mkfifo = lambda path: (both.wait(), mkfifo(path))
reach = lambda: (failpoint("before append", 3), print("passed"))
threads = [threading.Thread(target=reach) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@pytest.fixture
def reach(tmp_path: Path):
    """`reach(armed, holds, program)`: a process on its way to `before append` of batch 3."""
    processes: list[subprocess.Popen[str]] = []

    def start(armed: str, holds: int = 1, program: str = REACH) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "KAFKA_EOS_FAILPOINT": armed,
                "KAFKA_EOS_FAILPOINT_DIR": str(tmp_path),
                "KAFKA_EOS_FAILPOINT_HOLDS": str(holds),
            },
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def release(folder: Path, pid: int) -> None:
    while str(pid) not in {reached.read_text() for reached in folder.glob("reached*")}:
        os.sched_yield()
    (folder / f"release-{pid}").write_text("go")


def test_nothing_is_armed_in_production() -> None:
    assert failpoints._ARMED is None
    failpoints.failpoint("before append", 3)


@pytest.mark.parametrize("armed", ["ended", "before append@2"])
def test_another_point_or_batch_is_passed_by(armed: str, reach) -> None:
    assert reach(armed).communicate(timeout=60)[0] == "passed\n"


def test_a_held_process_continues_when_released(tmp_path: Path, reach) -> None:
    process = reach("before append@3")
    release(tmp_path, process.pid)
    assert process.communicate(timeout=60)[0] == "passed\n"
    assert (tmp_path / "reached").read_text() == str(process.pid)


def test_exactly_the_requested_number_of_processes_is_held(tmp_path: Path, reach) -> None:
    held = [reach("before append", 2), reach("before append", 2)]
    for process in held:
        release(tmp_path, process.pid)
        assert process.communicate(timeout=60)[0] == "passed\n"
    assert {int((tmp_path / name).read_text()) for name in ("reached", "reached-2")} == {one.pid for one in held}
    assert reach("before append", 2).communicate(timeout=60)[0] == "passed\n"


def test_one_thread_of_a_process_is_held_and_the_other_one_goes_on(tmp_path: Path, reach) -> None:
    process = reach("before append", program=REACH_TWICE)
    release(tmp_path, process.pid)
    assert process.communicate(timeout=60) == ("passed\npassed\n", "")


def test_a_point_that_does_not_exist_is_an_error(reach) -> None:
    assert "ValueError: no failpoint 'befor append'" in reach("befor append").communicate(timeout=60)[1]
