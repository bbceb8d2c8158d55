"""What a job brings replaces what the server has imported."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT

PROGRAM = """
import importlib, sys
import os.path
from kafka_eos_python.give_way import GiveWay
import at_start
before = set(sys.modules)
import brought, other, numpy
sys.meta_path.insert(0, GiveWay({"brought", "other", "numpy"}))
for folder in sys.argv[1:]:
    sys.path.insert(1, folder)
    importlib.invalidate_caches()
import at_start, brought, other, numpy
print(*(os.path.dirname(os.path.dirname(module.__file__)) for module in (at_start, brought, other, numpy)))
print(other.brought is brought)
"""
NUMPY = str(Path(str(importlib.import_module("numpy").__file__)).parents[1])


def make(folder: Path, *packages: str) -> str:
    for name in packages:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("import brought" if name == "other" else "")
    return str(folder)


def imported(monkeypatch, tmp_path: Path, *brought: str) -> list[str]:
    """Where packages are imported from that the server has, when these folders come into the path."""
    site = make(tmp_path / "site", "at_start", "brought", "other")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{site}")
    done = subprocess.run([sys.executable, "-c", PROGRAM, *brought], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True", "a package that is kept has no class of one that is replaced"
    return [place.replace(str(tmp_path), "") for place in done.stdout.split()[:-1]]


def test_a_package_of_the_job_is_imported_and_so_are_all_others_anew_but_for_compiled_ones(tmp_path, monkeypatch):
    job = make(tmp_path / "job", "brought", "numpy", "at_start")
    assert imported(monkeypatch, tmp_path, job) == ["/site", "/job", "/site", NUMPY]


def test_what_a_plain_python_would_import_after_the_path_has_changed_comes_from_there(tmp_path, monkeypatch):
    first, second = make(tmp_path / "first", "brought"), make(tmp_path / "second", "other")
    assert imported(monkeypatch, tmp_path, first, second) == ["/site", "/first", "/second", NUMPY]


def test_a_folder_that_only_has_the_name_of_a_package_replaces_nothing(tmp_path, monkeypatch):
    (tmp_path / "job" / "brought").mkdir(parents=True)
    assert imported(monkeypatch, tmp_path, str(tmp_path / "job")) == ["/site", "/site", "/site", NUMPY]


def test_the_server_imports_no_compiled_package_that_needs_one_without_compiled_parts():
    """pyarrow and google_crc32c need no other package, and NumPy is pyarrow's."""
    code = """
import importlib, sys
from importlib.machinery import EXTENSION_SUFFIXES
from kafka_eos_python.server import MODULES
before = set(sys.modules)
for module in MODULES:
    importlib.import_module(module)
files = {name: str(getattr(sys.modules[name], "__file__", "")) for name in set(sys.modules) - before}
print(*{name.partition(".")[0] for name, file in files.items() if file.endswith(tuple(EXTENSION_SUFFIXES))}
      - sys.stdlib_module_names)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(done.stdout.split()) == {"google_crc32c", "numpy", "pyarrow"}
