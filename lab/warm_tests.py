"""Runs tests on a copy of the package in processes that are forked from a warm one: seconds less for each run.

The warm process has imported what the tests need from others, so a forked one only imports the package and the tests.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.mutants import FAILED, ROOT

_OF_OTHERS = ["confluent_kafka", "jsonschema_rs", "kafka", "numpy", "pyarrow.compute"]
_OPTIONS = ["-x", "-q", "-rfE", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"]


def first_failure(copy: Path, tests: Sequence[str], seconds: float) -> str | None:
    """The test that fails first on this copy of the package; None if none does. A run that takes longer than `seconds`
    hangs.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_OF_OTHERS)
    with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
        log = Path(folder, "log")
        process = context.Process(target=_run, args=(copy, list(tests), log))
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            return f"it hangs for {seconds:.0f} s"
        if process.exitcode:
            first = FAILED.search(log.read_text(encoding="utf-8"))
            return first[1] if first else "the import"
    return None


def _run(copy: Path, tests: list[str], log: Path) -> None:
    """In the forked process: `copy` instead of this checkout's package, also for processes that a test starts."""
    os.chdir(ROOT)
    sys.path[:0] = [str(copy.parent), str(ROOT)]
    sys.dont_write_bytecode = True
    os.environ |= {
        "PYTHONPATH": f"{copy.parent}{os.pathsep}{ROOT}",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "250",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(log.parent),  # what fails on a mutant is no example for the code
    }
    import pytest

    with log.open("w", encoding="utf-8") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = pytest.main([*_OPTIONS, *tests])
    os._exit(int(code))
