"""What is found of checkpoint and staging directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.doctor.facts import Folder, Remote
from spark_kafka_eos.tools.doctor.folders import Kind, findings

FOLDER = Folder(
    path=Path("/data/orders"),
    existing=Path("/data/orders"),
    is_directory=True,
    owner="spark",
    mode=0o040700,
    usable=True,
    file_system="xfs",
    space=Space(free=50 * 10**9, total=100 * 10**9),
)


def found(folder: Folder | Remote, kind: Kind = Kind.CHECKPOINT, *, is_local: bool = True) -> list[Finding]:
    return list(findings(kind, folder, user="me", is_local=is_local))


def test_a_folder_that_can_be_used_is_one_line_with_owner_mode_space_and_file_system():
    (only,) = found(FOLDER)
    assert (only.severity, only.subject) == (Severity.OK, "checkpointLocation /data/orders")
    assert only.found == "can be written (spark's, mode 0700), 50.0 GB of 100.0 GB free, on xfs"


def test_a_folder_that_can_be_created_is_right():
    (only,) = found(replace(FOLDER, existing=Path("/data")), Kind.STAGING)
    assert (only.severity, only.subject) == (Severity.OK, "stagingDir /data/orders")
    assert only.found.startswith("does not exist; can be created in /data, ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"usable": False}, "me cannot read and write /data/orders (spark's, mode 0700)"),
        ({"is_directory": False}, "/data/orders is not a directory"),
    ],
)
def test_without_rights_or_without_a_directory_that_is_the_only_finding(change, said):
    (only,) = found(replace(FOLDER, file_system="tmpfs", **change))
    assert (only.severity, only.found) == (Severity.ERROR, said)


def test_less_space_than_stays_free_for_others_is_an_error_and_an_unknown_space_none():
    space = Space(free=1 << 30, total=100 * 10**9)
    (only,) = found(replace(FOLDER, space=space))
    assert only.severity is Severity.ERROR
    assert "StagingFull" in only.meaning
    (only,) = found(replace(FOLDER, space=replace(space, free=space.reserve + 1_000_000)))
    assert only.severity is Severity.OK
    (only,) = found(replace(FOLDER, space=None))
    assert only.severity is Severity.OK


@pytest.mark.parametrize(("name", "gone"), [("tmpfs", "at the next boot"), ("overlay", "with the container")])
def test_a_checkpoint_that_does_not_last_is_a_warning_and_a_staging_directory_there_is_right(name, gone):
    (only,) = found(replace(FOLDER, file_system=name))
    assert only.severity is Severity.WARNING
    assert gone in only.meaning
    (only,) = found(replace(FOLDER, file_system=name), Kind.STAGING)
    assert only.severity is Severity.OK


@pytest.mark.parametrize(
    ("name", "kind", "severity"),
    [
        ("ext4", Kind.STAGING, Severity.ERROR),
        ("ext4", Kind.CHECKPOINT, Severity.WARNING),
        ("tmpfs", Kind.STAGING, Severity.ERROR),
        ("nfs4", Kind.STAGING, Severity.OK),
        ("fuse.s3fs", Kind.CHECKPOINT, Severity.OK),
        ("", Kind.STAGING, Severity.OK),
    ],
)
def test_on_a_cluster_a_file_system_of_one_machine_is_not_shared(name, kind, severity):
    (only,) = found(replace(FOLDER, file_system=name), kind, is_local=False)
    assert only.severity is severity


@pytest.mark.parametrize(
    ("mode", "severities"), [(0o040777, [Severity.WARNING]), (0o041777, [Severity.OK]), (0o040775, [Severity.OK])]
)
def test_a_folder_that_everybody_can_write_to_is_a_warning_unless_its_files_are_their_owners(mode, severities):
    shown = found(replace(FOLDER, mode=mode))
    assert [each.severity for each in shown] == severities
    if severities == [Severity.WARNING]:
        assert shown[0].action == "Run: chmod o-w /data/orders"


def test_the_mode_of_the_folder_above_is_not_that_of_the_new_one():
    (only,) = found(replace(FOLDER, existing=Path("/data"), mode=0o040777))
    assert only.severity is Severity.OK


def test_a_store_that_python_cannot_open_is_an_error():
    (only,) = found(Remote(location="s3://bucket/orders"))
    assert (only.severity, only.subject) == (Severity.OK, "checkpointLocation s3://bucket/orders")
    (only,) = found(Remote(location="oss://bucket", error="cannot open 'oss://bucket'"))
    assert (only.severity, only.found) == (Severity.ERROR, "cannot be read: cannot open 'oss://bucket'")
