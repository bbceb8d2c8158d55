"""A Python worker's garbage collector examines the objects of tasks, but not those of imported modules."""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_eos.startup import frozen
from spark_kafka_eos.startup.frozen import freeze_gc


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """As a worker that has had no task."""
    frozen._freeze.cache_clear()
    yield
    gc.unfreeze()
    frozen._freeze.cache_clear()


class Cycle:
    def __init__(self) -> None:
        self.me = self


def test_what_was_imported_is_left_out_once() -> None:
    freeze_gc()
    before = gc.get_freeze_count()
    assert before > 10_000
    later = [Cycle() for _ in range(1_000)]
    freeze_gc()
    assert gc.get_freeze_count() <= before  # what is no longer needed goes, as ever
    assert later


def test_what_a_task_imported_is_left_out_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze_gc()
    before = gc.get_freeze_count()
    (tmp_path / "imported_by_a_task.py").write_text("here = [[number] for number in range(20_000)]")
    monkeypatch.syspath_prepend(tmp_path)
    imported = importlib.import_module("imported_by_a_task")
    freeze_gc()
    assert gc.get_freeze_count() > before + 10_000
    assert imported.here


def test_what_a_later_task_leaves_behind_is_collected() -> None:
    freeze_gc()
    gone = weakref.ref(Cycle())
    gc.collect()
    assert gone() is None
