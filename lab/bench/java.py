"""Runs Kafka's own perf tools, with the Java client of their release, not of the embedded broker's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from lab.jars import perf_tools_class_path
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.testing.java import java

_TIMEOUT_SECONDS = 600
_SUMMARY = re.compile(
    r"^(?P<records>\d+)(?: steady state)? records sent, (?P<rate>[\d.]+) records/sec \((?P<mb>[\d.]+) MB/sec\), "
    r"(?P<mean>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, "
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """ProducerPerformance's last line, which does not count the warm-up; latencies in milliseconds from send() to
    acknowledgement.
    """

    records: int
    rate: float
    mean: float
    p50: int
    p95: int
    p99: int

    @property
    def seconds(self) -> float:
        return self.records / self.rate


def produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    value_bytes: int,
    settings: Mapping[str, object],
    transactional_id: str | None = None,
    transaction_ms: int = 600_000,
    warm_up: int = 0,
) -> Produced:
    """Run org.apache.kafka.tools.ProducerPerformance at full speed; with a transactional id, in transactions of
    `transaction_ms`. The first `warm_up` of the records are not measured.
    """
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", records, "--throughput", -1]
    arguments += ["--record-size", value_bytes, "--warmup-records", warm_up]
    if transactional_id is not None:
        arguments += ["--transactional-id", transactional_id, "--transaction-duration-ms", transaction_ms]
        settings = {"transaction.timeout.ms": 900_000} | dict(settings)
    arguments += ["--command-property", *(f"{name}={value}" for name, value in settings.items())]
    return produced(_run("ProducerPerformance", arguments))


def consume(bootstrap: str, topic: str, records: int, *, isolation_level: IsolationLevel = "read_committed") -> float:
    """Run org.apache.kafka.tools.ConsumerPerformance; return the seconds of its fetches, without joining its group."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", records, "--hide-header"]
    arguments += ["--command-property", f"isolation.level={isolation_level}"]
    return fetch_seconds(_run("ConsumerPerformance", arguments), records)


def produced(output: str) -> Produced:
    """Parse ProducerPerformance's summary. Raises ToolFailed if there is none."""
    summaries = list(_SUMMARY.finditer(output))
    if not summaries:
        raise ToolFailed("ProducerPerformance printed no summary", action=output[-2_000:])
    last = summaries[-1]
    return Produced(
        records=int(last["records"]),
        rate=float(last["rate"]),
        mean=float(last["mean"]),
        p50=int(last["p50"]),
        p95=int(last["p95"]),
        p99=int(last["p99"]),
    )


def fetch_seconds(output: str, records: int) -> float:
    """`fetch.time.ms` in ConsumerPerformance's output, in seconds. Raises ToolFailed for fewer than `records`."""
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and fields[4].isdigit():
            if int(fields[4]) < records:
                raise ToolFailed(f"ConsumerPerformance read {fields[4]} of {records:,} records")
            return int(fields[7]) / 1e3
    raise ToolFailed("ConsumerPerformance printed no result", action=output[-2_000:])


def _run(tool: str, arguments: list[object]) -> str:
    class_path = perf_tools_class_path()
    command = [str(java()), "-Xmx512m", "-cp", class_path, f"org.apache.kafka.tools.{tool}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
    if done.returncode:
        raise ToolFailed(f"{tool} exited with code {done.returncode}", action=(done.stderr + done.stdout)[-2_000:])
    return done.stdout
