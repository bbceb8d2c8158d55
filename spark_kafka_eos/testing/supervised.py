"""Runs processes that end together with this one, even if it is killed with SIGKILL.

A small watcher process holds the read end of a pipe; only this process holds the write end. The watcher leads a process
group that every spawned process joins before it executes anything. When the pipe closes, the watcher kills the group.
This needs only POSIX (no prctl), has no gap, does not depend on the thread that spawns, and keeps a terminal's Ctrl-C
from the processes, so that this process can stop them in order. A child that was forked without exec shares the write
end: then the group lives until that child ends too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class SupervisedProcesses:
    """A process group that is killed by `close()`, or when this process ends."""

    def __init__(self) -> None:
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", "read -r _; kill -9 0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def spawn(self, arguments: Sequence[str | Path], *, log: Path) -> subprocess.Popen[bytes]:
        """Start a process; append its standard output and error to `log`."""
        with log.open("ab") as output:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=self._watcher.pid,
            )

    def close(self) -> None:
        """Kill the rest of the group and wait until the watcher has ended. May be called repeatedly."""
        self._watcher.communicate()
