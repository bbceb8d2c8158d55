"""Reads the facts of this machine. Starts each Python once, and Java; changes nothing."""

from __future__ import annotations

import getpass
import inspect
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from spark_kafka_eos.appending.files import LocalFiles, files_at
from spark_kafka_eos.errors import KafkaEosError, ToolFailed
from spark_kafka_eos.options.properties import entries
from spark_kafka_eos.tools.doctor import self_report
from spark_kafka_eos.tools.doctor.facts import Folder, Interpreter, JavaProgram, Remote, Silent, Spark, interpreter
from spark_kafka_eos.tools.doctor.pythons import EXTRAS, MODULES

_SECONDS = 120  # for imports on a slow or busy machine
_RELEASE = re.compile(r'version "(?:1\.)?(\d+)')


def questions() -> tuple[dict[str, str], list[str]]:
    """What `self_report.report` is asked."""
    return MODULES, list(EXTRAS.values())


def ask(python: str, spark: Spark | None, environment: Mapping[str, str]) -> Interpreter | Silent:
    """What a Python says of itself when it is started as Spark does it, with Spark's own archives first in its path."""
    path = [*archives(spark), *filter(None, [environment.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [python, "-c", inspect.getsource(self_report), json.dumps(questions())],
            env={**environment, "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except OSError as error:
        return Silent(reason=f"cannot be started: {error.strerror or error}")
    except subprocess.TimeoutExpired:
        return Silent(reason=f"did not answer within {_SECONDS} s")
    try:
        return interpreter(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, KeyError, TypeError, ValueError):
        output = (done.stderr or done.stdout).strip().splitlines()
        return Silent(reason=f"is not Python: exit code {done.returncode}{f', {output[-1]}' if output else ''}")


def spark_of(environment: Mapping[str, str]) -> Spark | None:
    """The Spark that `spark-submit` or a program here would use."""
    if home := environment.get("SPARK_HOME"):
        return _spark(Path(home), "SPARK_HOME")
    package = find_spec("pyspark")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent
        if (folder / "bin" / "spark-submit").is_file():
            return _spark(folder, "the installed PySpark")
    if submit := shutil.which("spark-submit", path=environment.get("PATH")):
        return _spark(Path(submit).resolve().parents[1], "spark-submit in the PATH")
    return None


def _spark(home: Path, named_by: str) -> Spark:
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    version = jars[0].stem.partition("-")[2].rpartition("-")[2] if jars else ""
    return Spark(home=home, named_by=named_by, version=version)


def archives(spark: Spark | None) -> Sequence[str]:
    """What Spark puts first in the path of each Python process."""
    if spark is None:
        return ()
    lib = spark.home / "python" / "lib"
    files = [*lib.glob("pyspark.zip"), *lib.glob("py4j-*-src.zip"), *(spark.home / "jars").glob("spark-core_*.jar")]
    return [str(file) for file in files]


def settings_of(spark: Spark | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in spark-defaults.conf."""
    if named := environment.get("SPARK_CONF_DIR"):
        folder = Path(named)
    elif spark is not None:
        folder = spark.home / "conf"
    else:
        return {}
    file = folder / "spark-defaults.conf"
    try:
        return {name: value.strip() for name, value in entries(file).items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ToolFailed(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ToolFailed(f"cannot read {file}: {error}") from error


def installed_pyspark() -> str | None:
    """The version of the PySpark that pip installed for this Python."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


def java_of(environment: Mapping[str, str]) -> JavaProgram | str:
    """The Java that Spark would start, or why there is none."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run(
            [program, "-version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be started: {getattr(error, 'strerror', None) or error}"
    if match := _RELEASE.search(done.stderr):
        return JavaProgram(program=program, release=int(match[1]))
    return f"{program} does not tell its version (exit code {done.returncode})"


def user() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def folder_at(location: str) -> Folder | Remote:
    """A folder of a query, as this user finds it."""
    try:
        files = files_at(location, "checkpointLocation")
        if not isinstance(files, LocalFiles):
            files.directories()
            return Remote(location=location)
    except Exception as error:  # noqa: BLE001 - each file system has its own errors
        what = error.what if isinstance(error, KafkaEosError) else f"{type(error).__name__}: {error}"
        return Remote(location=location, error=what)
    path = files.root.absolute()
    existing = next(ancestor for ancestor in (path, *path.parents) if os.path.lexists(ancestor))
    try:
        status = existing.stat()
    except OSError as error:
        return Remote(location=location, error=error.strerror or str(error))
    return Folder(
        path=path,
        existing=existing,
        is_directory=existing.is_dir(),
        owner=_owner(existing),
        mode=status.st_mode,
        usable=os.access(existing, os.R_OK | os.W_OK | os.X_OK),
        file_system=_file_system(existing, Path("/proc/mounts")),
        space=files.space(),
    )


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)


def _file_system(path: Path, mounts: Path) -> str:
    """The type of the file system that holds `path`; empty where there is no table of mounts."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    types = {}
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        types[point.encode().decode("unicode_escape")] = kind  # a space is \040; what is mounted last counts
    resolved = path.resolve()
    return next((types[str(ancestor)] for ancestor in (resolved, *resolved.parents) if str(ancestor) in types), "")
