"""Decides from the ledger whether a (re)started batch is written, skipped or refused. Pure.

| the ledger says | the batch | verdict |
|---|---|---|
| nothing | 0 | write: the first batch under this transactional.id |
| nothing, but this or another transactional.id committed the group's offsets | 0 | refuse, unless it starts there |
| nothing, and every batch before called nothing or read nothing (see below) | > 0 | write |
| nothing, or an earlier one, and this run has begun a batch before this one, and not committed it | > 0 | refuse |
| nothing | > 0 | refuse: this checkpoint belongs to another sink, or the ledger was deleted |
| this query, the previous batch, and it ended where this one starts | n | write: the normal case |
| this query, the previous batch, and it ended elsewhere | n | refuse: the checkpoint was changed |
| this query, this batch, same range | n | skip: committed, but the driver died before Spark recorded it |
| this query, this batch, same range, but topics that it wrote were deleted since | n | refuse |
| this query, this batch, another range | n | refuse: this batch was planned again |
| this query, this batch, written by this run | n | repeat: a second call in foreachBatch |
| this query, an earlier batch; those in between called nothing or read nothing | n | write |
| this query, an earlier batch | n | refuse: batches in between were never committed here |
| this query, a later batch | n | refuse: the checkpoint was rewound, or this driver is a zombie |
| this query, any batch, and the operator's `skip-to` | n | skip batches that end before, write the one that starts
there |
| this query, an incomplete batch | any | refuse: some DataFrames were never written, or topics were deleted; and what
else is wrong |
| another query | 0, starting exactly where that one ended | write: continues after a lost checkpoint |
| another query | 0, starting there, of a query with state | refuse: the state is lost, too |
| another query, an incomplete batch | 0, starting there | refuse: no later batch has what it lacks |
| another query | 0, starting there but ending before | refuse: this checkpoint is outdated |
| another query, set in `takeOverQuery` | 0 | write: according to the operator, it starts where that one ended |
| another query | 0, starting elsewhere, or at an unknown offset | refuse |
| another query | > 0 | refuse: two queries share a transactional.id |
| nothing, or another query | 0, of a source that goes by what another sink has committed | refuse |
| nothing | 0, of a source that looked for this transactional.id in another ledger topic | refuse |
| something that is not an entry | any | refuse |

"Starting exactly where that one ended" means: every source is Kafka, no two sources read the same partition, at least
one partition was committed before, each of these starts at its committed offset, and all others are new and start at
offset 0. Partitions are only added at the end of a topic, so the number of a new partition is greater than all
committed ones of its topic. A topic without committed offsets does not count as new: its offsets may have been deleted,
and reading it again would repeat it. The entry contains where a query ended, by cluster. An entry of an earlier release
does not; then the group's offsets are used, if the transactions of this transactional.id committed them.

Our source says by whose commits it goes: `sink.kafka.transactional.id`, or the marks of the group's offsets that it
starts from. What another sink has committed is not in this one's output.

A batch in between "called nothing" if this run has run it, and its function returned without a call of the writer
(`if df.isEmpty(): return`): the run is that of the entry, or Spark still knows that it ran these batches. It "read
nothing" if the batch starts exactly where the entry's ended, or transaction markers and aborted records have all
offsets in between, and the query keeps no state, which could write something without reading.

Each refusal has a name for exactly what was found (`found`), and lists how the operator may resolve it:
`resolve=write:<found>` or `resolve=skip:<found>`. Once the batch is settled, something else is found, so the value
applies only once, even if it stays in the code. Only the `skip` of an incomplete batch holds for what follows it, too,
until the next commit. `skip-to:<entry>` contains only the ledger's entry and applies until
the next commit: a checkpoint restored from an older copy may plan the batches since then again, with other offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_kafka_eos.ledger import batch_refusals, query_refusals
from spark_kafka_eos.ledger.ends import CommittedEnd, CommittedOffsets
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse, name_of
from spark_kafka_eos.ledger.resolve import AND, states
from spark_kafka_eos.ledger.source_mark import is_mark_of
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.source_offset import SinkIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The batch is not committed, and it is the next one: write it. `by_operator`: because an operator's word says so
    (`resolve`, `takeOverQuery`).
    """

    reason: str
    by_operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Exactly this batch is committed: write nothing, and let Spark record it. `by_operator` as in Write."""

    reason: str
    by_operator: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """This very run has committed the batch: a second call for it, whose rows are not in the output."""

    reason: str


Verdict = Write | Skip | Repeat | Refuse


def decide(
    entry: LedgerEntry | UnreadableEntry | None,
    batch: MicroBatch,
    committed: CommittedOffsets | None = None,
    *,
    clusters: Sequence[str] = (),
    own: str = "",
    other_ids: Sequence[str] = (),
    ours: bool = False,
    only_markers: bool = False,
    deleted: Sequence[str] = (),
    sink: SinkIdentity | None = None,
    take_over: str | None = None,
    resolve: str | None = None,
    calls: bool = False,
) -> Verdict:
    """What to do with a micro-batch.

    `committed` are the group's offsets of the batch's partitions on the sink's cluster (None: not requested).
    `other_ids` are the other transactional.ids that committed some of them, `ours` says whether this one did.
    `clusters` has the cluster id of each of the batch's sources (default: all on the sink's `own`). `only_markers`: no
    record lies between the end of the entry and the start of the batch. `deleted` are the topics that the entry's batch
    wrote and that were deleted since. `sink` is the one that decides, without its
    cluster, which is `own` (None: it is not compared with those by which the sources go). `take_over` is the option
    takeOverQuery, `resolve` the operator's resolution of a refusal. `calls`: a user's function calls the writer,
    perhaps not once for each batch.
    """
    ended = CommittedEnd.of(entry, batch, clusters, own, committed)
    taken = taken_by_word(entry, batch, sink and replace(sink, cluster=own), other_ids, resolve)
    if isinstance(taken, Refuse):
        return taken
    verdict = _decide(entry, batch, ended, ours, only_markers, deleted, take_over, resolve, calls)
    if not isinstance(verdict, Refuse):
        return after_words(verdict, taken)
    if not verdict.resolutions:
        return verdict
    fingerprint = verdict.fingerprint or f"{name_of(entry)}/{name_of(batch)}"
    return resolved(replace(verdict, given=taken), fingerprint, resolve)


def taken_by_word(
    entry: LedgerEntry | UnreadableEntry | None,
    batch: MicroBatch,
    sink: SinkIdentity | None,
    other_ids: Sequence[str],
    resolve: str | None,
) -> Refuse | tuple[str, ...]:
    """The refusal of a query's first batch whose source or group is another sink's; else the operator's words that take
    it. The arguments are those of `decide`, with the sink's cluster.
    """
    if isinstance(entry, UnreadableEntry) or (entry is not None and entry.query_id == batch.query_id):
        return ()  # the entry decides
    others = ",".join(other_ids)
    found = (
        (None if sink is None else goes_by_another(entry, batch, sink), ("take-ledger", "take-group")),
        (query_refusals.shared_group(others) if others else None, ("take-group",)),
    )
    words: tuple[str, ...] = ()
    for refusal, kinds in found:
        if refusal is None:
            continue
        taking = [f"{kind}:{refusal.fingerprint}" for kind in kinds if refusal.resolutions]
        stated = [word for word in taking if states(resolve, word)]
        if not stated:
            return replace(refusal, given=words)
        words = tuple(dict.fromkeys((*words, stated[0])))
    return words


def after_words(verdict: Verdict, taken: Sequence[str]) -> Verdict:
    """The verdict, which needed these words of the operator first."""
    if not taken or not isinstance(verdict, Write | Skip):
        return verdict
    return replace(verdict, reason=f"resolve={AND.join(taken)}: {verdict.reason}", by_operator=True)


def goes_by_another(entry: LedgerEntry | None, batch: MicroBatch, sink: SinkIdentity) -> Refuse | None:
    """The refusal of a query's first batch whose source goes by what another sink than `sink` has committed."""
    source_sinks = [identity for source in batch.sources if source is not None for identity in source.sinks]
    if others := sorted(
        {
            identity.transactional_id
            for identity in source_sinks
            if not is_mark_of(identity.transactional_id, sink.transactional_id)
        }
    ):
        return query_refusals.another_sink(sink, ",".join(others))
    for expected in source_sinks:
        if expected.cluster and sink.cluster and expected.cluster != sink.cluster:
            return query_refusals.another_cluster(sink, expected)
        if entry is None and expected.ledger_topic and sink.ledger_topic and expected.ledger_topic != sink.ledger_topic:
            return query_refusals.another_ledger_topic(sink, expected)
    return None


def _decide(
    entry: LedgerEntry | UnreadableEntry | None,
    batch: MicroBatch,
    ended: CommittedEnd,
    ours: bool,
    only_markers: bool,
    deleted: Sequence[str],
    take_over: str | None,
    resolve: str | None,
    calls: bool,
) -> Verdict:
    if isinstance(entry, UnreadableEntry):
        return query_refusals.unreadable(entry)
    if entry is None:
        return without_entry(batch, ended, ours=ours)
    if entry.query_id == batch.query_id:
        return _after_own(entry, batch, ended, only_markers, deleted, resolve, calls)
    if batch.batch_id == 0 and entry.query_id == take_over:
        return taken_over(entry)
    return _foreign_entry(entry, batch, ended)


def _after_own(
    entry: LedgerEntry,
    batch: MicroBatch,
    ended: CommittedEnd,
    only_markers: bool,
    deleted: Sequence[str],
    resolve: str | None,
    calls: bool,
) -> Verdict:
    """The verdict after an entry of the same query. What an incomplete batch lacks is one finding, and where this batch
    starts is another: a word that settles one must not pass over the other.
    """
    skipped = _skipped_incomplete(entry, batch, resolve)
    lacks = entry.incomplete and not skipped
    complete = replace(entry, incomplete=False)
    verdict = _own_entry(
        complete, batch, ended, only_markers=only_markers, deleted=() if lacks else deleted, calls=calls
    )
    in_real_time = entry.buckets is not None and batch.batch_id <= entry.batch_id + 1
    if lacks and (in_real_time or not isinstance(verdict, Refuse)):
        return batch_refusals.incomplete(entry, batch)
    if not isinstance(verdict, Refuse):
        return after_words(verdict, skipped)
    if skipped_to := _skipped_to(entry, ended, resolve):
        return skipped_to
    return batch_refusals.also_incomplete(verdict, entry, batch) if lacks else verdict


def taken_over(entry: LedgerEntry) -> Write:
    """The verdict of takeOverQuery on batch 0 after the entry's query."""
    return Write(reason=f"takeOverQuery: this query starts where {entry.query_id} ended", by_operator=True)


def resolved(refused: Refuse, fingerprint: str, resolve: str | None) -> Verdict:
    """The operator's resolution if it matches exactly this refusal; else the refusal, named as what was found."""
    for resolution in refused.resolutions:
        if states(resolve, f"{resolution}:{fingerprint}"):
            reason = f"resolve={resolve} resolves this refusal: {refused.reason}"
            verdict = Skip if resolution in ("skip", "skip-to") else Write
            return verdict(reason=reason, by_operator=True)
    return replace(refused, fingerprint=fingerprint)


def without_entry(batch: MicroBatch, ended: CommittedEnd, *, ours: bool) -> Verdict:
    """The verdict if the ledger has nothing; `ours` as in `decide`."""
    discontinuity = ended.discontinuity()
    if batch.batch_id == 0 and (not ours or discontinuity is None):
        return Write(reason="the first batch under this transactional.id")
    if batch.batch_id == 0:
        return query_refusals.deleted(batch, discontinuity)
    if batch.failed:
        return batch_refusals.unfinished(batch)
    if not ours and _called_nothing(batch, 0, same_run=False):
        return Write(reason="the first batch under this transactional.id: those before it did not call the writer")
    if not ours and batch.is_first_with_data and batch.stateful is False:
        return Write(reason="the first batch under this transactional.id: those before it read nothing")
    return query_refusals.never_written(batch, discontinuity)


def _own_entry(
    entry: LedgerEntry,
    batch: MicroBatch,
    ended: CommittedEnd,
    *,
    only_markers: bool,
    deleted: Sequence[str],
    calls: bool,
) -> Verdict:
    if entry.buckets is not None:
        return batch_refusals.ran_in_real_time(entry, batch)
    if calls and entry.batch_id == batch.batch_id and entry.run_id is not None and entry.run_id == batch.run_id:
        return Repeat(reason=f"this run has committed batch {batch.batch_id} already")
    if entry.batch_id > batch.batch_id:
        return batch_refusals.rewound(entry, batch, covered=ended.is_committed())
    if entry.batch_id == batch.batch_id:
        return _same_batch(entry, batch, ended, deleted)
    if batch.failed:
        return batch_refusals.unfinished(batch)
    if entry.batch_id == batch.batch_id - 1:
        if differences := ended.mismatch():
            return batch_refusals.moved(entry, batch, differences)
        return Write(reason=f"batch {entry.batch_id} is committed, and this is the next one")
    same_run = entry.run_id is not None and entry.run_id == batch.run_id
    if _called_nothing(batch, entry.batch_id + 1, same_run=same_run):
        since = "those after it did not call the writer"
    elif batch.stateful is False and (only_markers or ended.is_contiguous()):
        since = "those after it read no records"
    else:
        return batch_refusals.gap(entry, batch)
    return Write(reason=f"batch {entry.batch_id} is committed, and {since}")


def _same_batch(entry: LedgerEntry, batch: MicroBatch, ended: CommittedEnd, deleted: Sequence[str]) -> Verdict:
    if entry.digest != batch.digest:
        return batch_refusals.planned_again(entry, batch, covered=ended.is_committed())
    if deleted:
        return batch_refusals.without_topics(entry, deleted)
    return Skip(reason=f"batch {batch.batch_id} with exactly these offsets is already committed")


def _called_nothing(batch: MicroBatch, first: int, *, same_run: bool) -> bool:
    """Whether it is known that the function made no call for any batch from `first` on to the one before this."""
    ran = same_run or (batch.first_batch_of_run is not None and batch.first_batch_of_run <= first)
    return ran and batch.first_batch_without_call is not None and batch.first_batch_without_call <= first


def _skipped_incomplete(entry: LedgerEntry, batch: MicroBatch, resolve: str | None) -> tuple[str, ...]:
    """The word with which the operator had the entry's batch, which is incomplete, skipped: the batches after it are
    decided on as after any other.
    """
    word = f"skip:{name_of(entry)}/{name_of(entry)}"
    return (word,) if entry.incomplete and batch.batch_id > entry.batch_id and states(resolve, word) else ()


def _skipped_to(entry: LedgerEntry, ended: CommittedEnd, resolve: str | None) -> Verdict | None:
    """The verdict of the operator's `skip-to` on a refused batch, whatever its number; None if it does not apply."""
    if not states(resolve, f"skip-to:{name_of(entry)}") or entry.incomplete:
        return None
    if ended.is_committed():
        return Skip(reason=f"resolve={resolve}: everything that this batch reads is committed", by_operator=True)
    if ended.continues():
        reason = f"resolve={resolve}: this batch starts where that one ended, so it is the next one"
        return Write(reason=reason, by_operator=True)
    return None


def _foreign_entry(entry: LedgerEntry, batch: MicroBatch, ended: CommittedEnd) -> Verdict:
    if batch.batch_id > 0:
        return query_refusals.shared_id(entry, batch)
    if unknown := ended.unknown():
        return query_refusals.unknown_start(entry, batch, unknown)
    if discontinuity := ended.discontinuity():
        return query_refusals.elsewhere(entry, batch, discontinuity)
    if regressions := list(ended.regressions()):
        return query_refusals.outdated(entry, batch, regressions)
    if batch.stateful:
        return query_refusals.state_lost(entry, batch)
    if entry.incomplete:
        return query_refusals.incomplete(entry, batch)
    last = f"the last commit under this transactional.id is batch {entry.batch_id} of query {entry.query_id}"
    return Write(reason=f"{last}; this query starts exactly where it ended")
