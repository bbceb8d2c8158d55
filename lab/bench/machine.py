"""Describes the machine and the versions of a benchmark run."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import pyspark

import spark_kafka_eos
from lab.jars import PERF_TOOLS_VERSION, built_in_connector
from spark_kafka_eos.testing import jars

_PACKAGES = ("pyspark", "pyarrow", "numpy", "confluent-kafka", "kafka-python", "google-crc32c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Cores, memory, the load average over one minute at the start, and the versions of the software involved."""

    cpu: str
    cores: int
    memory_gb: float
    load: float
    system: str
    versions: Mapping[str, str]

    def running(self, kafka: str | None) -> Machine:
        """This machine with that release of the brokers, or several, instead of the default."""
        return self if kafka is None else replace(self, versions={**self.versions, "Kafka": kafka})

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"{self.cores} cores of {self.cpu}, {self.memory_gb:.0f} GB, {self.system}, load {self.load:.2f} at the "
            f"start; {parts}"
        )


def machine() -> Machine:
    """This machine, now."""
    return Machine(
        cpu=cpu_model(_read("/proc/cpuinfo")) or platform.processor() or platform.machine(),
        cores=len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count() or 1,
        memory_gb=psutil.virtual_memory().total / 1e9,
        load=os.getloadavg()[0],
        system=f"{platform.system()} {platform.release()}",
        versions={
            "spark-kafka-eos": spark_kafka_eos.__version__,
            "Kafka": jars.DEFAULT_VERSION,
            "kafka-tools": PERF_TOOLS_VERSION,
            "spark-sql-kafka": built_in_connector(pyspark.__version__).version,
            "Python": platform.python_version(),
            **{name: installed for name in _PACKAGES if (installed := _version(name))},
        },
    )


def cpu_model(cpuinfo: str) -> str:
    """The CPU model in the text of Linux's /proc/cpuinfo, "" if there is none."""
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == "model name":
            return value.strip()
    return ""


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
