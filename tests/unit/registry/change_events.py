"""Change events of a table, written by Debezium's and Kafka Connect's own classes in a JVM."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lab.jars import debezium
from spark_kafka_eos.testing.jars import files
from spark_kafka_eos.testing.java import java

SOURCE = Path(__file__).with_name("ChangeEvents.java")
Texts = Mapping[str, str | None]  # by column


@dataclass(frozen=True)
class ChangeEvent:
    """A record of JsonConverter, and its value in Avro; `before` and `after` have the row's values as Java writes them.
    A tombstone has no value.
    """

    key: bytes
    json: bytes | None
    avro: bytes | None
    schema: str | None  # Avro's
    op: str | None
    ts_ms: int | None
    before: Texts | None
    after: Texts | None


def change_events(seed: int, count: int, decimals: Literal["BASE64", "NUMERIC"] = "BASE64") -> list[ChangeEvent]:
    command: list[str | Path] = [java(), "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, files(debezium())))]
    run = subprocess.run(
        [*command, SOURCE, str(seed), str(count), decimals], check=True, capture_output=True, text=True
    )
    return [_event(json.loads(line)) for line in run.stdout.splitlines()]


def _event(line: Mapping[str, Any]) -> ChangeEvent:
    key, value, avro = (
        None if line.get(name) is None else bytes.fromhex(line[name]) for name in ("key", "json", "avro")
    )
    assert key is not None
    return ChangeEvent(
        key, value, avro, line.get("schema"), line.get("op"), line.get("ts_ms"), line["before"], line["after"]
    )
