"""Processes that end together with this one, even after SIGKILL.

A tiny watcher holds the read end of a pipe whose only write end is here, and leads a process group that every process
started here joins before it runs anything. When the pipe closes the watcher kills the group. This needs POSIX only
(no prctl), leaves no moment unguarded, does not depend on which thread started what, and keeps a terminal's Ctrl-C from
reaching the processes before this one can stop them in order. A child forked without exec shares the write end: the
group lives until it ends too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class SupervisedProcesses:
    """A process group that dies with this process or at `close()`, whichever is first."""

    def __init__(self) -> None:
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", "read -r _; kill -9 0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def spawn(self, arguments: Sequence[str | Path], *, log: Path) -> subprocess.Popen[bytes]:
        """Start a process whose standard output and error are appended to `log`."""
        with log.open("ab") as output:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=self._watcher.pid,
            )

    def close(self) -> None:
        """Kill what is left of the group and wait for the watcher to go. Harmless when repeated."""
        self._watcher.communicate()
