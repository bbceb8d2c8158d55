"""PySpark is imported from site-packages, where it has bytecode, not from the ZIP of the same release inside it.

Spark puts `pyspark.zip`, py4j's ZIP and its own JAR before everything else in the path of each Python process that it
starts (`PythonUtils.sparkPythonPath`). The ZIP has no bytecode, so that each of about seven processes before a query's
first batch compiles PySpark, for half a second to a second and a half.

The wheel has `spark_kafka_eos.pth`, which pip puts into site-packages. Python's `site` module runs its line at each
start: it looks for a `pyspark.zip` in the path, and calls this only if there is one. So this runs before any import of
PySpark, and may not take long: until it has found the installed PySpark, it imports nothing that Python has not
imported already, and opens no file. So it looks at places alone, where `archives`, which `kafka-eos-python` has time
for, compares what is in the ZIP.
"""

# To import pathlib takes longer than all of this.
# ruff: noqa: PTH110, PTH112, PTH113, PTH118, PTH119, PTH120

from __future__ import annotations

import os
import sys

VARIABLE = "KAFKA_EOS_PYSPARK"  # `zip`: the path stays as Spark makes it
_ZIP = os.path.join("pyspark", "python", "lib", "pyspark.zip")


def leave_archives_out() -> None:
    """Take Spark's archives out of `sys.path` if they are parts of the PySpark that Python then finds. Then have this
    process forked, if its driver has a server; that does not return.
    """
    if os.environ.get(VARIABLE) == "zip":
        return
    path = without_own_archives(sys.path)
    if path != sys.path:
        sys.path[:] = path
        from kafka_eos_python import plain

        plain.fork()


def without_own_archives(path: list[str]) -> list[str]:
    """`path` without Spark's archives, if they lie inside an installed PySpark, and Python then imports that one. Else
    `path` as it is: with a Spark that pip did not install, with two of them, with another PySpark before it, and where
    another archive may have one.

    pip installs the ZIP as a part of PySpark, so both have the same release. py4j is a package of its own, and its ZIP
    has the release in its name.
    """
    zips = [entry for entry in path if os.path.basename(entry) == "pyspark.zip"]
    site = _site_packages(zips[0]) if len(set(zips)) == 1 else None
    if site is None:
        return path
    rest = [entry for entry in path if not _is_part(entry, site)]
    own = os.path.dirname(os.path.realpath(zips[0]))
    # Archives in which nobody has looked.
    others = [
        entry
        for entry in path[path.index(zips[0]) :]
        if os.path.isfile(entry) and entry in rest and os.path.dirname(os.path.realpath(entry)) != own
    ]
    return rest if not others and _first_with_pyspark(rest) == site else path


def _site_packages(archive: str) -> str | None:
    """The folder in which the PySpark is installed that the ZIP is a part of; None if there is no such one."""
    real = os.path.realpath(archive)
    site = real.removesuffix(os.sep + _ZIP)
    daemon = os.path.join(site, "pyspark", "daemon.py")
    return site if site != real and os.path.isfile(daemon) else None


def _is_part(entry: str, site: str) -> bool:
    """Whether an entry of the path is an archive of the PySpark in `site`, whose modules are installed there too."""
    folder, name = os.path.split(os.path.realpath(entry))
    pyspark = os.path.join(site, "pyspark")
    if folder == os.path.join(pyspark, "jars"):
        return name.startswith("spark-core_")  # it has no module; each import looks through its list of files
    if folder != os.path.join(pyspark, "python", "lib"):
        return False
    release = name.removeprefix("py4j-").removesuffix("-src.zip")
    return name == "pyspark.zip" or os.path.isdir(os.path.join(site, f"py4j-{release}.dist-info"))


def _first_with_pyspark(path: list[str]) -> str | None:
    """The first folder of the path in which Python finds a `pyspark`, resolved; None if there is none."""
    for entry in path:
        if any(os.path.exists(os.path.join(entry, name)) for name in ("pyspark", "pyspark.py")):
            return os.path.realpath(entry)
    return None
