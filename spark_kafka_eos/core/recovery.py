"""Write, skip or refuse: what a (re)started batch must do, given the ledger. A pure function, scenario by scenario.

| the ledger says | the batch | verdict |
|---|---|---|
| nothing | 0 | write: the first batch under this transactional.id |
| nothing, but the group's offsets are of this id's transactions, or of another's | 0 | refuse, unless it starts there |
| nothing | > 0 | refuse: this checkpoint belongs to another sink, or the ledger was deleted |
| this query, the batch before, and it ended where this one starts | n | write: the normal course |
| this query, the batch before, and it ended elsewhere | n | refuse: the checkpoint was changed |
| this query, this batch, same range | n | skip: committed, then the driver died before Spark noted it |
| this query, this batch, another range | n | refuse: the checkpoint planned this batch anew |
| this query, an earlier batch | n | refuse: batches in between were never committed here |
| this query, a later batch | n | refuse: the checkpoint was rewound, or this driver is a zombie |
| this query, any batch, and an operator's `skip-to` | n | skip what ends before, write what starts there exactly |
| this query, only some frames of a batch | any | refuse: the others were never written |
| another query | 0, starting exactly where that one ended | write: a lost checkpoint goes on |
| another query | 0, starting there but planned to end before | refuse: this checkpoint was left behind |
| another query, named in `takeOverQuery` | 0 | write: the operator says that this query goes on where that one ended |
| another query | 0, starting elsewhere, or nobody can tell where | refuse |
| another query | > 0 | refuse: two queries share a transactional.id |
| something that is no entry | any | refuse |

"Starting exactly where that one ended" holds when every source is Kafka, no two read the same partition, at least one
partition was committed before, each one that was starts there, and each one that was not is new and starts at offset 0:
partitions are only ever added at a topic's end, so the number of a new one is above all that were committed of its
topic. A topic of which nothing was committed is not taken for a new one: its offsets may have been deleted, and reading
it again would repeat it. Where a query ended, the entry tells, of each cluster; an entry of an earlier release does
not, so the group's offsets do, if this id's transactions committed them.

Each refusal has a name for exactly what was found (`found`), and the ways in which an operator may resolve it:
`resolve=write:<found>` or `resolve=skip:<found>`. What is found is another thing once the batch is settled, so the word
holds for one time, though it should stay in the code. `skip-to:<entry>` names the ledger's entry alone and holds until
the next commit: a checkpoint restored from an older copy may plan the batches since then anew, with other bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.core.committed_end import CommittedEnd, CommittedOffsets, some
from spark_kafka_eos.core.ledger import Unreadable
from spark_kafka_eos.model import LedgerEntry, MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The batch is not committed and follows what is: write it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Exactly this batch is committed: write nothing and let Spark note it."""

    reason: str


Way = Literal["write", "skip", "skip-to", "take-group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Going on could lose or repeat data: what was found (`reason`), what it means for the data, what resolves it.

    `found` names it exactly; an operator may let the batch go on in one of `ways`.
    """

    reason: str
    meaning: str
    action: str
    found: str = ""
    ways: tuple[Way, ...] = ()


Verdict = Write | Skip | Refuse

_RESUME = (
    "start the query with a new checkpointLocation, and its kafka-eos source with startingOffsets=committed and "
    "sink.kafka.transactional.id (on another cluster also sink.kafka.bootstrap.servers) set to this sink's: it goes on "
    "exactly where the last committed transaction ended (a stateful query loses its state with the checkpoint)"
)
_OWN_ID = "give each query its own `kafka.transactional.id`"
_TAKEN_OVER = (
    "If another sink, such as the built-in one, ran the query until now and was stopped cleanly, this batch was not run"
    " yet and `write` is right."
)
_MEANS: Mapping[Way, str] = {
    "write": "writes this batch, if nothing of it is in the output (what is there of it already is repeated)",
    "skip": "takes this batch for written, if all of it is in the output (what is missing of it is lost)",
    "skip-to": "takes every batch for written that reads nothing but what is committed, and goes on where that ends "
    "(with a watermark only if its batches are bounded as they were, by the same maxOffsetsPerTrigger: otherwise other "
    "windows close in them, and some are repeated or lost)",
    "take-group": "goes on in that group all the same, if its other owner is gone for good",
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

    `committed` are the group's offsets of the batch's partitions on the sink's cluster (None: it was not asked),
    `strangers` the other transactional.ids that committed some of them, `ours` whether this one did. `clusters` has the
    cluster id of each of the batch's sources (by default all on the sink's `own`). `take_over` is the id of a query
    that this one continues on its operator's word, `resolve` an operator's answer to a refusal.
    """
    ended = CommittedEnd.of(entry, batch, clusters, own, committed)
    verdict = _decide(entry, batch, ended, strangers, ours, take_over, resolve)
    if not isinstance(verdict, Refuse) or not verdict.ways:
        return verdict
    return _resolved(verdict, verdict.found or f"{_name(entry)}/{_name(batch)}", resolve)


def decide_batch_write(
    entry: LedgerEntry | Unreadable | None, write: MicroBatch, *, resolve: str | None = None
) -> Verdict:
    """What to do with a batch write of `txnAppId` (query id) and `txnVersion` (batch id), by Delta's rule.

    A version not above the last committed one is skipped; versions need not be consecutive and have no offsets.
    """
    verdict = _decide_batch_write(entry, write)
    return _resolved(verdict, f"{_name(entry)}/{_name(write)}", resolve) if isinstance(verdict, Refuse) else verdict


def _decide_batch_write(entry: LedgerEntry | Unreadable | None, write: MicroBatch) -> Verdict:
    if entry is None:
        return Write(reason="nothing was committed under this transactional.id before")
    if isinstance(entry, Unreadable):
        return _unreadable(entry)
    if entry.query_id != write.query_id:
        return Refuse(
            reason=f"the last write under this transactional.id was version {entry.batch_id} of {entry.query_id!r}, "
            f"this one belongs to txnAppId {write.query_id!r}",
            meaning="The ledger remembers the last write only, so whether this one was committed before cannot be told",
            action="Give each txnAppId its own `kafka.transactional.id`.",
            ways=("write", "skip"),
        )
    if write.batch_id <= entry.batch_id:
        return Skip(reason=f"txnVersion {write.batch_id} is not above the committed version {entry.batch_id}")
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
        return Write(reason=f"takeOverQuery says that this query goes on where {take_over} ended")
    return _foreign_entry(entry, batch, ended)


def _resolved(refusal: Refuse, found: str, resolve: str | None) -> Verdict:
    """The operator's word where it names exactly this refusal; else the refusal, with how to say it."""
    for way in refusal.ways:
        if resolve == f"{way}:{found}":
            said = f"resolve={resolve} settles that {refusal.reason}"
            return Skip(reason=said) if way in ("skip", "skip-to") else Write(reason=said)
    choices = "; ".join(f"resolve='{way}:{found}' {_MEANS[way]}" for way in refusal.ways)
    action = (
        f"{refusal.action} To keep this checkpoint and its state, say what you know to be true with the sink's option "
        f"`resolve`: {choices}."
    )
    return Refuse(
        reason=refusal.reason, meaning=refusal.meaning, action=action.lstrip(), found=found, ways=refusal.ways
    )


def _name(entry: LedgerEntry | Unreadable | MicroBatch | None) -> str:
    match entry:
        case None:
            return "none"
        case Unreadable():
            return f"unreadable.{entry.digest[:8]}"
    return f"{entry.query_id[:8]}.{entry.batch_id}.{entry.digest[:8]}"


def _unreadable(entry: Unreadable) -> Refuse:
    return Refuse(
        reason=entry.found,
        meaning="Whether this batch is committed cannot be told",
        action="Run this query with the release that wrote the entry, or a later one. No program but this sink may "
        "write to the ledger's topic or commit to the group `<kafka.transactional.id>.ledger`.",
        ways=("write", "skip"),
    )


def _strangers(others: str) -> Refuse:
    return Refuse(
        reason=f"the group's offsets were committed by the transactions of {others!r}",
        meaning="Two sinks that share a consumer group move each other's offsets: each would resume where the other "
        "one stands",
        action="Give each query a `kafka.group.id` of its own (by default it is the transactional.id).",
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
            meaning="The ledger's topic and its group were deleted, or another ledgerTopic is named now. Starting "
            "earlier repeats records in the output, starting later leaves some out",
            action=f"Go back to the ledgerTopic of the last run, or {_RESUME}.",
            ways=("write",),
        )
    fits = " (the group's committed offsets equal its start)" if obstacle is None else ""
    return Refuse(
        reason=f"the ledger has no entry, but the checkpoint is at batch {batch.batch_id}{fits}",
        meaning="Its earlier batches went to another sink, cluster, transactional.id or ledgerTopic, or the ledger's "
        "topic was deleted; whether this batch is already written cannot be told",
        action=f"Go back to the sink options of the last run, if they changed by mistake. {_TAKEN_OVER}",
        ways=("write", "skip"),
    )


def _own_entry(entry: LedgerEntry, batch: MicroBatch, ended: CommittedEnd) -> Verdict:
    if entry.incomplete and entry.batch_id <= batch.batch_id <= entry.batch_id + 1:
        return Refuse(
            reason=f"of batch {entry.batch_id} only the frames of the writer's first call are committed; a second call "
            "in that batch was refused",
            meaning="What the second call was given is not in the output",
            action="Write all frames of a batch inside one `with writer.transaction(...)` block, and write what is "
            "missing by a batch job.",
            ways=("skip",) if entry.batch_id == batch.batch_id else ("write",),
        )
    moved = ended.moved()
    if entry.batch_id == batch.batch_id - 1 and not moved:
        return Write(reason=f"batch {entry.batch_id} is committed, this is the next one")
    if entry.batch_id == batch.batch_id and entry.digest == batch.digest:
        return Skip(reason=f"batch {batch.batch_id} with exactly these offsets is already committed")
    if entry.batch_id == batch.batch_id - 1:
        return Refuse(
            reason=f"batch {entry.batch_id} is committed, but batch {batch.batch_id} does not start where it ended: "
            f"{moved}",
            meaning="The checkpoint was changed, or its sources read another cluster now; writing this batch would "
            "repeat records or leave some out",
            action=f"Restore the newest checkpoint, or {_RESUME}.",
            ways=("write", "skip"),
        )
    if entry.batch_id == batch.batch_id:
        return Refuse(
            reason=f"batch {batch.batch_id} is committed, but with other source offsets than the checkpoint now says "
            f"(digest {entry.digest}, now {batch.digest})",
            meaning="The checkpoint lost this batch's offsets or was restored from an older copy, and the batch was "
            "planned anew; writing it would repeat the records of the committed one",
            action=f"Restore the newest checkpoint, or {_RESUME}.",
            found=_name(entry) if ended.covers() else "",
            ways=("skip-to",) if ended.covers() else ("write", "skip"),
        )
    if entry.batch_id < batch.batch_id:
        missing = _batches(entry.batch_id + 1, batch.batch_id - 1)
        return Refuse(
            reason=f"the last committed batch is {entry.batch_id}, but the checkpoint is at batch {batch.batch_id}",
            meaning=f"The checkpoint says that {missing} done, yet under this transactional.id nothing of it was "
            "committed: it was written to another sink, cluster or transactional.id, or the ledger was set back",
            action=f"Go back to the sink options of the last run, if they changed by mistake. {_TAKEN_OVER} If what "
            f"is missing is to be written here, {_RESUME}.",
            ways=("write", "skip"),
        )
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but this driver is at batch {batch.batch_id}",
        meaning="The checkpoint was restored from an older copy, or this driver was overtaken by a newer one; "
        f"{_batches(batch.batch_id, entry.batch_id)} committed, and writing it again would repeat it",
        action="If another driver runs this query, stop this one. Otherwise restore the newest checkpoint, or "
        f"{_RESUME}.",
        found=_name(entry) if ended.covers() else "",
        ways=("skip-to",) if ended.covers() else ("write", "skip"),
    )


def _skipped_to(entry: LedgerEntry, ended: CommittedEnd, resolve: str | None) -> Verdict | None:
    """What an operator's `skip-to` makes of a refused batch, whatever its number; None if it says nothing of it."""
    if resolve != f"skip-to:{_name(entry)}" or entry.incomplete:
        return None
    if ended.covers():
        return Skip(reason=f"resolve={resolve} says that what this batch reads is committed")
    if ended.goes_on():
        return Write(reason=f"resolve={resolve} says that this batch, which starts where that one ended, is next")
    return None


def _foreign_entry(entry: LedgerEntry, batch: MicroBatch, ended: CommittedEnd) -> Verdict:
    found = f"the last commit under this transactional.id is batch {entry.batch_id} of query {entry.query_id}"
    if batch.batch_id > 0:
        return Refuse(
            reason=f"{found}, but this is batch {batch.batch_id} of query {batch.query_id}",
            meaning="Two queries use the same transactional.id, or this checkpoint was replaced by another one since; "
            "whether this batch is already committed cannot be told",
            action=f"If both queries are to run, {_OWN_ID}. If this one takes over from the other, {_RESUME}.",
            ways=("write", "skip"),
        )
    if unknown := ended.unknown():
        return Refuse(
            reason=f"{found}, and this is a new query {batch.query_id} {unknown}",
            meaning="Nobody can tell whether it starts where the other one ended; it could repeat or lose some",
            action=f"If it does, say so with takeOverQuery={entry.query_id} (a Kafka source with "
            "startingOffsets=committed does). Otherwise choose another `kafka.transactional.id` for the new query, or "
            "restore the old query's checkpoint.",
            ways=("write",),
        )
    obstacle = ended.obstacle()
    behind = list(ended.behind())
    if obstacle is None and behind:
        return Refuse(
            reason=f"{found}, and batch 0 of query {batch.query_id} was planned before that: it ends before the "
            f"committed offsets, {some(behind)}",
            meaning="Its records are committed already. Its own commit would set the group's offsets back, and the "
            "next batch would repeat what follows them",
            action=f"This checkpoint was left behind by another one: {_RESUME}.",
            ways=("skip",),
        )
    if obstacle is None:
        return Write(reason=f"{found}; this query starts exactly where it ended")
    return Refuse(
        reason=f"{found}, and the new query {batch.query_id} does not start where it ended: {obstacle}",
        meaning="Starting earlier repeats records in the output, starting later leaves some out",
        action=f"To go on where the last transaction ended, {_RESUME}. If this is another pipeline, {_OWN_ID}.",
        ways=("write",),
    )


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
