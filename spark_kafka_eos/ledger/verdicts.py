"""Decides from the ledger whether a (re)started batch is written, skipped or refused. A pure function.

| the ledger says | the batch | verdict |
|---|---|---|
| nothing | 0 | write: the first batch under this transactional.id |
| nothing, but this or another transactional.id committed the group's offsets | 0 | refuse, unless it starts there |
| nothing | > 0 | refuse: this checkpoint belongs to another sink, or the ledger was deleted |
| this query, the previous batch, and it ended where this one starts | n | write: the normal case |
| this query, the previous batch, and it ended elsewhere | n | refuse: the checkpoint was changed |
| this query, this batch, same range | n | skip: committed, but the driver died before Spark recorded it |
| this query, this batch, another range | n | refuse: this batch was planned again |
| this query, an earlier batch | n | refuse: batches in between were never committed here |
| this query, a later batch | n | refuse: the checkpoint was rewound, or this driver is a zombie |
| this query, any batch, and the operator's `skip-to` | n | skip batches that end before, write the one that starts
there |
| this query, an incomplete batch | any | refuse: some DataFrames were never written |
| another query | 0, starting exactly where that one ended | write: continues after a lost checkpoint |
| another query | 0, starting there, of a query with state | refuse: the state is lost, too |
| another query | 0, starting there but ending before | refuse: this checkpoint is outdated |
| another query, set in `takeOverQuery` | 0 | write: according to the operator, it starts where that one ended |
| another query | 0, starting elsewhere, or at an unknown offset | refuse |
| another query | > 0 | refuse: two queries share a transactional.id |
| something that is not an entry | any | refuse |

"Starting exactly where that one ended" means: every source is Kafka, no two sources read the same partition, at least
one partition was committed before, each of these starts at its committed offset, and all others are new and start at
offset 0. Partitions are only added at the end of a topic, so the number of a new partition is greater than all
committed ones of its topic. A topic without committed offsets does not count as new: its offsets may have been deleted,
and reading it again would repeat it. The entry contains where a query ended, by cluster. An entry of an earlier release
does not; then the group's offsets are used, if the transactions of this transactional.id committed them.

Each refusal has a name for exactly what was found (`found`), and lists how the operator may resolve it:
`resolve=write:<found>` or `resolve=skip:<found>`. Once the batch is settled, something else is found, so the value
applies only once, even if it stays in the code. `skip-to:<entry>` contains only the ledger's entry and applies until
the next commit: a checkpoint restored from an older copy may plan the batches since then again, with other offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from spark_kafka_eos.core.listing import some
from spark_kafka_eos.ledger.ends import CommittedEnd, CommittedOffsets
from spark_kafka_eos.ledger.entry import LedgerEntry, Unreadable
from spark_kafka_eos.model import MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The batch is not committed, and it is the next one: write it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Exactly this batch is committed: write nothing, and let Spark record it."""

    reason: str


Way = Literal["write", "skip", "skip-to", "take-group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Going on could lose or repeat data: what was found (`reason`), what it means for the data, how to resolve it.

    `found` identifies it exactly; the operator may resolve it in one of `ways`.
    """

    reason: str
    meaning: str
    action: str
    found: str = ""
    ways: tuple[Way, ...] = ()

    @property
    def choices(self) -> dict[str, str]:
        """The values of the option `resolve` for this refusal, each with what it does and when it is correct."""
        return {f"{way}:{self.found}": _MEANS[way] for way in self.ways}

    @property
    def remedy(self) -> str:
        """`action`, and the choices."""
        if not self.ways:
            return self.action
        words = "; ".join(f"resolve='{word}' {effect}" for word, effect in self.choices.items())
        return (
            f"{self.action} To keep this checkpoint and its state, choose what you know to be correct with the sink's "
            f"option `resolve`: {words}."
        ).lstrip()


Verdict = Write | Skip | Refuse

_RESUME = (
    "start the query with a new checkpointLocation, and set startingOffsets=committed and this sink's "
    "sink.kafka.transactional.id on its kafka-eos source (on another cluster, also sink.kafka.bootstrap.servers): it "
    "then starts exactly where the last committed transaction ended (a query with state loses it with the checkpoint, "
    "and is refused once more because of that)"
)
_OWN_ID = "set a different `kafka.transactional.id` for each query"
_TAKEN_OVER = (
    "If the query ran with another sink until now, for example the built-in one, and was stopped cleanly, this batch "
    "has not run yet, and `write` is correct."
)
_MEANS: Mapping[Way, str] = {
    "write": "writes this batch; correct if none of it is in the output (otherwise, those records are repeated)",
    "skip": "treats this batch as written; correct if all of it is in the output (otherwise, missing records are lost)",
    "skip-to": "treats every batch that reads only committed offsets as written, and continues after these offsets "
    "(with a watermark, only correct if batches have the same limits as before, such as maxOffsetsPerTrigger: "
    "otherwise they close other windows, and some windows are repeated or lost)",
    "take-group": "uses that group anyway; correct if the other sink is gone for good",
}


def decide(
    entry: LedgerEntry | Unreadable | None,
    batch: MicroBatch,
    committed: CommittedOffsets | None = None,
    *,
    clusters: Sequence[str] = (),
    own: str = "",
    strangers: Sequence[str] = (),
    ours: bool = False,
    take_over: str | None = None,
    resolve: str | None = None,
) -> Verdict:
    """What to do with a micro-batch.

    `committed` are the group's offsets of the batch's partitions on the sink's cluster (None: not requested).
    `strangers` are the other transactional.ids that committed some of them, `ours` says whether this one did.
    `clusters` has the cluster id of each of the batch's sources (default: all on the sink's `own`). `take_over` is the
    option takeOverQuery, `resolve` the operator's resolution of a refusal.
    """
    ended = CommittedEnd.of(entry, batch, clusters, own, committed)
    verdict = _decide(entry, batch, ended, strangers, ours, take_over, resolve)
    if not isinstance(verdict, Refuse) or not verdict.ways:
        return verdict
    return _resolved(verdict, verdict.found or f"{_name(entry)}/{_name(batch)}", resolve)


def decide_batch_write(
    entry: LedgerEntry | Unreadable | None, write: MicroBatch, *, resolve: str | None = None
) -> Verdict:
    """What to do with a batch write with `txnAppId` (query id) and `txnVersion` (batch id), by Delta's rule.

    A version that is not greater than the last committed one is skipped. Versions need not be consecutive.
    """
    verdict = _decide_batch_write(entry, write)
    return _resolved(verdict, f"{_name(entry)}/{_name(write)}", resolve) if isinstance(verdict, Refuse) else verdict


def _decide_batch_write(entry: LedgerEntry | Unreadable | None, write: MicroBatch) -> Verdict:
    if entry is None:
        return Write(reason="nothing has been committed under this transactional.id")
    if isinstance(entry, Unreadable):
        return _unreadable(entry)
    if entry.query_id != write.query_id:
        return Refuse(
            reason=f"the last write under this transactional.id was version {entry.batch_id} of {entry.query_id!r}, "
            f"but this one has txnAppId {write.query_id!r}",
            meaning="The ledger only records the last write, so it is unknown whether this one was committed before",
            action="Set a different `kafka.transactional.id` for each txnAppId.",
            ways=("write", "skip"),
        )
    if write.batch_id <= entry.batch_id:
        return Skip(reason=f"txnVersion {write.batch_id} is not greater than the committed version {entry.batch_id}")
    return Write(reason=f"txnVersion {write.batch_id} follows the committed version {entry.batch_id}")


def _decide(
    entry: LedgerEntry | Unreadable | None,
    batch: MicroBatch,
    ended: CommittedEnd,
    strangers: Sequence[str],
    ours: bool,
    take_over: str | None,
    resolve: str | None,
) -> Verdict:
    if isinstance(entry, Unreadable):
        return _unreadable(entry)
    others = ",".join(strangers)
    if others and resolve != f"take-group:{others}" and not (entry is not None and entry.query_id == batch.query_id):
        return _strangers(others)
    if entry is None:
        return _without_entry(batch, ended, ours=ours)
    if entry.query_id == batch.query_id:
        verdict = _own_entry(entry, batch, ended)
        return _skipped_to(entry, ended, resolve) or verdict if isinstance(verdict, Refuse) else verdict
    if batch.batch_id == 0 and entry.query_id == take_over:
        return Write(reason=f"takeOverQuery: this query starts where {take_over} ended")
    return _foreign_entry(entry, batch, ended)


def _resolved(refusal: Refuse, found: str, resolve: str | None) -> Verdict:
    """The operator's resolution if it matches exactly this refusal; else the refusal, named as what was found."""
    for way in refusal.ways:
        if resolve == f"{way}:{found}":
            said = f"resolve={resolve} resolves this refusal: {refusal.reason}"
            return Skip(reason=said) if way in ("skip", "skip-to") else Write(reason=said)
    return replace(refusal, found=found)


def _name(entry: LedgerEntry | Unreadable | MicroBatch | None) -> str:
    match entry:
        case None:
            return "none"
        case Unreadable():
            return f"unreadable.{entry.digest[:8]}"
    return f"{entry.query_id[:8]}.{entry.batch_id}.{entry.digest[:8]}"


def _unreadable(entry: Unreadable) -> Refuse:
    return Refuse(
        reason=entry.description,
        meaning="It is unknown whether this batch is committed",
        action="Run this query with the release that wrote the entry, or a later one. Only this sink may write to the "
        "ledger topic or commit to the group `<kafka.transactional.id>.ledger`.",
        ways=("write", "skip"),
    )


def _strangers(others: str) -> Refuse:
    return Refuse(
        reason=f"the group's offsets were committed by the transactions of {others!r}",
        meaning="Two sinks that share a consumer group overwrite each other's offsets: each would resume where the "
        "other is",
        action="Set a different `kafka.group.id` for each query (default: the transactional.id).",
        found=others,
        ways=("take-group",),
    )


def _without_entry(batch: MicroBatch, ended: CommittedEnd, *, ours: bool) -> Verdict:
    obstacle = ended.obstacle()
    if batch.batch_id == 0 and (not ours or obstacle is None):
        return Write(reason="the first batch under this transactional.id")
    if batch.batch_id == 0:
        return Refuse(
            reason="the ledger has no entry, but the group's offsets were committed under this transactional.id, and "
            f"the new query {batch.query_id} does not start there: {obstacle}",
            meaning="The ledger topic and its group were deleted, or ledgerTopic was changed. Starting earlier repeats "
            "records in the output, starting later skips some",
            action=f"Restore the ledgerTopic of the last run, or {_RESUME}.",
            ways=("write",),
        )
    fits = " (it starts at the group's committed offsets)" if obstacle is None else ""
    return Refuse(
        reason=f"the ledger has no entry, but the checkpoint is at batch {batch.batch_id}{fits}",
        meaning="Its earlier batches were written with another sink, cluster, transactional.id or ledgerTopic, or the "
        "ledger topic was deleted; it is unknown whether this batch has been written",
        action=f"If the sink's options were changed by mistake, restore those of the last run. {_TAKEN_OVER}",
        ways=("write", "skip"),
    )


def _own_entry(entry: LedgerEntry, batch: MicroBatch, ended: CommittedEnd) -> Verdict:
    if entry.incomplete and entry.batch_id <= batch.batch_id <= entry.batch_id + 1:
        return Refuse(
            reason=f"batch {entry.batch_id} is incomplete: the writer's first call was committed, but a second call "
            "was refused",
            meaning="The DataFrames of the second call are not in the output",
            action="Write all DataFrames of a batch in one `with writer.transaction(...)` block, and write the missing "
            "ones with a batch job.",
            ways=("skip",) if entry.batch_id == batch.batch_id else ("write",),
        )
    moved = ended.moved()
    if entry.batch_id == batch.batch_id - 1 and not moved:
        return Write(reason=f"batch {entry.batch_id} is committed, and this is the next one")
    if entry.batch_id == batch.batch_id and entry.digest == batch.digest:
        return Skip(reason=f"batch {batch.batch_id} with exactly these offsets is already committed")
    if entry.batch_id == batch.batch_id - 1:
        return Refuse(
            reason=f"batch {entry.batch_id} is committed, but batch {batch.batch_id} does not start where it ended: "
            f"{moved}",
            meaning="The checkpoint was changed, or its sources now read another cluster; writing this batch would "
            "repeat or skip records",
            action=f"Restore the newest checkpoint, or {_RESUME}.",
            ways=("write", "skip"),
        )
    if entry.batch_id == batch.batch_id:
        return Refuse(
            reason=f"batch {batch.batch_id} is committed, but with other source offsets than in the checkpoint "
            f"(digest {entry.digest}, now {batch.digest})",
            meaning="The checkpoint lost this batch's offsets or was restored from an older copy, and the batch was "
            "planned again; writing it would repeat the records of the committed one",
            action=f"Restore the newest checkpoint, or {_RESUME}.",
            found=_name(entry) if ended.covers() else "",
            ways=("skip-to",) if ended.covers() else ("write", "skip"),
        )
    if entry.batch_id < batch.batch_id:
        missing = _batches(entry.batch_id + 1, batch.batch_id - 1)
        return Refuse(
            reason=f"the last committed batch is {entry.batch_id}, but the checkpoint is at batch {batch.batch_id}",
            meaning=f"According to the checkpoint, {missing} done, but this was not committed under this "
            "transactional.id: it was written with another sink, cluster or transactional.id, or the ledger was reset",
            action=f"If the sink's options were changed by mistake, restore those of the last run. {_TAKEN_OVER} To "
            f"write the missing records with this sink, {_RESUME}.",
            ways=("write", "skip"),
        )
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but this driver is at batch {batch.batch_id}",
        meaning="The checkpoint was restored from an older copy, or a newer driver replaced this one; "
        f"{_batches(batch.batch_id, entry.batch_id)} committed, and writing again would repeat records",
        action="If another driver runs this query, stop this one. Otherwise, restore the newest checkpoint, or "
        f"{_RESUME}.",
        found=_name(entry) if ended.covers() else "",
        ways=("skip-to",) if ended.covers() else ("write", "skip"),
    )


def _skipped_to(entry: LedgerEntry, ended: CommittedEnd, resolve: str | None) -> Verdict | None:
    """The verdict of the operator's `skip-to` on a refused batch, whatever its number; None if it does not apply."""
    if resolve != f"skip-to:{_name(entry)}" or entry.incomplete:
        return None
    if ended.covers():
        return Skip(reason=f"resolve={resolve}: everything that this batch reads is committed")
    if ended.goes_on():
        return Write(reason=f"resolve={resolve}: this batch starts where that one ended, so it is the next one")
    return None


def _foreign_entry(entry: LedgerEntry, batch: MicroBatch, ended: CommittedEnd) -> Verdict:
    last = f"the last commit under this transactional.id is batch {entry.batch_id} of query {entry.query_id}"
    if batch.batch_id > 0:
        return Refuse(
            reason=f"{last}, but this is batch {batch.batch_id} of query {batch.query_id}",
            meaning="Two queries use the same transactional.id, or another checkpoint has replaced this one; it is "
            "unknown whether this batch is already committed",
            action="If another driver runs this query, stop this one. If this checkpoint was left behind, for example "
            f"on the disk of a node that returns, or if this query replaces the other, {_RESUME}. To run both queries, "
            f"{_OWN_ID}.",
            ways=("write", "skip"),
        )
    if unknown := ended.unknown():
        return Refuse(
            reason=f"{last}, and this is a new query {batch.query_id} {unknown}",
            meaning="It is unknown whether it starts where the other one ended; it could repeat or lose records",
            action=f"If it does, set takeOverQuery={entry.query_id} (a Kafka source with startingOffsets=committed "
            "does). Otherwise, set another `kafka.transactional.id` for the new query, or restore the old query's "
            "checkpoint.",
            ways=("write",),
        )
    obstacle = ended.obstacle()
    behind = list(ended.behind())
    if obstacle is None and behind:
        return Refuse(
            reason=f"{last}, and batch 0 of query {batch.query_id} was planned before that: it ends before the "
            f"committed offsets ({some(behind)})",
            meaning="Its records are already committed. Committing it would reset the group's offsets, and the next "
            "batch would repeat records",
            action=f"This checkpoint is outdated, because another one has replaced it: {_RESUME}. If instead a topic "
            f"was created again and failOnDataLoss is false, {_take_over(entry)}.",
            ways=("skip",),
        )
    if obstacle is None and batch.stateful:
        return Refuse(
            reason=f"{last}, and the new query {batch.query_id} starts exactly where it ended, but without its state",
            meaning="The state was lost with the checkpoint: aggregates, joins and deduplication would begin anew, and "
            "the output would have wrong results",
            action="Restore the newest checkpoint. A query with state needs one on storage that survives the driver. "
            f"To continue without the state, {_take_over(entry)}.",
            ways=("write",),
        )
    if obstacle is None:
        return Write(reason=f"{last}; this query starts exactly where it ended")
    return Refuse(
        reason=f"{last}, and the new query {batch.query_id} does not start where it ended: {obstacle}",
        meaning="Starting earlier repeats records in the output, starting later skips some",
        action=f"To start where the last transaction ended, {_RESUME}. If this is another pipeline, {_OWN_ID}. If this "
        f"start is correct, for example because a topic is new, {_take_over(entry)}.",
        ways=("write",),
    )


def _take_over(entry: LedgerEntry) -> str:
    """The way out for a query that has a new checkpoint at each start: a word of `resolve` only fits one checkpoint."""
    return (
        f"set takeOverQuery={entry.query_id}, which has an effect until the next commit, also with another checkpoint"
    )


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
