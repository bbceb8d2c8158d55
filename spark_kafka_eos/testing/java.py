"""Finds the Java that runs Spark, Ivy and the embedded broker, as Spark does, and checks its version once."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from spark_kafka_eos.errors import ToolFailed

MINIMUM = 17  # Spark 4 and Kafka 4 brokers both need it
_ACTION = f"Install Java {MINIMUM} or later, or set JAVA_HOME to it."


def locate(environment: Mapping[str, str]) -> Path:
    """`$JAVA_HOME/bin/java`, else `java` on the PATH, as in Spark's own scripts. Raises ToolFailed."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else environment.get("PATH", ""))
    if java is None:
        raise ToolFailed(f"no java in {home}/bin (JAVA_HOME)" if home else "no java on the PATH", action=_ACTION)
    return Path(java)


def major_version(output: str) -> int | None:
    """The feature release in the output of `java -version` (`1.8.0_402` is 8), None if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


@functools.cache
def java() -> Path:
    """The checked executable. Raises ToolFailed if it is missing, does not run or is older than 17."""
    executable = locate(os.environ)
    answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    version = major_version(answer.stderr + answer.stdout)
    if answer.returncode or version is None:
        raise ToolFailed(f"{executable} -version failed: {answer.stderr.strip()}", action=_ACTION)
    if version < MINIMUM:
        raise ToolFailed(f"{executable} is Java {version}", action=_ACTION)
    return executable
