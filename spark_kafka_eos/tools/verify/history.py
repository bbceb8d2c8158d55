"""What drivers planned and did, by batch: the history that a check compares with the topic.

A file of JSON lines, one per event, in the order of events:

    {"batch": 3, "verdict": "committed", "query": "9f3…", "start": {"in": {"0": 20}}, "end": {"in": {"0": 30}},
     "producer_id": 4711, "epoch": 7, "time_ms": 1700000000000}

A line is written at once, so a killed driver leaves no partial line. Only `batch` and `verdict` are required.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from spark_kafka_eos.kafka.partitions import Offsets, offsets_from_json, offsets_to_json

DriverEvent = Literal["planned", "committed", "skipped", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One event of a driver. The range covers all sources; `producer_id` and `epoch` are -1 if unknown.

    `query_id` matters if a query continues where another one ended, because batch ids then restart.
    `skipped`: the ledger showed that the batch was already committed; `aborted`: one attempt at it was aborted.
    """

    batch_id: int
    event: DriverEvent  # `verdict` in the file
    start: Offsets | None = None
    end: Offsets | None = None
    producer_id: int = -1
    epoch: int = -1
    time_ms: int = -1
    query_id: str = ""


def to_line(entry: HistoryEntry) -> str:
    """The entry as a line of the file, including the line end."""
    fields: dict[str, Any] = {"batch": entry.batch_id, "verdict": entry.event}
    if entry.query_id:
        fields["query"] = entry.query_id
    for name in ("start", "end"):
        if (offsets := getattr(entry, name)) is not None:
            fields[name] = offsets_to_json(offsets)
    fields |= {name: getattr(entry, name) for name in ("producer_id", "epoch", "time_ms") if getattr(entry, name) != -1}
    return json.dumps(fields, separators=(",", ":")) + "\n"


def from_lines(lines: Iterable[str]) -> Iterator[HistoryEntry]:
    """The entries of a file. Raises ValueError with the number of an invalid line."""
    for number, line in enumerate(lines, 1):
        try:
            yield _entry(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of the history is not valid ({error}): {line.strip()[:200]!r}") from None


def _entry(fields: Mapping[str, Any]) -> HistoryEntry:
    if fields["verdict"] not in get_args(DriverEvent):
        raise ValueError(f"unknown verdict {fields['verdict']!r}")
    start, end = (offsets_from_json(fields[name]) if name in fields else None for name in ("start", "end"))
    producer_id, epoch, time_ms = (int(fields.get(name, -1)) for name in ("producer_id", "epoch", "time_ms"))
    return HistoryEntry(
        batch_id=int(fields["batch"]),
        event=fields["verdict"],
        start=start,
        end=end,
        producer_id=producer_id,
        epoch=epoch,
        time_ms=time_ms,
        query_id=str(fields.get("query", "")),
    )


def committed(entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """The committed batches in order; a start that is missing is the end of the previous batch."""
    batches: list[HistoryEntry] = []
    for entry in entries:
        if entry.event == "committed":
            start = batches[-1].end if entry.start is None and batches and follows(batches[-1], entry) else entry.start
            batches.append(replace(entry, start=start))
    return batches


def follows(before: HistoryEntry, entry: HistoryEntry) -> bool:
    """Whether `entry` is the batch after `before`: of the same query, or the first one of its successor."""
    return entry.batch_id == (before.batch_id + 1 if entry.query_id == before.query_id else 0)
