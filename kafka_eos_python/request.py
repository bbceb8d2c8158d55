"""What a process that is to be forked is like, and which ones can be.

The launcher imports this, and only what Python has imported at its own start anyway, but for the module `resource`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, without its classes
import os
import sys

TYPE_CHECKING = False  # typing's takes 10 ms; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypedDict

    class Request(TypedDict):
        """A process to be forked: what `python arguments…` would be, started where this was made."""

        arguments: list[str]
        python: str
        version: str
        folder: str
        environment: dict[str, str]
        session: int
        group: int
        ignored: list[int]
        blocked: list[int]
        umask: int
        limits: dict[int, tuple[int, int]]


DAEMON, TASKS = "pyspark.daemon", "pyspark.worker"
# Modules that Spark runs by `python -m`, and that a server can run instead. What else there is, such as the workers of
# Spark Connect, prepares its environment before it imports PySpark.
FORKED = frozenset({DAEMON, "pyspark.sql.streaming.python_streaming_source_runner"})

THREADS = "OPENBLAS_NUM_THREADS"
# What makes imports start no thread, and Spark's own value of how its processes write.
IMPORTED_WITH = {THREADS: "1", "JE_ARROW_MALLOC_CONF": "background_thread:false", "PYTHONUNBUFFERED": "YES"}

# Variables that Spark, its scripts and shells set for one process each, and that nothing reads when it is imported.
_OF_ONE_PROCESS = frozenset(
    {
        "MASTER",
        "OMP_NUM_THREADS",
        "PYSPARK_DRIVER_CALLBACK_HOST",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_GATEWAY_SECRET",
        "PYSPARK_SUBMIT_ARGS",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE",
        "PYTHON_FAULTHANDLER_DIR",
        "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS",
        "PYTHON_UDF_BATCH_SIZE",
        "PYTHON_UNIX_DOMAIN_ENABLED",
        "PYTHON_WORKER_FACTORY_PORT",
        "PYTHON_WORKER_FACTORY_SECRET",
        "PYTHON_WORKER_FACTORY_SOCK_DIR",
        "PYTHON_WORKER_FACTORY_SOCK_PATH",
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "SPARK_BUFFER_SIZE",
        "SPARK_CONF_DIR",
        "SPARK_CONNECT_MODE",
        "SPARK_ENV_LOADED",
        "SPARK_HOME",
        "SPARK_JOB_ARTIFACT_UUID",
        "SPARK_LOCAL_DIRS",
        "SPARK_PYTHON_RUNTIME",
        "SPARK_REUSE_WORKER",
        "SPARK_SCALA_VERSION",
        "SPARK_SIMPLIFIED_TRACEBACK",
        "_PYSPARK_DRIVER_CONN_INFO_PATH",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    }
)
# A limit of the address space, which would count what the server has imported (spark.executor.pyspark.memory).
LIMITS_OF_MEMORY = ("PYSPARK_EXECUTOR_MEMORY_MB", "PYSPARK_PLANNER_MEMORY_MB")
_PATH = "PYTHONPATH"  # compared by itself: Spark adds its archives once, twice or not at all


def can_be_forked(arguments: Sequence[str]) -> bool:
    """Whether a server may run this, for which Spark has started a Python."""
    return len(arguments) > 1 and arguments[0] == "-m" and arguments[1] in FORKED


def is_planner(arguments: Sequence[str]) -> bool:
    """Whether only a driver starts such a process: executors have the daemon of tasks alone, which is started once."""
    return can_be_forked(arguments) and TASKS not in arguments


def described(arguments: Sequence[str]) -> Request:
    """The process that this one was started as, with the arguments of Python."""
    import resource

    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "arguments": list(arguments),
        "python": sys.executable,
        "version": sys.version,
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "ignored": [number for number in signals() if _signal.getsignal(number) is _signal.SIG_IGN],
        "blocked": list(_signal.pthread_sigmask(_signal.SIG_BLOCK, ())),
        "umask": umask,
        "limits": {number: resource.getrlimit(number) for number in _limits()},
    }


def signals() -> list[int]:
    """The signals whose effect a process can choose."""
    return [number for number in _signal.valid_signals() if number not in (_signal.SIGKILL, _signal.SIGSTOP)]


def _limits() -> list[int]:
    import resource

    return sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


def differences(asked: Request, own: Request) -> list[str]:
    """In what a process is not what one forked from a server would be, if `own` describes the server. Names only:
    values may be secrets. Of PYTHONPATH, the server itself knows what it has imported.
    """
    fixed = [name for name in ("python", "version", "folder", "session") if asked[name] != own[name]]
    hard = [f"limit {number}" for number, (_, most) in asked["limits"].items() if own["limits"][number][1] != most]
    theirs, ours = _at_import(asked["environment"]), _at_import(own["environment"])
    variables = [name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)]
    calculates = TASKS in asked["arguments"] and _threads_of(asked["environment"]) != "1"
    return [*fixed, *hard, *variables, *([THREADS] if calculates else [])]


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """What an import may depend on."""
    kept = {name: value for name, value in environment.items() if name not in _OF_ONE_PROCESS and name != _PATH}
    return {name: value for name, value in IMPORTED_WITH.items() if name != "PYTHONUNBUFFERED"} | kept


def _threads_of(environment: Mapping[str, str]) -> str | None:
    """With how many threads NumPy would calculate. Spark sets the second one for its tasks. Source: OpenBLAS, which
    takes the first one of these three that is there.
    """
    names = (THREADS, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
    return next((environment[name] for name in names if name in environment), None)


def for_a_server(environment: Mapping[str, str]) -> dict[str, str]:
    """A server's environment: that of its driver, in which Spark's JVM is started, and what Spark adds for Python."""
    return {"PYTHONHASHSEED": "0", **environment, **IMPORTED_WITH}
