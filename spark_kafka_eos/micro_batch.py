"""A micro-batch and the offsets that it reads: frozen, picklable values that driver and executors exchange. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_eos.kafka.partitions import Offsets, lowest
from spark_kafka_eos.source_offset import Origin, SinkIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """The offsets `[start, end)` that a micro-batch reads from one Kafka source; `start` is None if unknown.

    `start_origin` and `origin`, of the end, say which records they mean; None if the source does not say it, as the
    built-in one. They differ if a topic was created again, or a leader elected, in between. `sinks` are those by
    whose commits our source goes in a query's first batch.
    """

    start: Offsets | None
    end: Offsets
    start_origin: Origin | None = None
    origin: Origin | None = None
    sinks: tuple[SinkIdentity, ...] = ()


READS_NOTHING = SourceRange(start={}, end={})


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What a transaction writes: one micro-batch of one query, or one batch write.

    `query_id` is the streaming query's id (stable across restarts) or `txnAppId`. `digest` is a hash of the batch's
    range in the checkpoint, so that a replay with other offsets is noticed.

    `sources` has the range of each source, in the checkpoint's order (with offset log v2: by name), None for a source
    that is not Kafka. A batch write has one, without partitions.

    `stateful`: the query keeps state in its checkpoint; None unless it was looked up, for a first batch, and where
    batches before this one did not call the writer. `run_id` is that of the run of the query or job that writes it;
    None if unknown. This run has run every batch from `first_batch_of_run` on, and made no call of the writer in those
    from `first_batch_without_call` on; None if unknown. `failed` are the batches before this one that this run has
    begun to write and not committed. `is_first_with_data`: the batches before it read nothing. `destination` names the
    output topics of a batch write. `buckets` is the number of buckets of a batch in real time (`real_time`), whose
    tasks commit by themselves; its sources then end where the buckets that it starts are read on. None for any other.
    `started` are the numbers of these, None for all.
    """

    query_id: str
    batch_id: int
    digest: str
    sources: tuple[SourceRange | None, ...] = (READS_NOTHING,)
    stateful: bool | None = None
    run_id: str | None = None
    first_batch_of_run: int | None = None
    first_batch_without_call: int | None = None
    failed: tuple[int, ...] = ()
    is_first_with_data: bool = False
    destination: str = ""
    buckets: int | None = None
    started: tuple[int, ...] | None = None

    @property
    def start(self) -> Offsets | None:
        """Where the Kafka sources begin whose start is known, `lowest` of them; None if that of none is."""
        starts = [source.start for source in self.sources if source is not None and source.start is not None]
        return lowest(starts) if starts else None

    @property
    def end(self) -> Offsets:
        """Where the Kafka sources end, `lowest` of them."""
        return lowest(source.end for source in self.sources if source is not None)
