"""What the ledger says of a transactional.id: the last batch that was committed under it, as values. Pure.

`ledger.entry_format` has how it is written.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_eos.kafka.partitions import Offsets
from spark_kafka_eos.kafka.producer import NOBODY, ProducerEpoch
from spark_kafka_eos.source_offset import Origin

MOST_EARLIER_RUNS = 8  # that an entry names: as many takeovers may happen while a driver is paused


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """The committed `offsets` of one source of a query, on the cluster with this id.

    `origin` says which records they mean, None if unknown. `start` is where the batch began, None if unknown: together
    they let a query that keeps state be computed again exactly as far as it was committed.
    """

    cluster: str
    offsets: Offsets
    origin: Origin | None = None
    start: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What a batch wrote: `records` of the output and the `bytes` of their record batches; none if all were filtered.

    `milliseconds` is the wall time of the steps begin, encode and append; the others end after the entry is sent.
    `dead_letters` are among the records. `lost` are those that were lost with topics that were deleted during the
    commit, by topic. `topic_ids` are those of the topics that have records, as Appended has them;
    the entry keeps them as its outputs.
    """

    records: int
    bytes: int
    milliseconds: int
    dead_letters: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The last micro-batch committed under a transactional.id.

    `serial` numbers the commits under that id across queries, so the entry with the higher number is the later one; it
    is 0 in old entries, which had no number. `run_id` is the run of the query, or of the job, that wrote it, and
    `earlier_runs` are the last ones that committed before it, newest first. `outputs` are the topics that the batch
    wrote, with their ids, None if they are unknown. `sources` has each source's progress in Spark's order, None for a
    source that is not Kafka; it is None if the entry does not contain it. `writes` has the versions of batch writes
    that are known to be written to each destination, as `ledger.versions` gives them. `incomplete`: some of what the
    batch should have written is not in the output. `table` is the version of the table that took part
    (`participants`), None if none did. `transaction_version` is the protocol of its transaction: it says which epoch
    the commit left. `written` is for people and decides nothing.

    What an older release did not record is None, or empty. `buckets` is the number of buckets of a run in real time
    (`real_time`), which commit without an entry: `sources` then are where they began, and `ledger.bucket_record` says
    where they are. They commit to `group`, too. `starts` has the serial of the entry that has started each of them; it
    is empty if this one has started all. `left` are partitions that were read in real time and not since, and where
    they ended; None if there are none.
    """

    query_id: str
    batch_id: int
    digest: str
    serial: int = 0
    run_id: str | None = None
    earlier_runs: tuple[str, ...] = ()
    outputs: Mapping[str, uuid.UUID | None] = field(default_factory=dict)
    sources: tuple[SourceProgress | None, ...] | None = None
    writes: Mapping[str, str] | None = None
    incomplete: bool = False
    table: int | None = None
    transaction_version: int | None = None
    written: BatchCounts | None = None
    buckets: int | None = None
    group: str | None = None
    starts: tuple[int, ...] = ()
    left: SourceProgress | None = None

    @property
    def ends(self) -> tuple[SourceProgress | None, ...] | None:
        """Where each source was read to, None if the entry does not say it."""
        return self.sources if self.buckets is None else None

    @property
    def begun(self) -> SourceProgress | None:
        """The partitions that were begun in real time, and where their buckets began last, or where these have ended of
        topics that are no longer read. After micro-batches, only the latter.
        """
        if self.buckets is None:
            return self.left
        return next((source for source in self.sources or () if source is not None), None)

    def started_by(self, bucket: int) -> int:
        """The serial of the entry that has started this bucket, or that says where all that it had has ended."""
        if self.buckets is not None and self.sources is None:
            return 0  # this is a pointer, which does not say it
        return self.starts[bucket] if bucket < len(self.starts) else self.serial


def runs_before(entry: LedgerEntry | None, run_id: str | None) -> tuple[str, ...]:
    """The `earlier_runs` of the next entry, if this run commits it after `entry`."""
    if entry is None:
        return ()
    runs = (entry.run_id, *entry.earlier_runs)
    return tuple(run for run in runs if run is not None and run != run_id)[:MOST_EARLIER_RUNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedLedger:
    """What a place holds that the ledger has left: as of commit `serial`, the entry is in `topic`."""

    serial: int
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEntry:
    """Ledger content that is not an entry: `description` is for people, `digest` identifies it exactly. `serial` and
    `buckets` are the highest that anything there says, also what has another key or is of a later release; 0 if nothing
    says it. A commit after it, by the operator's word, gets a higher serial than that.
    """

    description: str
    digest: str
    serial: int = 0
    buckets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEntry:
    """The last committed entry, and the `producer` of its transaction. `pending`: the ledger has a later record whose
    transaction has not ended. `agreed`: record and pointer have the same entry.
    """

    entry: LedgerEntry | UnreadableEntry | None
    agreed: bool = False
    pending: bool = False
    producer: ProducerEpoch = NOBODY


def digest(batch_range: object) -> str:
    """A short hash of a batch's range, which is any JSON value. Equal values have equal digests, whatever the key
    order.

    Parse JSON text first, or its formatting counts, too. With 64 bits, it protects from accidents, not from attackers.
    """
    canonical = json.dumps(batch_range, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def unreadable(content: str, serial: int, buckets: int = 0) -> UnreadableEntry:
    """What to make of `content`, which is not an entry, if the highest serial found is `serial`, and the highest number
    of buckets is `buckets`.
    """
    excerpt = content if len(content) <= 600 else f"{content[:600]}…"
    return UnreadableEntry(description=excerpt, digest=digest(content), serial=serial, buckets=buckets)
