"""Which Java is taken, and how its age is read from what it prints."""

from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.java import locate, major_version


def executable(folder: Path) -> Path:
    folder.mkdir(parents=True)
    file = folder / "java"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_feature_release_is_read_from_any_vendors_answer(output, version):
    assert major_version(output) == version


def test_java_home_comes_before_the_path(tmp_path):
    chosen, other = executable(tmp_path / "home" / "bin"), executable(tmp_path / "path")
    assert locate({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}) == chosen
    assert locate({"PATH": str(other.parent)}) == other


def test_a_java_home_without_java_is_an_error_although_the_path_has_one(tmp_path):
    other = executable(tmp_path / "path")
    with pytest.raises(ToolFailed, match="JAVA_HOME"):
        locate({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(other.parent)})


def test_no_java_at_all_says_what_to_install(tmp_path):
    with pytest.raises(ToolFailed, match="Install Java 17 or later"):
        locate({"PATH": str(tmp_path)})
