"""Reads what the check of a soak needs: topics with librdkafka's consumer, plans from the checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from lab.soak.check import Copied, Figures, SourceRecord
from lab.soak.queries import ABORTED, SOURCE, STATEFUL, output
from spark_kafka_eos.appending.files import files_at
from spark_kafka_eos.ledger.progress import cluster_id, committed_by
from spark_kafka_eos.options import ClientOptions, source_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.spark.checkpoint import micro_batch
from spark_kafka_eos.testing.driver import batch_in_flight, committed_batches
from spark_kafka_eos.testing.read_offsets import ends, group_offsets
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.tools.verify.history import HistoryEntry
from spark_kafka_eos.tools.verify.provenance_bytes import SIZE, unpack

_AT_ONCE = 10_000  # records: one at a time would take ten times as long


def client(bootstrap: str) -> ClientOptions:
    """Options for this package's own clients of a cluster."""
    return source_options(
        {"kafka.bootstrap.servers": bootstrap, "kafka.request.timeout.ms": 10_000, "subscribe": SOURCE}
    ).client


def source_records(bootstrap: str) -> list[SourceRecord]:
    """The source's records as a read_committed consumer sees them."""
    return [
        SourceRecord(m.partition() or 0, m.offset() or 0, _text(m.key()), int(_text(m.value()).removeprefix(ABORTED)))
        for m in read_topic(bootstrap, SOURCE, "read_committed")
    ]


def copies(bootstrap: str, query: str, places: Mapping[tuple[int, int], int]) -> Iterator[tuple[int, Copied]]:
    """The output of a query that copies: each row, preceded by its batch's place in the plan, -1 if the batch is not in
    the plan. `places` is by checkpoint and batch id. A value without provenance has partition -1.
    """
    messages = read_topic(bootstrap, output(query), "read_committed")
    while some := list(islice(messages, _AT_ONCE)):
        values = [bytes(message.value() or b"") for message in some]
        origins = unpack(pa.array(values, pa.binary())).tolist()
        for message, value, (magic, partition, offset, batch, checkpoint) in zip(some, values, origins, strict=True):
            key, payload = _text(message.key()), value[SIZE:].decode()
            if magic:
                yield places.get((checkpoint, batch), -1), Copied(partition, offset, key, payload)
            else:
                yield -1, Copied(-1, -1, key, payload)


def figures(bootstrap: str) -> Iterator[tuple[int, Figures]]:
    """The output of the stateful query: batch and row."""
    for message in read_topic(bootstrap, output(STATEFUL), "read_committed"):
        yield _figures(message)


def history(checkpoint: Path) -> list[HistoryEntry]:
    """The micro-batches from batch 0 on, with the offsets that they read: "committed" if Spark recorded them as done,
    "planned" for the batch in flight.
    """
    read = files_at(str(checkpoint), "checkpointLocation").read_text
    done, in_flight = committed_batches(checkpoint), batch_in_flight(checkpoint)
    entries = []
    for number in [*range(done), *([] if in_flight is None else [in_flight])]:
        batch = micro_batch(read, number)
        entry = HistoryEntry(
            batch_id=number,
            event="committed" if number < done else "planned",
            start=batch.start,
            end=batch.end,
            query_id=batch.query_id,
        )
        entries.append(entry)
    return entries


def progress(query: str, source: str, sink: str) -> dict[int, int]:
    """The source offsets that a query has committed, by partition: from its group, or from its ledger if source and
    sink are on two clusters.
    """
    if source == sink:
        return group_offsets(sink, query, SOURCE)
    ledger = SinkLedger(client=client(sink), transactional_id=query, topic=LEDGER_TOPIC)
    origin = cluster_id({"kafka.bootstrap.servers": source})
    return {tp.partition: offset for tp, offset in committed_by(ledger, origin).items()}


def hanging(bootstrap: str, topics: Sequence[str]) -> int:
    """The number of partitions whose last stable offset is not the high watermark, in `topics`, the ledger topic and
    the groups' offsets.
    """
    count = 0
    for topic in (*topics, LEDGER_TOPIC, "__consumer_offsets"):
        stable, end = (ends(bootstrap, topic, level) for level in ("read_committed", "read_uncommitted"))
        count += sum(stable[partition] != end[partition] for partition in end)
    return count


def _figures(message: Message) -> tuple[int, Figures]:
    value = json.loads(message.value() or b"{}")
    return value["batch"], Figures(_text(message.key()), value["records"], value["total"], value["aborted"])


def _text(data: str | bytes | None) -> str:
    return bytes(data or b"").decode() if not isinstance(data, str) else data
