"""The folder of sockets: nobody else may have made it, nor enter it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_eos_python.place import abandoned, folder, name_of, started


@pytest.fixture
def runtime(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Path(tmp_path) / f"kafka-eos-python-{os.getuid()}"


def test_it_is_made_private(runtime):
    umask = os.umask(0)
    try:
        assert folder() == str(runtime)
    finally:
        os.umask(umask)
    assert runtime.stat().st_mode & 0o777 == 0o700
    assert folder() == str(runtime)


def test_a_folder_that_others_may_enter_is_not_used(runtime):
    runtime.mkdir(mode=0o755)
    assert folder() is None


def test_a_link_in_its_place_is_not_followed(runtime, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    assert folder() is None


def test_a_file_in_its_place_is_not_used(runtime):
    runtime.touch(mode=0o600)
    assert folder() is None


def test_a_folder_of_somebody_else_is_not_used(runtime, monkeypatch, tmp_path):
    (tmp_path / "kafka-eos-python-12345").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert folder() is None


def test_where_it_cannot_be_made_there_is_none(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc")
    assert folder() is None


def test_sockets_of_ended_drivers_are_abandoned():
    found = started(os.getpid())
    assert found and found[1] == os.getppid()
    alive, reused = name_of(os.getpid(), found[0]), name_of(os.getpid(), found[0] - 1)
    assert list(abandoned([alive, reused, name_of(2**22 + 1, 5), "something-else"])) == [reused, name_of(2**22 + 1, 5)]
