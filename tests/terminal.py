"""The command `kafka-eos` of this checkout; a command in a terminal of its own (ptyprocess), and what a person would
see on its screen (pyte).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyte
from ptyprocess import PtyProcess

KAFKA_EOS = (sys.executable, "-c", "from spark_kafka_eos.tools.cli.main import main; main()")

_ENVIRONMENT = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


class Terminal:
    """A running command, all that it has written, and its screen."""

    def __init__(self, process: PtyProcess, columns: int, rows: int) -> None:
        self._process = process
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""

    @property
    def lines(self) -> list[str]:
        """What is on the screen now, without the space at the ends of lines."""
        return [line.rstrip() for line in self._screen.display]

    def until(self, *texts: str) -> None:
        """Read until each of the texts is on the screen, in one line. The command's end is an EOFError."""
        while not all(any(text in line for line in self.lines) for text in texts):
            self._read()

    def keys(self, keys: bytes) -> None:
        self._process.write(keys)

    def end(self) -> int:
        """Read what the command still writes; its exit code."""
        with suppress(EOFError):
            while True:
                self._read()
        return int(self._process.wait())

    def _read(self) -> None:
        data = self._process.read(65_536)
        self.written += data
        self._stream.feed(data)


@contextmanager
def terminal(command: Sequence[str], *, columns: int, rows: int) -> Iterator[Terminal]:
    """Run a command in a terminal of this size; it is killed at the end if it still runs."""
    process = PtyProcess.spawn(list(command), dimensions=(rows, columns), env={**os.environ, **_ENVIRONMENT})
    try:
        yield Terminal(process, columns, rows)
    finally:
        process.close(force=True)
