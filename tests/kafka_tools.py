"""Kafka's own command line tools, and what they print."""

from __future__ import annotations

import subprocess

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.java import java

TOOLS = "org.apache.kafka.tools"
SECONDS = 120


def tool(name: str, *arguments: object) -> str:
    """What one of Kafka's tools prints."""
    done = subprocess.run(command(name, *arguments), capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, f"{name}: {done.stderr[-2_000:]}{done.stdout[-2_000:]}"
    return done.stdout


def command(name: str, *arguments: object) -> list[str]:
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]  # a tool that lives for seconds is not worth optimising
    return [str(java()), *options, "-cp", jars.perf_tools_class_path(), f"{TOOLS}.{name}", *map(str, arguments)]


def table(printed: str) -> list[dict[str, str]]:
    """The rows under the heading; the last cells of a row may be empty."""
    heading, *rows = (line.split() for line in printed.splitlines() if line.strip())
    return [dict(zip(heading, row + [""] * (len(heading) - len(row)), strict=True)) for row in rows]
