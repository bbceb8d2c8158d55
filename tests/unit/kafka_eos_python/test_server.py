"""Processes that the fork server has forked, beside plain ones; and what ends with what, by killing real processes."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import SO_PEERCRED, SOL_SOCKET
from typing import Any

import pytest

from kafka_eos_python.forked import ask, connect, peer
from kafka_eos_python.place import name_of, started
from kafka_eos_python.request import described
from kafka_eos_python.server import Server
from tests.pages import ROOT
from tests.unit.kafka_eos_python.installed import PLANNER, Process, environment, telling_pyspark

TASKS = ["-m", "pyspark.daemon", "pyspark.worker"]
# Starts processes as Spark's JVM does, and stays until it is killed.
DRIVER = """
import subprocess, sys
processes = [subprocess.Popen([sys.argv[1], *sys.argv[2:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)]
print(processes[0].stdout.readline().decode(), flush=True)
processes[0].wait()
"""


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, which nothing announces."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listening(path: Path) -> Any:
    """A connection to a server, as soon as it listens."""
    deadline = time.monotonic() + 30
    while (connection := connect(str(path))) is None:
        assert time.monotonic() < deadline
    return connection


class Machine:
    """An environment with the script, and the folder of sockets of its servers."""

    def __init__(self, folder: Path, **modules: str) -> None:
        self.script = environment(folder / "environment")
        self.path = telling_pyspark(folder / "path", **modules)
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.sockets = self.runtime / f"kafka-eos-python-{os.getuid()}"

    def process(self, *arguments: str, cwd: Path | None = None, **variables: Any) -> Process:
        given: dict[str, Any] = {"PYTHONPATH": self.path, "XDG_RUNTIME_DIR": str(self.runtime)}
        return Process(self.script, arguments or PLANNER, given | variables, cwd)

    def plain(self, *arguments: str, **variables: Any) -> Process:
        """The same as no server has it."""
        return self.process(*arguments, **({"XDG_RUNTIME_DIR": "/nowhere"} | variables))

    def server(self) -> int:
        """The process ID of the server of this process, once there is one."""
        begun = started(os.getpid())
        assert begun
        path = self.sockets / name_of(os.getpid(), begun[0])
        until(path.exists)
        with contextlib.closing(listening(path)) as connection:
            return int.from_bytes(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 4), sys.byteorder)

    def begin(self) -> int:
        """Have a server started, as the first process that only drivers have does."""
        process = self.process()
        assert process.seen["parent"] == os.getpid(), "nothing waits for the server"
        assert process.end() == (0, "end of input\n")
        return self.server()


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("m"))
    server = made.begin()
    yield made
    os.kill(server, signal.SIGTERM)
    until(lambda: not is_alive(server))


@pytest.fixture
def own(tmp_path_factory) -> Iterator[Machine]:
    """A machine whose server a test may end."""
    made = Machine(tmp_path_factory.mktemp("m"))
    server = made.begin()
    yield made
    if is_alive(server):
        os.kill(server, signal.SIGKILL)


def test_a_forked_process_is_what_a_plain_one_would_be(machine, tmp_path):
    (tmp_path / "a b").mkdir()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    before, umask = resource.getrlimit(resource.RLIMIT_NOFILE), os.umask(0o027)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        variables = {"OMP_NUM_THREADS": "1", "SPARK_BUFFER_SIZE": "7", "PYTHON_WORKER_FACTORY_SECRET": "s=\n☃"}
        forked = machine.process(*TASKS, "a b", "-x", **variables)
        plain = machine.plain(*TASKS, "a b", "-x", **variables)
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGQUIT])
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.umask(umask)
    assert forked.seen.pop("parent") == machine.server()
    assert plain.seen.pop("parent") == os.getpid()
    for each in (forked, plain):
        del each.seen["pid"], each.seen["imported"], each.seen["environment"]["XDG_RUNTIME_DIR"]
    assert forked.seen == plain.seen
    assert forked.end() == plain.end() == (0, "end of input\n")


def test_a_process_that_cannot_be_forked_ends_alone(tmp_path, monkeypatch):
    def fails() -> int:
        raise BlockingIOError("as many processes as are allowed")

    monkeypatch.setattr(os, "fork", fails)
    monkeypatch.setattr(Server, "refuses", lambda *_: False)
    with (
        socket.socket(socket.AF_UNIX) as listening,
        socket.socket(socket.AF_UNIX) as launcher,
        ThreadPoolExecutor() as asking,
    ):
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        launcher.connect(str(tmp_path / "s"))
        server = Server(listening=listening, owner=os.pidfd_open(os.getpid()), own=described([]))
        asked = asking.submit(ask, launcher, described(PLANNER))
        assert server.serve(10) is None
        assert asked.result(10)
        assert launcher.recv(4) == b"", "it ends as if its process had been killed"
        assert (server.ended, server.clients) == (False, {})
        os.close(server.owner)


@pytest.mark.parametrize(
    "statement",
    [
        "sys.exit(7)",
        "sys.exit('why')",
        "raise KeyError(5)",
        "os._exit(9)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGUSR1)",
        "import atexit; atexit.register(print, 'at exit', file=sys.stderr)",
        "print('without a line end', end='')",
    ],
)
def test_a_forked_process_ends_as_a_plain_one(machine, statement):
    ends = []
    for process in (machine.process(), machine.plain()):
        said = process.do(statement)
        code, error = process.end()
        ends.append((said, code, error.splitlines()[-1:]))
    assert ends[0] == ends[1]


def test_what_the_server_has_imported_is_imported(machine):
    def imported() -> bool:
        process = machine.process()
        process.end()
        return bool(process.seen["imported"])

    until(imported)
    process = machine.plain()
    assert not process.seen["imported"]
    process.end()


def test_sigterm_to_the_launcher_reaches_the_process(machine):
    process = machine.process()
    assert process.seen["pid"] != process.popen.pid
    process.popen.terminate()
    assert process.popen.wait(30) == 43
    process.end()


def test_a_process_group_receives_a_signal_once(machine):
    process = machine.process()
    assert process.seen["group"] == os.getpgid(process.popen.pid)
    process.popen.send_signal(signal.SIGINT)
    assert process.do("print(1)") == "1\n", "the launcher has ignored it"
    process.end()


def test_whoever_kills_the_launcher_kills_the_process(machine):
    process = machine.process()
    assert process.seen["pid"] != process.popen.pid
    process.kill()
    until(lambda: not is_alive(process.seen["pid"]))


def test_who_waits_at_the_other_end_sees_what_the_process_closes(machine):
    process = machine.process()
    assert process.popen.stdout
    process.do("os.dup2(os.open('/dev/null', os.O_WRONLY), 1)")
    assert process.popen.stdout.read() == ""
    assert process.popen.poll() is None
    process.end()


def test_with_the_server_its_processes_and_launchers_are_killed(own):
    process = own.process()
    assert process.seen["parent"] == own.server()
    os.kill(own.server(), signal.SIGKILL)
    assert process.end()[0] == -signal.SIGKILL
    until(lambda: not is_alive(process.seen["pid"]))
    again = own.process()
    assert again.seen["parent"] == os.getpid(), "nobody listens at the socket that the killed one left"
    again.end()


def test_a_server_ends_with_its_driver_and_the_last_process(tmp_path_factory):
    machine = Machine(tmp_path_factory.mktemp("m"))
    file = machine.runtime / "driver.py"
    file.write_text(DRIVER)
    driver = machine.process(str(file), str(machine.script), *PLANNER)
    server = None
    try:
        until(lambda: machine.sockets.is_dir() and list(machine.sockets.iterdir()))
        [path] = machine.sockets.iterdir()
        assert path.name.startswith(f"{driver.popen.pid}-")
        worker = driver.seen["pid"]
        server = driver.seen["parent"] if driver.seen["parent"] != driver.popen.pid else None
        driver.kill()  # and with it the other end of the worker's input
        until(lambda: not path.exists())
        until(lambda: not is_alive(worker))
        if server:
            until(lambda: not is_alive(server))
    finally:
        driver.kill()


@pytest.mark.parametrize(
    "differs",
    [
        {"PYTHONHASHSEED": "1"},
        {"PYTHONPATH": "/elsewhere"},
        {"LANG": "tlh"},
        {"LD_PRELOAD": ""},
        {"OPENBLAS_NUM_THREADS": "2"},
        {"SPARK_SOMETHING_NEW": "1"},
        {"PYTHONUNBUFFERED": None},
        {"PYSPARK_EXECUTOR_MEMORY_MB": "256"},
        {"PYSPARK_PLANNER_MEMORY_MB": "256"},
    ],
    ids=str,
)
def test_what_an_import_may_depend_on_is_never_forked(machine, differs):
    given = {"PYTHONPATH": f"{machine.path}:/elsewhere"} if "PYTHONPATH" in differs else differs
    process = machine.process(**given)
    assert process.seen["parent"] == os.getpid()
    process.end()


def test_a_server_that_is_turned_off_is_neither_asked_nor_started(machine, tmp_path):
    process = machine.process(KAFKA_EOS_FORK_SERVER="off", XDG_RUNTIME_DIR=str(tmp_path))
    assert process.seen["parent"] == os.getpid()
    process.end()
    assert list(tmp_path.iterdir()) == []


def test_a_process_in_another_folder_is_never_forked(machine, tmp_path):
    process = machine.process(cwd=tmp_path)
    assert (process.seen["parent"], process.seen["folder"]) == (os.getpid(), str(tmp_path))
    process.end()


def test_a_process_in_a_session_of_its_own_is_never_forked(machine):
    code = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"
    given = os.environ | {"PYTHONPATH": machine.path, "XDG_RUNTIME_DIR": str(machine.runtime)}
    done = subprocess.run(
        [sys.executable, "-c", code, machine.script, *PLANNER], env=given, input="", capture_output=True, check=True
    )
    assert f'"parent": {os.getpid()},'.encode() in done.stdout


def test_tasks_that_would_calculate_with_more_threads_are_never_forked(machine):
    for variables, forked in (({}, False), ({"OMP_NUM_THREADS": "2"}, False), ({"OMP_NUM_THREADS": "1"}, True)):
        process = machine.process(*TASKS, **variables)
        assert (process.seen["parent"] != os.getpid()) == forked
        process.end()


def test_a_server_in_which_an_import_has_started_a_thread_forks_nothing_any_more(tmp_path_factory):
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=[99], daemon=True).start()\n"
    machine = Machine(tmp_path_factory.mktemp("m"), pyarrow=thread)
    server = machine.begin()
    try:
        until(lambda: len(list(Path(f"/proc/{server}/task").iterdir())) > 1)
        process = machine.process()
        assert process.seen["parent"] == os.getpid()
        process.end()
    finally:
        os.kill(server, signal.SIGKILL)


DRAW = """
import multiprocessing, os, sys
import numpy
from kafka_eos_python.server import NewNumbers

def draw(_):
    return int(numpy.random.randint(1 << 30))

def forked(run):
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, run().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    return os.read(reading, 1000).decode()

def of_a_task():
    first = draw(0)
    numpy.random.seed(42)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return f"{first} {pool.map(draw, range(2))}"

def daemon():
    sys.orig_argv[:] = ["python3", "-m", "pyspark.daemon", "pyspark.worker"]
    return "; ".join(forked(of_a_task) for _ in range(2))

os.register_at_fork(after_in_child=NewNumbers())
print("; ".join(forked(daemon) for _ in range(2)))
"""


def test_processes_of_spark_draw_different_numbers_and_what_they_fork_goes_on_with_theirs():
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=True, cwd=ROOT)
    tasks = done.stdout.strip().split("; ")
    assert len({task.split()[0] for task in tasks}) == 4
    assert {task.partition(" ")[2] for task in tasks} == {"[534895718, 199900595]"}


def test_only_its_own_user_is_who_the_server_is(machine, monkeypatch):
    path = next(machine.sockets.iterdir())
    connection = connect(str(path))
    assert connection and peer(connection) == os.getuid()
    connection.close()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert connect(str(path)) is None
