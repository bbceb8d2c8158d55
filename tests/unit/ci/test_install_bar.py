"""The bar of `make`'s installation: what it counts, and what it shows where there is no terminal."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys

from tests.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / ".ci" / "install.py"))


def test_the_packages_of_the_lock_are_counted_once_each():
    lock = (ROOT / "requirements-dev.txt").read_text()
    assert SCRIPT["pins"](lock) == len({line for line in lock.splitlines() if "==" in line and line[0].isalnum()})
    assert SCRIPT["pins"]("# a==1\npip==25.0 \\\n    --hash=sha256:a==\nruff==0.17 ; python_version < '4'\n") == 2


def test_without_a_terminal_there_is_a_line_for_each_fifth_of_each_half():
    out = io.StringIO()
    looks = [(what, done) for what in ("downloaded", "installed") for done in range(101)]
    SCRIPT["show"](SCRIPT["changes"](looks, 100, steps=5), out)
    lines = out.getvalue().splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        f"{done} of 100 packages {what}" for what in ("downloaded", "installed") for done in range(0, 101, 20)
    ]
    assert "\r" not in out.getvalue()


def test_a_bar_never_promises_more_than_all():
    assert SCRIPT["bar"]("installed", 9, 8) == f"[{'#' * 40}] 8 of 8 packages installed"
    assert SCRIPT["bar"]("downloaded", 0, 0).endswith("0 of 0 packages downloaded")


def test_what_pip_refuses_is_shown_and_is_the_exit_code(tmp_path):
    (tmp_path / "requirements.txt").write_text("no-such-package==1.0\n")
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "install.py", tmp_path / "requirements.txt"],
        env=os.environ | {"PIP_NO_INDEX": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "No matching distribution found for no-such-package==1.0" in done.stderr
    assert "0 of 1 packages downloaded" in done.stdout
