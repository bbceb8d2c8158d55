"""pyspark.zip is unpacked and put back in one step each, or stays as it was."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.doctor import archive as module
from spark_kafka_eos.tools.doctor.archive import archive_of, can_be_unpacked, pack, unpack, unpacked

MODULES = {"pyspark/__init__.py": "", "pyspark/version.py": "__version__ = '4.3.0'\n"}


def zipped(path: Path, modules: dict[str, str] = MODULES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as opened:
        for name, text in modules.items():
            opened.writestr(name, text)
    return path


@pytest.fixture
def archive(tmp_path) -> Path:
    return zipped(archive_of(tmp_path))


def imported(archive: Path) -> list[str]:
    """What Python imports with the archive first in its path: the module's file, its version, its bytecode's file."""
    program = "import pyspark.version as v; print(v.__file__, v.__version__, v.__spec__.cached)"
    path = {"PYTHONPATH": str(archive), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=path, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_unpacked_the_same_name_leads_to_the_same_modules_with_bytecode(archive):
    assert can_be_unpacked(archive)
    folder = unpack(archive, sys.executable)
    assert unpacked(archive) == folder
    file, version, cached = imported(archive)
    assert (file, version) == (f"{archive}/pyspark/version.py", "4.3.0")
    assert Path(cached).exists()
    assert not can_be_unpacked(archive)
    assert [path.name for path in archive.parent.iterdir() if path.name.endswith(".link")] == []


def test_who_may_read_the_zip_may_read_the_folder_whatever_the_umask(archive):
    archive.chmod(0o644)
    archive.parent.chmod(0o755)
    before = os.umask(0o077)
    try:
        folder = unpack(archive, sys.executable)
    finally:
        os.umask(before)
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes == {True: 0o755, False: 0o644}
    assert list(folder.rglob("*.pyc"))


def test_packed_again_it_is_the_same_file_and_nothing_else_is_left(archive):
    before = archive.read_bytes()
    unpack(archive, sys.executable)
    pack(archive)
    assert not archive.is_symlink()
    assert archive.read_bytes() == before
    assert list(archive.parent.iterdir()) == [archive]
    assert can_be_unpacked(archive)


def test_what_is_no_zip_without_bytecode_is_left_alone(archive):
    with_bytecode = zipped(archive.parent / "compiled" / "pyspark.zip", {"pyspark/__init__.pyc": ""})
    folder = archive.parent / "folder" / "pyspark.zip"
    folder.mkdir(parents=True)
    for other in (with_bytecode, folder, archive.parent / "nothing.zip"):
        assert not can_be_unpacked(other)
        with pytest.raises(ToolFailed, match="nothing to unpack"):
            unpack(other, sys.executable)


@pytest.mark.parametrize(
    ("modules", "python", "said"),
    [
        ({"pyspark/__init__.py": "def\n"}, sys.executable, "cannot compile PySpark"),
        (MODULES, "/nowhere/python", "No such file or directory; nothing was changed"),
    ],
)
def test_if_it_cannot_be_compiled_everything_is_as_it_was(tmp_path, modules, python, said):
    archive = zipped(archive_of(tmp_path), modules)
    with pytest.raises(ToolFailed, match=said):
        unpack(archive, python)
    assert not archive.is_symlink()
    assert zipfile.is_zipfile(archive)
    assert list(archive.parent.iterdir()) == [archive]


def test_interrupted_before_the_last_step_the_zip_is_still_in_its_place(archive, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, sys.executable)
    assert list(archive.parent.iterdir()) == [archive]


def test_what_a_killed_run_left_neither_leads_anywhere_nor_stops_the_next_one(archive):
    killed = "import sys, os, signal; from pathlib import Path; from spark_kafka_eos.tools.doctor import archive as a\n"
    killed += "a._link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    killed += "a.unpack(Path(sys.argv[1]), sys.executable)"
    done = subprocess.run([sys.executable, "-c", killed, archive], check=False)
    assert done.returncode == -signal.SIGKILL
    assert zipfile.is_zipfile(archive)
    assert unpacked(archive) is None
    assert len(list(archive.parent.iterdir())) == 2, "the killed one has left a folder"
    folder = unpack(archive, sys.executable)
    assert {path.name for path in archive.parent.iterdir()} == {archive.name, folder.name}
    pack(archive)
    assert list(archive.parent.iterdir()) == [archive]


def test_the_only_copy_of_a_zip_is_not_taken_for_what_a_killed_run_has_left(archive):
    folder = unpack(archive, sys.executable)
    archive.unlink()
    with pytest.raises(ToolFailed):
        unpack(archive, sys.executable)
    assert zipfile.is_zipfile(folder / "packed.zip")


def test_two_at_the_same_time_do_not_disturb_each_other(archive, monkeypatch):
    said: list[str] = []
    fill = module._fill

    def meanwhile(folder: Path, archive: Path, python: str) -> None:
        with pytest.raises(ToolFailed, match="another 'kafka-eos doctor' works on") as caught:
            unpack(archive, sys.executable)
        said.append(caught.value.action)
        fill(folder, archive, python)

    monkeypatch.setattr(module, "_fill", meanwhile)
    folder = unpack(archive, sys.executable)
    assert said == ["Wait until it has ended."]
    assert unpacked(archive) == folder


def test_a_folder_that_cannot_be_written_is_told_with_the_way_that_needs_no_change(tmp_path, monkeypatch):
    archive = zipped(archive_of(tmp_path))

    def refuse(**_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ToolFailed, match="Permission denied; nothing was changed") as caught:
        unpack(archive, sys.executable)
    assert "kafka-eos-python" in caught.value.action


def test_only_what_was_unpacked_here_is_put_back(archive, tmp_path):
    with pytest.raises(ToolFailed, match="was not unpacked"):
        pack(archive)
    other = archive.with_name("elsewhere")
    other.mkdir()
    archive.unlink()
    archive.symlink_to(other.name)
    with pytest.raises(ToolFailed, match="was not unpacked"):
        pack(archive)
    assert archive.readlink() == Path(other.name)
