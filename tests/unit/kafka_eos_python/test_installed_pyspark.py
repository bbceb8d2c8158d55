"""Which PySpark a Python imports that Spark has started, where the wheel's `.pth` file is in site-packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipapp
import zipfile
from pathlib import Path

import pytest

from kafka_eos_python.installed_pyspark import without_own_archives
from tests.pages import ROOT
from tests.wheel import wheel_environment

LINE = (ROOT / "kafka_eos_python" / "spark_kafka_eos.pth").read_text()
STDLIB = str(Path(os.__file__).parent)


class Environment:
    """A site-packages folder with PySpark as pip installs it, and the path that Spark gives to its Pythons."""

    def __init__(self, folder: Path, *, py4j: str = "0.10.9.9") -> None:
        self.site = folder / "site-packages"
        lib, jars = self.site / "pyspark" / "python" / "lib", self.site / "pyspark" / "jars"
        lib.mkdir(parents=True)
        jars.mkdir()
        for module in ("__init__", "daemon"):
            (self.site / "pyspark" / f"{module}.py").touch()
        (self.site / f"py4j-{py4j}.dist-info").mkdir()
        self.zip, self.py4j = lib / "pyspark.zip", lib / "py4j-0.10.9.9-src.zip"
        self.jar = jars / "spark-core_2.13-4.3.0.jar"
        for archive in (self.zip, self.py4j, self.jar):
            with zipfile.ZipFile(archive, "w") as opened:
                opened.writestr("pyspark/__init__.py", "")
        self.archives = [str(self.zip), str(self.py4j), str(self.jar)]

    def path(self, *folders: str) -> list[str]:
        """Spark's archives, a job's own folders, the standard library, and site-packages, as `site` sees them."""
        return [*self.archives, *folders, STDLIB, str(self.site)]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_archives_inside_the_installed_pyspark_are_left_out(environment):
    assert without_own_archives(environment.path("/job")) == ["/job", STDLIB, str(environment.site)]


def test_archives_that_spark_adds_twice_are_left_out_twice(environment):
    path = [*environment.archives, *environment.path()]
    assert without_own_archives(path) == [STDLIB, str(environment.site)]


def test_a_spark_home_that_is_a_link_to_the_installed_pyspark_is_the_same(environment, tmp_path):
    (tmp_path / "spark").symlink_to(environment.site / "pyspark")
    path = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), str(environment.site)]
    assert without_own_archives(path) == [str(environment.site)]


def test_an_environment_that_is_a_link_is_the_same(environment, tmp_path):
    (tmp_path / "current").symlink_to(environment.site)
    path = [*environment.archives, str(tmp_path / "current")]
    assert without_own_archives(path) == [str(tmp_path / "current")]


def test_py4j_of_another_release_stays_in_its_zip(tmp_path):
    environment = Environment(tmp_path, py4j="0.10.9.7")
    assert without_own_archives(environment.path()) == [str(environment.py4j), STDLIB, str(environment.site)]


def test_the_archives_of_a_spark_that_pip_did_not_install_stay(environment, tmp_path):
    """A distribution's folder, and the copy that YARN puts into a container's working folder."""
    for lib in (tmp_path / "opt" / "spark" / "python" / "lib", tmp_path / "container"):
        path = [str(lib / "pyspark.zip"), *environment.path()[1:]]
        assert without_own_archives(path) == path


def test_the_archives_stay_where_the_job_brings_a_pyspark_of_its_own(environment, tmp_path):
    for name in ("folder/pyspark/__init__.py", "file/pyspark.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for folder in ("folder", "file"):
        path = environment.path(str(tmp_path / folder))
        assert without_own_archives(path) == path


def test_the_archives_stay_where_an_archive_of_the_job_follows_that_may_have_a_pyspark_too(environment, tmp_path):
    """To see what is in it takes longer than all of this. One before them is before them all the same."""
    app = tmp_path / "app.pyz"
    zipapp.create_archive(environment.site, app, main="pyspark:daemon")
    path = environment.path(str(app))
    assert without_own_archives(path) == path
    assert without_own_archives([str(app), *environment.path()]) == [str(app), STDLIB, str(environment.site)]


def test_an_environment_in_which_pyspark_is_that_of_the_system_leaves_its_archives_out(environment, tmp_path):
    """`python -m venv --system-site-packages`: the wheel is here, and PySpark there."""
    (tmp_path / "venv" / "site-packages").mkdir(parents=True)
    path = [*environment.archives, STDLIB, str(tmp_path / "venv" / "site-packages"), str(environment.site)]
    assert without_own_archives(path) == path[3:]


def test_a_process_without_archives_such_as_a_connect_client_is_left_alone(environment):
    path = environment.path()[3:]
    assert without_own_archives(path) == path


def test_the_archives_stay_where_python_does_not_find_the_pyspark_around_them(environment):
    path = environment.path()[:-1]
    assert without_own_archives(path) == path


def test_the_archives_of_another_environment_stay(environment, tmp_path):
    """The driver's Spark, and the Python of another environment, which has a PySpark too."""
    other = Environment(tmp_path / "other")
    path = [*other.archives, STDLIB, str(environment.site)]
    assert without_own_archives(path) == path


def test_archives_of_two_sparks_stay(environment, tmp_path):
    path = [str(tmp_path / "pyspark.zip"), *environment.path()]
    assert without_own_archives(path) == path


def test_a_folder_without_the_daemon_is_no_pyspark(environment):
    (environment.site / "pyspark" / "daemon.py").unlink()
    assert without_own_archives(environment.path()) == environment.path()


def seen_path(**variables: str) -> list[str]:
    """`sys.path` of a new Python of this environment, in which this checkout is installed."""
    command = [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"]
    answer = subprocess.run(command, env=os.environ | variables, check=True, capture_output=True, text=True)
    assert answer.stderr == ""  # `site` reports a line that fails, and goes on
    return answer.stdout.splitlines()


def test_a_python_that_spark_starts_leaves_the_archives_out_unless_a_variable_keeps_them():
    import pyspark

    lib = Path(pyspark.__file__).parent / "python" / "lib"
    archives = os.pathsep.join([str(lib / "pyspark.zip"), *map(str, lib.glob("py4j-*"))])
    assert [entry for entry in seen_path(PYTHONPATH=archives) if entry.endswith(".zip")] == [
        entry for entry in seen_path(PYTHONPATH="") if entry.endswith(".zip")
    ]
    assert str(lib / "pyspark.zip") in seen_path(PYTHONPATH=archives, KAFKA_EOS_PYSPARK="zip")


def test_what_pip_installs_leaves_the_archives_out_and_pip_removes_it(tmp_path):
    """The wheel, in an environment of its own, which has PySpark as pip installs it; then the same environment in
    another folder, as venv-pack unpacks it.
    """
    home = tmp_path / "here"
    environment = {name: value for name, value in wheel_environment(home).items() if name != "PYTHONPATH"}
    python = home / "bin" / "python"
    (packages,) = (home / "lib").glob("python*/site-packages")
    lib = packages / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    (packages / "pyspark" / "daemon.py").touch()
    zipped = lib / "pyspark.zip"
    zipped.touch()

    def path(python: Path = python, zipped: Path = zipped) -> str:
        show = [str(python), "-c", "import sys; print(sys.path)"]
        return subprocess.check_output(show, env={**environment, "PYTHONPATH": str(zipped)}, text=True)

    assert str(zipped) not in path()
    there = shutil.copytree(home, tmp_path / "there", symlinks=True)
    moved = there / zipped.relative_to(home)
    assert str(moved) not in path(there / "bin" / "python", moved)
    assert str(zipped) in path(there / "bin" / "python", zipped), "that of another environment"
    uninstall = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        python,
        "uninstall",
        "--yes",
        "spark-kafka-eos",
    ]
    subprocess.run([sys.executable, *uninstall], env=environment, check=True, capture_output=True)
    assert str(zipped) in path()
    assert not list(packages.glob("*kafka_eos*"))


def test_other_pythons_of_the_environment_spend_less_than_a_millisecond_on_it():
    runs = 100
    code = compile(LINE, "spark_kafka_eos.pth", "exec")
    started = time.process_time()
    for _ in range(runs):
        exec(code)
    assert (time.process_time() - started) / runs < 0.001
