"""kfake, franz-go's brokers for tests, written in Go (`tests/kfake`): clusters of three, with their data in memory.

Without Go, of the release that its go.mod names or later, or without its modules the tests that use it are skipped;
CI's verdict says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.pages import ROOT

GO = shutil.which("go")
SOURCES = ROOT / "tests/kfake"


@dataclass(frozen=True)
class Kfake:
    """A running cluster."""

    bootstrap: str

    def create_topic(self, name: str, partitions: int = 1) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (created,) = admin.create_topics([NewTopic(name, partitions)]).values()
        created.result(30)
        return name


def build(folder: Path) -> Path:
    """The program, built in `folder`."""
    if GO is None:  # tests install all else that they need, and what holds on kfake is proven on Apache Kafka too
        pytest.skip("Go, which builds kfake, is not installed")
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}

    def go(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [GO, *arguments]
        return subprocess.run(
            command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False, timeout=280
        )

    if (fetched := go("mod", "download")).returncode:  # too old for go.mod, or no registry
        pytest.skip(f"Go cannot get kfake's modules: {fetched.stderr.strip()[-200:]}")
    built = folder / "kfake"
    made = go("build", "-o", built, ".")
    assert made.returncode == 0, made.stderr
    return built


@contextmanager
def running(program: Path, release: str) -> Iterator[Kfake]:
    """A cluster that offers the requests of `release`, or the newest ones."""
    with subprocess.Popen([program, release], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Kfake(process.stdout.readline().strip())
        finally:
            process.kill()
