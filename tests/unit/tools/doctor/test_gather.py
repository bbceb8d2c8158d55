"""What is read of this machine: real Pythons, programs and folders."""

from __future__ import annotations

import os
import stat
import sys
import venv
from pathlib import Path

import pyspark
import pytest

from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.doctor import gather
from spark_kafka_eos.tools.doctor.facts import Folder, Interpreter, JavaProgram, Remote, Silent, Spark
from spark_kafka_eos.tools.doctor.pythons import CONNECTOR, PYSPARK, REQUIREMENTS, findings
from tests.pages import ROOT

HOME = Path(pyspark.__path__[0])


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def spark(tmp_path) -> Spark:
    """A folder that looks like Spark 4.3.0."""
    home = tmp_path / "spark"
    for file in ("bin/spark-submit", "jars/spark-core_2.13-4.3.0.jar", "python/lib/pyspark.zip"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).touch()
    return Spark(home=home, named_by="SPARK_HOME", version="4.3.0")


# -- Python


def test_a_python_with_everything_says_what_it_imports_with_sparks_archives_before_the_rest_as_spark_starts_it():
    spark = gather.spark_of({})
    assert spark is not None
    kept = {"KAFKA_EOS_PYSPARK": "zip"}
    answer = gather.ask(sys.executable, spark, {**os.environ, **kept, "PYTHONPATH": str(ROOT)})
    assert isinstance(answer, Interpreter)
    assert answer.version == sys.version_info[:3]
    assert {name: module.error for name, module in answer.modules.items() if module.error} == {}
    assert answer.modules[PYSPARK].file == f"{HOME}/python/lib/pyspark.zip/pyspark/__init__.py"
    assert answer.modules[PYSPARK].zipped
    assert not answer.modules[PYSPARK].bytecode
    assert answer.modules[CONNECTOR].file == f"{ROOT}/spark_kafka_eos/__init__.py"
    assert "fsspec" in answer.optional


def test_a_python_of_this_environment_has_its_pyspark_with_bytecode_with_nothing_set():
    answer = gather.ask(sys.executable, gather.spark_of({}), os.environ)
    assert isinstance(answer, Interpreter)
    pyspark = answer.modules[PYSPARK]
    assert (pyspark.file, pyspark.zipped, pyspark.bytecode) == (f"{HOME}/__init__.py", False, True)


def test_a_bare_python_lacks_every_package_and_so_does_not_find_the_format(tmp_path):
    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare" / "bin" / "python")
    spark = gather.spark_of({})
    answer = gather.ask(bare, spark, {"PATH": os.environ["PATH"]})
    assert isinstance(answer, Interpreter)
    assert answer.executable == bare
    assert {name: answer.modules[name].error for name in (*REQUIREMENTS, CONNECTOR)} == dict.fromkeys(
        (*REQUIREMENTS, CONNECTOR), "not installed"
    )
    assert answer.modules[PYSPARK].error == "", "of Spark's ZIP"
    errors = [found for found in findings(bare, answer, cure="") if found.severity is Severity.ERROR]
    assert [found.subject for found in errors] == [f"packages of {bare}"]


def test_bytecode_that_was_not_written_is_noticed_and_a_broken_package_is_not_a_missing_one(tmp_path):
    for name, text in (("numpy", "__version__ = '2.0'\n"), ("pandas", "import numpy.nothing\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    unwritten = gather.ask(sys.executable, None, {**environment, "PYTHONDONTWRITEBYTECODE": "1"})
    written = gather.ask(sys.executable, None, environment)
    assert isinstance(unwritten, Interpreter)
    assert isinstance(written, Interpreter)
    assert (unwritten.modules["numpy"].bytecode, written.modules["numpy"].bytecode) == (False, True)
    assert written.modules["numpy"].version == "2.0"
    assert written.modules["pandas"].error == "ModuleNotFoundError: No module named 'numpy.nothing'"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no such option: -c >&2; exit 2", "is not Python: exit code 2, no such option: -c"),
        ("exit 1", "is not Python: exit code 1"),
        ("echo hello", "is not Python: exit code 0, hello"),
        ("echo '[1]'", "is not Python: exit code 0, [1]"),
    ],
)
def test_a_program_that_does_not_answer_like_python_is_told(tmp_path, script, reason):
    assert gather.ask(program(tmp_path / "jupyter", script), None, dict(os.environ)) == Silent(reason=reason)


def test_a_program_that_is_not_there_or_never_answers_is_told(tmp_path, monkeypatch):
    missing = gather.ask(str(tmp_path / "python"), None, {})
    assert missing == Silent(reason="cannot be started: No such file or directory")
    monkeypatch.setattr(gather, "_SECONDS", 0.05)
    slow = gather.ask(program(tmp_path / "slow", "exec sleep 60"), None, dict(os.environ))
    assert slow == Silent(reason="did not answer within 0.05 s")


# -- Spark and Java


def test_spark_is_that_of_spark_home_else_of_pyspark_else_of_the_path(spark, monkeypatch):
    assert gather.spark_of({"SPARK_HOME": str(spark.home)}) == spark
    installed = gather.spark_of({})
    assert installed == Spark(home=HOME, named_by="the installed PySpark", version=pyspark.__version__)
    monkeypatch.setattr(gather, "find_spec", lambda _: None)
    program(spark.home / "bin" / "spark-submit", "exit 1")
    found = gather.spark_of({"PATH": str(spark.home / "bin")})
    assert found == Spark(home=spark.home, named_by="spark-submit in the PATH", version="4.3.0")
    assert gather.spark_of({"PATH": "/nowhere"}) is None


def test_a_folder_without_sparks_jar_has_no_version(tmp_path):
    assert gather.spark_of({"SPARK_HOME": str(tmp_path)}) == Spark(home=tmp_path, named_by="SPARK_HOME", version="")


def test_the_settings_are_those_of_spark_conf_dir_else_of_spark_home(spark, tmp_path):
    assert gather.settings_of(spark, {}) == {}
    assert gather.settings_of(None, {}) == {}
    (spark.home / "conf").mkdir()
    (spark.home / "conf" / "spark-defaults.conf").write_text("# a comment\nspark.master   spark://m:7077  \n")
    assert gather.settings_of(spark, {}) == {"spark.master": "spark://m:7077"}
    (tmp_path / "spark-defaults.conf").write_text("spark.pyspark.python=/env/bin/python\n")
    assert gather.settings_of(spark, {"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.pyspark.python": "/env/bin/python"}


@pytest.mark.parametrize(
    ("said", "release"), [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_402"', 8)]
)
def test_java_is_that_of_java_home_and_1_8_is_8(tmp_path, said, release):
    java = program(tmp_path / "bin" / "java", f"echo '{said}' >&2")
    assert gather.java_of({"JAVA_HOME": str(tmp_path)}) == JavaProgram(program=java, release=release)
    assert gather.java_of({"PATH": str(tmp_path / "bin")}) == JavaProgram(program="java", release=release)


def test_without_java_or_its_version_that_is_told(tmp_path):
    assert gather.java_of({"JAVA_HOME": "/nowhere"}) == (
        "/nowhere/bin/java cannot be started: No such file or directory"
    )
    java = program(tmp_path / "bin" / "java", "exit 1")
    assert gather.java_of({"JAVA_HOME": str(tmp_path)}) == f"{java} does not tell its version (exit code 1)"


# -- folders


def test_a_folder_is_read_as_it_is_and_one_that_is_not_there_as_the_one_above_it(tmp_path):
    tmp_path.chmod(0o750)
    there = gather.folder_at(str(tmp_path))
    assert isinstance(there, Folder)
    assert (there.exists, there.is_directory, there.usable) == (True, True, True)
    assert (there.owner, stat.S_IMODE(there.mode)) == (tmp_path.owner(), 0o750)
    assert there.space is not None
    absent = gather.folder_at(f"file:{tmp_path}/a/b")
    assert isinstance(absent, Folder)
    assert (absent.path, absent.existing, absent.exists) == (tmp_path / "a" / "b", tmp_path, False)
    assert list(tmp_path.iterdir()) == [], "nothing was created"


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    found = gather.folder_at(str(tmp_path / "file" / "checkpoint"))
    assert isinstance(found, Folder)
    assert (found.existing, found.is_directory) == (tmp_path / "file", False)


def test_a_store_that_no_package_opens_is_told():
    found = gather.folder_at("nonsense://bucket/orders")
    assert isinstance(found, Remote)
    assert "cannot open 'nonsense://bucket/orders'" in found.error


def test_a_store_that_a_package_opens_is_read():
    assert gather.folder_at("memory://orders") == Remote(location="memory://orders")


def test_the_file_system_is_that_of_the_nearest_mount_above_which_was_mounted_last(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda / ext4 rw 0 0\nserver:/a {tmp_path} nfs rw 0 0\nserver:/b {tmp_path} nfs4 rw 0 0\n"
        f"tmpfs {tmp_path}/with\\040space tmpfs rw 0 0\n"
    )
    assert gather._file_system(tmp_path / "deep" / "er", mounts) == "nfs4"
    assert gather._file_system(tmp_path / "with space" / "x", mounts) == "tmpfs"
    assert gather._file_system(Path("/usr"), mounts) == "ext4"
    assert gather._file_system(Path("/usr"), tmp_path / "nothing") == ""
