"""Which entries of PYTHONPATH `kafka-eos-python` leaves out."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kafka_eos_python.archives import without_archives

MODULES = {"pyspark/__init__.py": "", "pyspark/version.py": "__version__ = '4.3.0'\n", "pyspark/daemon.py": "a = 1\n"}


class Home:
    """A folder with Spark's archives, as `SPARK_HOME/python/lib` and `SPARK_HOME/jars` have them."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "spark" / "python"
        lib = self.python / "lib"
        lib.mkdir(parents=True)
        self.zip, self.py4j = str(lib / "pyspark.zip"), str(lib / "py4j-0.10.9.9-src.zip")
        self.jar = str(folder / "spark" / "jars" / "spark-core_2.13-4.3.0.jar")
        with zipfile.ZipFile(self.zip, "w") as archive:
            for name, text in (MODULES | {"pyspark/tests/test_daemon.py": "..."}).items():
                archive.writestr(name, text)
        self.path = [self.zip, self.py4j, self.jar]


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


def installed(folder: Path, modules: dict[str, str] = MODULES, *, py4j: bool = True) -> str:
    """A folder in which PySpark, and py4j, are installed."""
    for name, text in (modules | ({"py4j/__init__.py": ""} if py4j else {})).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


def test_without_the_archives_the_same_pyspark_is_found_where_pip_installed_it(home, tmp_path):
    site = installed(tmp_path / "site-packages")
    assert without_archives([*home.path, "/job"], ["/lib/python3.11", site]) == ["/job"]


def test_archives_that_spark_adds_twice_are_left_out_twice(home, tmp_path):
    site = installed(tmp_path / "site-packages")
    assert without_archives([*home.path, *home.path, "/job", "/job"], [site]) == ["/job"]


def test_a_folder_of_the_path_comes_before_site_packages(home, tmp_path):
    ours, site = installed(tmp_path / "ours"), installed(tmp_path / "site", {"pyspark/__init__.py": "", "x": ""})
    assert without_archives([*home.path, ours], [site]) == [ours]


@pytest.mark.parametrize(
    "other",
    [
        {"pyspark/version.py": "__version__ = '4.3.10'\n"},
        {"pyspark/daemon.py": "a = 1  # patched by a vendor\n"},
    ],
    ids=["release", "module"],
)
def test_archives_stay_where_the_installed_pyspark_is_another(home, tmp_path, other):
    site = installed(tmp_path / "site-packages", MODULES | other)
    assert without_archives(home.path, [site]) == home.path


def test_archives_stay_where_no_pyspark_is_installed(home):
    assert without_archives(home.path, ["/lib/python3.11"]) == home.path


def test_archives_stay_where_a_folder_has_only_a_part_of_pyspark(home, tmp_path):
    site = installed(tmp_path / "site-packages", {"pyspark/__init__.py": ""})
    assert without_archives(home.path, [site]) == home.path


def test_the_folder_beside_the_zip_takes_its_place_in_a_spark_that_pip_did_not_install(home, tmp_path):
    installed(home.python, py4j=False)
    assert without_archives([*home.path, "/job"], []) == [str(home.python), home.py4j, "/job"]
    assert without_archives(home.path, [installed(tmp_path / "site", {}, py4j=True)]) == [str(home.python)]


def test_py4j_stays_in_its_zip_where_it_is_not_installed(home, tmp_path):
    site = installed(tmp_path / "site-packages", py4j=False)
    assert without_archives([*home.path, "/job"], [site]) == [home.py4j, "/job"]


def test_a_path_without_sparks_archives_stays_as_it_is(home, tmp_path):
    site = installed(tmp_path / "site-packages")
    assert without_archives(["/job", "/packages.zip", ""], [site]) == ["/job", "/packages.zip", ""]
    assert without_archives([*home.path, "/node/1/pyspark.zip"], [site]) == [*home.path, "/node/1/pyspark.zip"]


def test_an_unreadable_archive_stays_so_that_python_says_what_is_wrong_with_it(home, tmp_path):
    site = installed(tmp_path / "site-packages")
    Path(home.zip).write_bytes(b"no archive")
    assert without_archives(home.path, [site]) == home.path
    Path(home.zip).unlink()
    assert without_archives(home.path, [site]) == home.path
