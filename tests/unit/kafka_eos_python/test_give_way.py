"""What a job brings replaces what the server has imported."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import importlib, sys
from kafka_eos_python.give_way import GiveWay
import brought, kept, numpy
sys.meta_path.insert(0, GiveWay())
sys.path.insert(1, sys.argv[1])
importlib.invalidate_caches()
sys.path.insert(1, sys.argv[2])
import brought, brought.inner, kept, numpy
print(brought.__file__, brought.inner.__file__, kept.__file__, numpy.__file__)
"""


def test_packages_of_the_job_are_imported_anew_but_for_compiled_ones(tmp_path, monkeypatch):
    site, job, later = (tmp_path / name for name in ("site", "job", "later"))
    for name in ("site/brought", "site/kept", "job/brought", "job/numpy", "later/kept"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
    (job / "brought" / "inner.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[3]}:{site}")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, job, later], capture_output=True, text=True, check=True
    ).stdout.split()
    assert done[:3] == [str(job / "brought/__init__.py"), str(job / "brought/inner.py"), str(site / "kept/__init__.py")]
    assert done[3] == importlib.import_module("numpy").__file__, "it can be loaded only once"
