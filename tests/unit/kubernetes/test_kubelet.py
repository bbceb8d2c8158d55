"""What a container gets is what its pod says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.kubernetes.containers import inside
from tests.kubernetes.kubelet import expanded, field, own_by


def test_names_in_commands_have_their_values_and_names_without_a_value_stay():
    assert expanded("a=$(A) b=$(B) $A", {"A": "1"}) == "a=1 b=$(B) $A"


def test_a_field_of_the_pod_is_found_by_its_path():
    pod = {"metadata": {"name": "a"}, "status": {"podIP": "127.0.0.2"}}
    assert (field(pod, "metadata.name"), field(pod, "status.podIP")) == ("a", "127.0.0.2")


def test_the_group_of_the_pod_may_read_and_write_its_volumes_and_owns_what_will_be_there(tmp_path: Path):
    (tmp_path / "folder").mkdir(mode=0o700)
    file = tmp_path / "folder" / "file"
    file.touch(mode=0o600)
    own_by(tmp_path, os.getgid())
    assert stat.S_IMODE(file.stat().st_mode) == 0o660
    assert (tmp_path / "folder").stat().st_mode & 0o2070 == 0o2070


@pytest.mark.parametrize(
    ("target", "found"),
    [("/var/run/token", "run/token"), ("/bin/sh", "usr/bin/sh"), ("/etc/../tmp", "tmp"), ("/new/folder", "new/folder")],
)
def test_a_path_of_a_container_follows_the_links_of_its_root_and_never_leads_out_of_it(tmp_path: Path, target, found):
    for folder in ("run", "usr/bin", "etc", "tmp", "var"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var" / "run").symlink_to("/run")
    (tmp_path / "bin").symlink_to("usr/bin")
    assert inside(tmp_path, target) == Path(found)
