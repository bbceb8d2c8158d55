"""The fork server with nothing set: Spark's Pythons are plain ones, of an environment with `spark_kafka_eos.pth`.

The server starts when Spark creates this connector's data source, and not for the queries of others. The processes
until then have imported what they need by themselves. Those that plan and commit after it are forked. Those of tasks,
where the functions of a query run, are not: nobody has chosen that here, and they are started once.
"""

from __future__ import annotations

import contextlib
import os
import sys

from kafka_eos_python.launcher import begin_server, fork_from, hindrance
from kafka_eos_python.place import started
from kafka_eos_python.request import is_planner


def fork() -> None:
    """Have this process, which Spark's JVM has started, forked if that has a server; returns if not."""
    arguments = sys.orig_argv[1:]
    if is_planner(arguments) and hindrance(os.environ) is None:
        fork_from(os.getppid(), arguments)


def begin_server_in_worker() -> None:
    """In a worker of a planner's daemon: start a server for the JVM. Elsewhere, and if it has one, nothing."""
    if is_planner(sys.orig_argv[1:]) and hindrance(os.environ) is None and (daemon := started(os.getppid())):
        with contextlib.suppress(OSError):  # no process more may be started: then none is forked
            begin_server(daemon[1])
