"""What the check of a soak works on: topics as librdkafka's consumer shows them, plans as the checkpoints have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from spark_kafka_eos.lab.soak.check import Copied, Figures, Plan, SourceRecord
from spark_kafka_eos.lab.soak.queries import ABORTED, SOURCE, STATEFUL, STATELESS, output
from spark_kafka_eos.testing.driver import committed_batches
from spark_kafka_eos.testing.read_offsets import ends
from spark_kafka_eos.testing.read_topic import read_topic
from spark_kafka_eos.verify.history import HistoryEntry
from spark_kafka_eos.verify.provenance_bytes import SIZE, unpack
from spark_kafka_eos.writing.checkpoint import micro_batch
from spark_kafka_eos.writing.files import files_at


def source_records(bootstrap: str) -> list[SourceRecord]:
    """All that a read_committed consumer sees of the source."""
    return [
        SourceRecord(m.partition() or 0, m.offset() or 0, _text(m.key()), int(_text(m.value()).removeprefix(ABORTED)))
        for m in read_topic(bootstrap, SOURCE, "read_committed")
    ]


def copies(bootstrap: str) -> Iterator[tuple[int, Copied]]:
    """The stateless output: batch and row. A value without provenance comes from nowhere, partition -1."""
    for message in read_topic(bootstrap, output(STATELESS), "read_committed"):
        value = bytes(message.value() or b"")
        origin = unpack(pa.array([value], pa.binary()))[0]
        partition, offset = (int(origin[name]) if origin["magic"] else -1 for name in ("partition", "offset"))
        yield int(origin["batch"]), Copied(partition, offset, _text(message.key()), value[SIZE:].decode())


def figures(bootstrap: str) -> Iterator[tuple[int, Figures]]:
    """The stateful output: batch and row."""
    for message in read_topic(bootstrap, output(STATEFUL), "read_committed"):
        yield _figures(message)


def history(checkpoint: Path) -> list[HistoryEntry]:
    """The micro-batches that Spark has noted as done, with what they were to read, from batch 0 on."""
    read = files_at(str(checkpoint), "checkpointLocation").read_text
    found = []
    for number in range(committed_batches(checkpoint)):
        batch = micro_batch(read, number)
        start = dict.fromkeys(batch.end, 0) if number == 0 else batch.start  # the first one reads from the beginning
        entry = HistoryEntry(batch_id=number, verdict="committed", start=start, end=batch.end)
        found.append(replace(entry, query_id=batch.query_id))
    return found


def plan(entries: list[HistoryEntry]) -> Plan:
    """Where each batch ends in the source."""
    return [{tp.partition: offset for tp, offset in (entry.end or {}).items()} for entry in entries]


def hanging(bootstrap: str) -> int:
    """Partitions of source, outputs and the groups' offsets whose last stable offset is not the high watermark."""
    count = 0
    for topic in (SOURCE, output(STATELESS), output(STATEFUL), "__consumer_offsets"):
        stable, end = (ends(bootstrap, topic, level) for level in ("read_committed", "read_uncommitted"))
        count += sum(stable[partition] != end[partition] for partition in end)
    return count


def _figures(message: Message) -> tuple[int, Figures]:
    value = json.loads(message.value() or b"{}")
    return value["batch"], Figures(_text(message.key()), value["records"], value["total"], value["aborted"])


def _text(data: str | bytes | None) -> str:
    return bytes(data or b"").decode() if not isinstance(data, str) else data
