"""Whose a folder may be, and what others may do in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spark_kafka_eos.appending.private_folders import Others, UnsafeFolder, followed, keeps_owners, look, why_unsafe

ME, SOMEBODY = 1_000, 1_001


def facts(mode: int, user: int = ME) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, user, user, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("others", "mode", "user", "said"),
    [
        (Others.NOTHING, 0o700, ME, None),
        (Others.NOTHING, 0o700, 0, None),
        (Others.NOTHING, 0o700, SOMEBODY, "belongs to user 1001 (mode 0700), and this process is user 1000's"),
        (Others.NOTHING, 0o750, 0, "(mode 0750 of user 0). Run: chmod go="),
        (Others.READ, 0o755, ME, None),
        (Others.READ, 0o755, 0, None),
        (Others.READ, 0o755, SOMEBODY, "belongs to user 1001"),
        (Others.READ, 0o775, ME, "lets other users change what is in it (mode 0775 of user 1000). Run: chmod go-w"),
        (Others.READ, 0o1777, 0, "(mode 1777 of user 0). Run: chmod go-w"),
        (Others.ADD, 0o1777, 0, None),
        (Others.ADD, 0o755, ME, None),
        (Others.ADD, 0o777, 0, "(mode 0777 of user 0). Run: chmod +t"),
        (Others.ADD, 0o770, 0, "Run: chmod +t"),
        (Others.ADD, 0o1777, SOMEBODY, "belongs to user 1001"),
    ],
)
def test_a_folder_is_this_users_or_roots_and_others_may_do_no_more_than_they_should(others, mode, user, said):
    found = why_unsafe(facts(mode, user), others, ME)
    assert found is None if said is None else said in str(found)


@pytest.mark.parametrize(
    ("others", "mode", "mended"),
    [(Others.NOTHING, 0o2775, 0o2700), (Others.READ, 0o777, 0o755), (Others.ADD, 0o777, 0o1777)],
)
def test_this_users_own_folder_is_mended(tmp_path, others, mode, mended):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(mode)
    look(tmp_path / "folder", others)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == mended


def test_somebody_elses_folder_is_refused_where_folders_have_owners(tmp_path, give_away):
    (tmp_path / "folder").mkdir()
    give_away(tmp_path / "folder")
    with pytest.raises(UnsafeFolder, match="folder belongs to user"):
        look(tmp_path / "folder", Others.READ)


def test_on_a_file_system_that_keeps_no_modes_nothing_is_judged(tmp_path, give_away):
    """As FUSE, SMB, or NFS that maps users: here a mask of the process stands for it."""
    (tmp_path / "folder").mkdir()
    give_away(tmp_path / "folder")
    assert keeps_owners(tmp_path)
    before = os.umask(0o200)
    try:
        assert not keeps_owners(tmp_path)
        look(tmp_path / "folder", Others.READ)
    finally:
        os.umask(before)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_what_is_not_there_needs_no_look_and_a_file_is_no_folder(tmp_path):
    look(tmp_path / "folder", Others.NOTHING)
    (tmp_path / "folder").write_text("")
    with pytest.raises(NotADirectoryError):
        look(tmp_path / "folder", Others.READ)


def test_a_link_is_refused_and_followed_only_in_the_place_of_a_folder_that_the_user_named(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(UnsafeFolder, match="link is a link"):
        look(tmp_path / "link", Others.ADD)
    assert followed(tmp_path / "link") == tmp_path / "folder"
    assert followed(tmp_path / "none") == tmp_path / "none"


def test_somebody_elses_link_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path / "link", 4_321, 4_321, follow_symlinks=False)
    else:
        monkeypatch.setattr("spark_kafka_eos.appending.private_folders.this_user", lambda: os.geteuid() + 1)
    assert followed(tmp_path / "link") == tmp_path / "link"


def test_roots_link_is_followed_by_everybody(monkeypatch):
    """As /tmp is one on some systems; /proc has one everywhere."""
    monkeypatch.setattr("spark_kafka_eos.appending.private_folders.this_user", lambda: 4_321)
    assert followed(Path("/proc/mounts")) != Path("/proc/mounts")
