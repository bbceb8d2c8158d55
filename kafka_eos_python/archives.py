"""A PYTHONPATH without PySpark's archives, if Python then finds the same PySpark.

Spark puts `pyspark.zip`, py4j's ZIP and its own JAR before everything else in the `PYTHONPATH` of each Python process
(`PythonUtils.sparkPythonPath`). The ZIP has no bytecode, so each process compiles PySpark once more, and reads the
directories of all three several times: about a second of CPU.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

_ARCHIVES = re.compile(r"pyspark\.zip|py4j-[^/]*-src\.zip|spark-core_[^/]*\.jar")


def without_archives(path: Sequence[str], installed: Sequence[str]) -> list[str]:
    """`path` (PYTHONPATH) without Spark's archives, if Python then finds the same PySpark in a folder: of the rest of
    `path`, or of `installed` (site-packages). Else, or if there is no such archive, `path` as it is.

    A Spark that pip did not install has PySpark's folder beside the ZIP: this takes the ZIP's place. Spark adds its
    archives to the driver's own path, which has them already, so each may be there twice.
    """
    once = list(dict.fromkeys(path))
    zips = [entry for entry in once if Path(entry).name == "pyspark.zip"]
    if len(zips) != 1:
        return list(path)
    rest = [entry for entry in once if not _ARCHIVES.fullmatch(Path(entry).name)]
    py4j = [] if _folder_with("py4j", [*rest, *installed]) else [entry for entry in once if "py4j" in Path(entry).name]
    if (folder := _folder_with("pyspark", [*rest, *installed])) and _is_same(zips[0], folder):
        return [*py4j, *rest]
    if (own := _folder_with("pyspark", [str(Path(zips[0]).parents[1])])) and _is_same(zips[0], own):
        return [own, *py4j, *rest]
    return list(path)


def _folder_with(package: str, folders: Sequence[str]) -> str | None:
    """The first of the folders that has the package: where Python finds it."""
    return next((folder for folder in folders if Path(folder, package, "__init__.py").is_file()), None)


def _is_same(archive: str, folder: str) -> bool:
    """Whether PySpark in `folder` is the archive's: all modules that both have are of the same size, and the version
    is among them. (pip installs PySpark without its tests.)
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            sizes = {entry.filename: entry.file_size for entry in opened.infolist() if entry.filename.endswith(".py")}
    except (OSError, zipfile.BadZipFile):
        return False  # Python will say what is wrong with it
    both = [name for name in sizes if Path(folder, name).is_file()]
    return "pyspark/version.py" in both and all(Path(folder, name).stat().st_size == sizes[name] for name in both)
