"""Kafka's own command line tools, and what they print."""

from __future__ import annotations

import subprocess

from lab.jars import perf_tools_class_path
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.java import java

TOOLS = "org.apache.kafka.tools"
SECONDS = 120


def tool(name: str, *arguments: object, given: str = "") -> str:
    """What one of Kafka's tools prints; `given` is its standard input."""
    return _run(command(name, *arguments), given)


def command(name: str, *arguments: object) -> list[str]:
    return _java(perf_tools_class_path(), f"{TOOLS}.{name}", *arguments)


def admin_tool(name: str, *arguments: object) -> str:
    """What one of the tools prints that are in a broker's own jar, `kafka.admin.<name>`."""
    return _run(_java(perf_tools_class_path(), f"kafka.admin.{name}", *arguments), "")


def kafka_before_1(version: str) -> jars.Bundle:
    """A release of the time of Scala 2.11, with its tools."""
    module = jars.Module(organisation="org.apache.kafka", name="kafka_2.11", revision=version)
    return jars.Bundle(name="kafka", version=version, modules=(module,))


def tool_before_1(version: str, name: str, *arguments: object, given: str = "") -> str:
    """The same for a tool, `kafka.tools.<name>`, of a release before Kafka 1.0."""
    files = jars.files(kafka_before_1(version))
    return _run(_java(":".join(map(str, files)), f"kafka.tools.{name}", *arguments), given)


def _java(class_path: str, *words: object) -> list[str]:
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]  # a tool that lives for seconds is not worth optimising
    return [str(java()), *options, "-cp", class_path, *map(str, words)]


def _run(command: list[str], given: str) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, f"{command}: {done.stderr[-2_000:]}{done.stdout[-2_000:]}"
    return done.stdout


def table(printed: str) -> list[dict[str, str]]:
    """The rows under the heading; the last cells of a row may be empty."""
    heading, *rows = (line.split() for line in printed.splitlines() if line.strip())
    return [dict(zip(heading, row + [""] * (len(heading) - len(row)), strict=True)) for row in rows]
