"""What the progress listener reports of a micro-batch: frozen values and their log line. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.observe.lag import OpenTransaction, behind, kafka_offsets
from spark_kafka_eos.observe.tallies import RangeTally
from spark_kafka_eos.source_offset import SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    """One Kafka source of a query.

    `rows` and `offsets` are those of the batch; `offsets` is None if Spark does not report the start, as for a query's
    first batch or a new partition. `behind` is how far each partition's end is behind the latest offset at the trigger,
    in no particular order. `lso_lag` is each partition's current LSO lag, None if the brokers did not answer. `held_by`
    are the transactions that have held an LSO for some time. `bytes_read` and `rows_aborted` are reported by the tasks,
    None if no task did; `complete` says whether they cover all `offsets`.
    """

    topics: tuple[str, ...] = ()
    rows: int = 0
    offsets: int | None = None
    behind: tuple[int, ...] = ()
    lso_lag: Mapping[TopicPartition, int] | None = None
    held_by: tuple[OpenTransaction, ...] = ()
    bytes_read: int | None = None
    rows_aborted: int | None = None
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """A micro-batch of a query and its Kafka sources; `batch_id` is None if the query is idle."""

    query_id: str
    run_id: str
    name: str | None = None
    batch_id: int | None = None
    sources: tuple[SourceFigures, ...] = field(default=())

    @property
    def held(self) -> bool:
        """Whether an open transaction holds back records from the query."""
        return any(source.held_by for source in self.sources)

    def __str__(self) -> str:
        """One line of JSON, as conf/log-lines.schema.json describes it; omits LSO lags of 0."""
        return json.dumps(
            {
                "query_id": self.query_id,
                "run_id": self.run_id,
                "name": self.name,
                "batch_id": self.batch_id,
                "sources": [_source_fields(source) for source in self.sources],
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """A Kafka source in Spark's progress. `start` lacks new partitions, so it is empty in a first batch. `cluster` is
    the id of the cluster that its offsets are from, "" if they do not say it, as those of the built-in source.
    """

    rows: int
    start: Offsets
    end: Offsets
    latest: Offsets
    cluster: str = ""


def kafka_sources(progress: Mapping[str, Any]) -> list[SourceRead]:
    """The sources of a streaming query's progress that have offsets like Kafka's, in order."""
    sources = []
    for source in progress["sources"]:
        end = kafka_offsets(source.get("endOffset"))
        if end:
            sources.append(
                SourceRead(
                    rows=int(source.get("numInputRows") or 0),
                    start=kafka_offsets(source.get("startOffset")) or {},
                    end=end,
                    latest=kafka_offsets(source.get("latestOffset")) or {},
                    cluster=_cluster(source["endOffset"]),
                )
            )
    return sources


def _cluster(end: str | Mapping[str, object]) -> str:
    source_offset = SourceOffset.of(json.loads(end) if isinstance(end, str) else end)
    return "" if source_offset is None or source_offset.origin is None else source_offset.origin.cluster


def figures(
    read: SourceRead,
    log_ends: Mapping[TopicPartition, LogEnds] | None,
    held_by: Sequence[OpenTransaction],
    tallies: Collection[RangeTally],
) -> SourceFigures:
    """One source's figures, from those of all sources of the query; a range that was read twice counts once."""
    mine = {(t.partition, t.start): t for t in tallies if t.partition in read.end}.values()
    has_starts = read.start.keys() >= read.end.keys()
    offsets = sum(max(0, end - read.start[tp]) for tp, end in read.end.items()) if has_starts else None
    return SourceFigures(
        topics=tuple(sorted({tp.topic for tp in read.end})),
        rows=read.rows,
        offsets=offsets,
        behind=tuple(behind(read.end, read.latest)),
        lso_lag=None if log_ends is None else {tp: log_ends[tp].lag for tp in read.end if tp in log_ends},
        held_by=tuple(transaction for transaction in held_by if transaction.partition in read.end),
        bytes_read=sum(t.bytes for t in mine) if mine else None,
        rows_aborted=sum(t.aborted for t in mine) if mine else None,
        complete=sum(t.end - t.start for t in mine) == offsets,
    )


def _source_fields(source: SourceFigures) -> dict[str, object]:
    many = source.behind
    return {
        "topics": source.topics,
        "rows": source.rows,
        "offsets": source.offsets,
        "min_offsets_behind_latest": min(many) if many else None,
        "max_offsets_behind_latest": max(many) if many else None,
        "avg_offsets_behind_latest": sum(many) / len(many) if many else None,
        "lso_lag": None if source.lso_lag is None else {str(tp): lag for tp, lag in source.lso_lag.items() if lag},
        "held_by": [
            {
                "partition": str(transaction.partition),
                "start_offset": transaction.start_offset,
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "epoch": transaction.epoch,
                "state": transaction.state,
                "open_ms": transaction.open_ms,
            }
            for transaction in source.held_by
        ],
        "bytes_read": source.bytes_read,
        "rows_aborted": source.rows_aborted,
        "complete": source.complete,
    }
