"""pip install of pinned requirements, with a bar: of packages that are downloaded, then of those that are installed.

Only the standard library is there yet. Usage, with the environment's Python: install.py requirements-dev.txt
"""

import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

WIDTH = 40
STEPS = 5  # lines if the output is not a terminal
PIP = ("--disable-pip-version-check", "--progress-bar", "off", "--require-hashes", "--requirement")
SHOWN = 20  # last lines of pip's output, if it fails


def pins(requirements: str) -> int:
    """How many packages a file of pinned requirements names; a few may be for other platforms."""
    return len(re.findall(r"^[A-Za-z0-9][^\s=]*==", requirements, re.MULTILINE))


def bar(what: str, done: int, total: int) -> str:
    """`[#####---] 5 of 8 packages installed`."""
    filled = WIDTH * min(done, total) // max(total, 1)
    return f"[{'#' * filled}{'-' * (WIDTH - filled)}] {min(done, total)} of {total} packages {what}"


def changes(looks: Iterable[tuple[str, int]], total: int, *, steps: int) -> Iterator[str]:
    """The bars to show of these looks: each new one, or with `steps` only so many of the way."""
    before = ("", -1)
    for what, done in looks:
        step = (what, min(done, total) * steps // max(total, 1) if steps else done)
        if step != before:
            before = step
            yield bar(what, done, total)


class Pip:
    """A run of pip, and what it has done so far."""

    def __init__(self, arguments: Iterable[str]) -> None:
        command = [sys.executable, "-m", "pip", "install", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: list[str] = []
        self._before = self._there()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def looks(self, wait: Callable[[], None]) -> Iterator[tuple[str, int]]:
        """What is being done and how far, again and again until pip ends."""
        while self._process.poll() is None:
            yield self._now()
            wait()
        self._reader.join()
        yield self._now()

    @property
    def failure(self) -> str:
        """The end of its output, if it failed."""
        return "".join(self._lines[-SHOWN:]) if self._process.returncode else ""

    @property
    def code(self) -> int:
        return self._process.returncode or 0

    def _now(self) -> tuple[str, int]:
        if any(line.startswith("Installing collected packages") for line in self._lines):
            return "installed", self._there() - self._before
        return "downloaded", sum(line.startswith("Collecting ") for line in self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    @staticmethod
    def _there() -> int:
        return sum(1 for _ in Path(sysconfig.get_path("purelib")).glob("*.dist-info"))


def show(bars: Iterable[str], out: TextIO) -> None:
    """Each bar in the place of the one before, on a terminal; otherwise in a line of its own."""
    for each in bars:
        out.write(f"\r{each}\x1b[K" if out.isatty() else f"{each}\n")
        out.flush()
    if out.isatty():
        out.write("\n")


def main(requirements: str) -> int:
    out, total = sys.stdout, pins(Path(requirements).read_text())
    pip = Pip([*PIP, requirements])
    show(changes(pip.looks(lambda: time.sleep(0.5)), total, steps=0 if out.isatty() else STEPS), out)
    sys.stderr.write(pip.failure)
    return pip.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
