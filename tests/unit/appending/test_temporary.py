"""Staging of a batch write without stagingDir: private, shared with whoever sees it, inline elsewhere, swept by age."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.staging import INLINE_BYTES, KEPT_SECONDS
from spark_kafka_eos.appending.temporary import CARRIED_BYTES, PREFIX, TemporaryStaging, is_private
from spark_kafka_eos.errors import ConfigurationError, StagingLost
from spark_kafka_eos.kafka.partitions import TopicPartition

NOW = time.time()


@pytest.fixture
def root(tmp_path):
    """A temporary directory, which everybody may write to."""
    root = tmp_path / "tmp"
    root.mkdir()
    root.chmod(0o1777)
    return root


@pytest.fixture
def staging(root):
    """As a task gets it."""
    return pickle.loads(pickle.dumps(TemporaryStaging(NOW, str(root))))


def directory(staging):
    return Path(staging.directory)


def blocks(*sizes):
    return [
        Block(partition=TopicPartition("t", 0), task=0, number=n, records=1, data=bytearray([n]) * size)
        for n, size in enumerate(sizes)
    ]


def contents(staging, report):
    return [bytes(data) for _, data in staging.read([report])]


LARGE = blocks(5, INLINE_BYTES, 7)


def elsewhere(staging):
    """What the staging is on a machine with a disk of its own."""
    shutil.rmtree(staging.directory)
    return staging


def test_no_other_user_may_enter_the_directory_or_read_a_file(staging, root):
    previous = os.umask(0)
    try:
        report = staging.stage("run", 0, LARGE)
    finally:
        os.umask(previous)
    modes = {path.relative_to(root).parts[1:]: path.stat().st_mode & 0o777 for path in root.rglob("*")}
    assert modes == {(): 0o700, ("run",): 0o700, ("run", report.path.partition("/")[2]): 0o600}
    assert contents(staging, report) == [bytes(block.data) for block in LARGE]


def test_the_commit_removes_everything(staging, root):
    staging.stage("run", 0, LARGE)
    staging.clean("run")
    staging.clean_old(NOW)
    assert list(root.iterdir()) == []


def test_two_writes_at_once_do_not_meet(root):
    one, other = TemporaryStaging(NOW, str(root)), TemporaryStaging(NOW, str(root))
    report = one.stage("run", 0, LARGE)
    other.stage("run", 0, LARGE)
    other.clean("run")
    assert contents(one, report) == [bytes(block.data) for block in LARGE]


def test_where_the_directory_is_not_blocks_travel_inline_and_nothing_is_written(staging, root):
    report = elsewhere(staging).stage("run", 0, LARGE)
    assert report.path is None
    assert list(root.iterdir()) == []
    assert contents(staging, report) == [bytes(block.data) for block in LARGE]


def test_what_is_too_much_to_travel_is_refused_with_two_ways_out(staging, root):
    why = "encode task 3 has more than 16 MiB of .*Nothing was committed. Set the option stagingDir .* or repartition"
    with pytest.raises(StagingLost, match=why):
        elsewhere(staging).stage("run", 3, blocks(CARRIED_BYTES, 1))
    assert list(root.iterdir()) == []


def planted(staging, root, how):
    """Somebody else puts something in the directory's place."""
    theirs = root / "theirs"
    theirs.mkdir(mode=0o700)
    elsewhere(staging)
    match how:
        case "link":
            directory(staging).symlink_to(theirs)
        case "open":
            directory(staging).mkdir()
            directory(staging).chmod(0o777)
        case "file":
            directory(staging).write_text("")
    return theirs


@pytest.mark.parametrize("how", ["link", "open", "file"])
def test_a_directory_that_somebody_else_made_is_neither_written_read_nor_removed(staging, root, how):
    report = staging.stage("run", 0, LARGE)
    theirs = planted(staging, root, how)
    assert staging.stage("run", 1, LARGE).path is None
    with pytest.raises(StagingLost, match="was removed or replaced"):
        contents(staging, report)
    staging.clean("run")
    assert directory(staging).lstat()
    assert list(theirs.iterdir()) == []


def test_a_directory_of_another_user_is_not_private(staging):
    assert is_private(staging.directory, os.geteuid())
    assert not is_private(staging.directory, os.geteuid() + 1)


def test_a_killed_runs_directory_goes_a_week_after_its_last_file_and_nothing_else_does(root, caplog):
    killed, running, quiet = (
        TemporaryStaging(NOW, str(root)),
        TemporaryStaging(NOW, str(root)),
        root / f"{PREFIX}somebodys",
    )
    for staging in (killed, running):
        staging.stage("run", 0, LARGE)
    quiet.mkdir(mode=0o755)
    old = NOW - KEPT_SECONDS - 60
    [written] = (path for path in directory(running).rglob("*") if path.is_file())
    for path in [quiet, *directory(killed).rglob("*"), directory(killed), directory(running)]:
        os.utime(path, (old, old))
    os.utime(written, (NOW, NOW))
    other = TemporaryStaging(NOW, str(root))
    assert {path.name for path in root.iterdir()} == {
        directory(running).name, directory(other).name, quiet.name
    }  # fmt: skip


def test_without_a_temporary_directory_the_option_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="stagingDir"):
        TemporaryStaging(NOW, str(tmp_path / "none"))


def test_the_default_is_the_temporary_directory_of_the_process():
    staging = TemporaryStaging(NOW)
    try:
        assert directory(staging).parent == Path(tempfile.gettempdir())
    finally:
        staging.clean("run")
    assert not directory(staging).exists()
