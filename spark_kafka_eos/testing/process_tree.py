"""All processes of a Spark driver, also those that were forked for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

_SERVER = "kafka_eos_python.server"  # its command line is also that of every process that it forks


def process_tree(root: int) -> list[psutil.Process]:
    """A process, followed by its descendants, and by what `kafka-eos-python` forked for one of them: these are children
    of a server, and have its command line. Empty if the process has ended.
    """
    try:
        parent = psutil.Process(root)
        tree = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    drivers = {str(process.pid) for process in tree}
    return [
        *tree,
        *(process for process in psutil.process_iter() if process not in tree and _driver(process) in drivers),
    ]


def _driver(process: psutil.Process) -> str | None:
    """The process ID of the driver that a fork server, or a process that it forked, belongs to; None for others. The
    server's socket is named after it.
    """
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        line = process.cmdline()
        if _SERVER in line:
            return Path(line[-1]).name.partition("-")[0]
    return None
