"""Why a batch is refused: what was found, what it means for the data, and how to resolve it. Pure.

One function for each finding; `ledger.verdicts` decides which one applies.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.kafka.words import first_three
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.source_offset import SinkIdentity

Resolution = Literal["write", "skip", "skip-to", "take-group", "take-ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Going on could lose or repeat data: what was found (`reason`), what it means for the data, how to resolve it
    (`actions`, a sentence each).

    `fingerprint` identifies it exactly; the operator may resolve it by one of `resolutions`.
    """

    reason: str
    meaning: str
    actions: tuple[str, ...]
    fingerprint: str = ""
    resolutions: tuple[Resolution, ...] = ()

    @property
    def choices(self) -> dict[str, str]:
        """The values of the option `resolve` for this refusal, each with what it does and when it is correct."""
        return {f"{resolution}:{self.fingerprint}": _MEANS[resolution] for resolution in self.resolutions}

    @property
    def action(self) -> str:
        """The actions as one text."""
        return " ".join(self.actions)

    @property
    def remedy(self) -> str:
        """The actions and the choices, one a line."""
        lines = [f"- {action}" for action in self.actions]
        if self.resolutions:
            lines.append(
                "- To keep this checkpoint and its state, choose what you know to be correct with the sink's option "
                "`resolve`:"
            )
            lines += [f"  resolve='{word}' {effect}." for word, effect in self.choices.items()]
        return "\n".join(lines)


def owner_command(options: SinkOptions) -> str:
    """The command that shows who owns this query's transactional.id, and when it committed last; complete as
    `diagnosis_command` is.
    """
    return shlex.join(["kafka-eos", "query", "show", options.transactional_id, *_connection(options)])


def diagnosis_command(options: SinkOptions) -> str:
    """The command that shows both sides of a refusal of this query; complete, except for the properties of a secured
    cluster, whose file only the operator knows.
    """
    words = ["kafka-eos", "query", "resolve", options.transactional_id, *_connection(options)]
    if options.txn_app_id is not None:
        words += ["--option", f"txnAppId={options.txn_app_id}", "--option", f"txnVersion={options.txn_version}"]
    elif options.checkpoint_location is not None:
        words += ["--checkpoint-location", options.checkpoint_location]
    return shlex.join(words)


def _connection(options: SinkOptions) -> list[str]:
    words = ["--bootstrap-servers", options.client.servers]
    if options.client.security.protocol != "PLAINTEXT":
        words += ["--properties", "client.properties"]
    if options.ledger_topic not in ("", LEDGER_TOPIC):
        words += ["--ledger-topic", options.ledger_topic]
    return words


_RESUME = (
    "start the query with a new checkpointLocation, and set startingOffsets=committed and this sink's "
    "sink.kafka.transactional.id on its kafka-eos source (on another cluster, also sink.kafka.bootstrap.servers): it "
    "then starts exactly where the last committed transaction ended (a query with state loses it with the checkpoint, "
    "and is refused once more because of that)"
)
_RESUME_BY_GROUP = (
    "start the query with a new checkpointLocation, and set startingOffsets=committed and kafka.group.id on its "
    "source, to the group of the sink (by default its kafka.transactional.id)"
)
_OWN_ID = "set a different `kafka.transactional.id` for each query"
_TAKEN_OVER = (
    "If the query ran with another sink until now, for example the built-in one, and was stopped cleanly, this batch "
    "has not run yet, and `write` is correct."
)
_MEANS: Mapping[Resolution, str] = {
    "write": "writes this batch; correct if none of it is in the output (otherwise, those records are repeated)",
    "skip": "treats this batch as written; correct if all of it is in the output (otherwise, missing records are lost)",
    "skip-to": "treats every batch that reads only committed offsets as written, and continues after these offsets "
    "(with a watermark, only correct if batches have the same limits as before, such as maxOffsetsPerTrigger: "
    "otherwise they close other windows, and some windows are repeated or lost)",
    "take-group": "uses that group anyway; correct if the other sink is gone for good",
    "take-ledger": "starts where that sink ended; correct if this output has all that it committed, as when the id "
    "was changed (otherwise, those records are lost)",
}
_RETURNED = (
    (
        "If your foreachBatch function returns without calling the writer for some batches (`if df.isEmpty(): "
        "return`), nothing is missing, and `write` is correct."
    ),
    "Call the writer for every batch, so that this cannot stop the query: an empty DataFrame costs next to nothing.",
)
_BY_MISTAKE = "If the sink's options were changed by mistake, restore those of the last run."
_TWO_DRIVERS = "If another driver runs this query, stop this one."
_RESTORE = "Restore the newest checkpoint."


def name_of(entry: LedgerEntry | UnreadableEntry | MicroBatch | None) -> str:
    """A short name for exactly this entry or batch, for the values of `resolve`."""
    match entry:
        case None:
            return "none"
        case UnreadableEntry():
            return f"unreadable.{entry.digest[:8]}"
    return f"{entry.query_id[:8]}.{entry.batch_id}.{entry.digest[:8]}"


# -- the ledger cannot be used


def unreadable(entry: UnreadableEntry) -> Refuse:
    """There is content, but no entry."""
    return Refuse(
        reason=entry.description,
        meaning="It is unknown whether this batch is committed",
        actions=(
            "Run this query with the release that wrote the entry, or a later one.",
            "Only this sink may write to the ledger topic or commit to the group `<kafka.transactional.id>.ledger`.",
        ),
        resolutions=("write", "skip"),
    )


def shared_group(others: str) -> Refuse:
    """Other sinks' transactions commit offsets to the group."""
    return Refuse(
        reason=f"the group's offsets were committed by the transactions of {others!r}",
        meaning="Two sinks that share a consumer group overwrite each other's offsets: each would resume where the "
        "other is",
        actions=("Set a different `kafka.group.id` for each query (default: the transactional.id).",),
        fingerprint=others,
        resolutions=("take-group",),
    )


# -- the source goes by another ledger


def another_sink(sink: SinkIdentity, others: str) -> Refuse:
    """Batch 0, of a source that names other sinks than this one, or starts at their offsets."""
    writes = f"writes under {sink.transactional_id!r}" if sink.ledger_topic else "keeps no ledger (at-least-once)"
    return Refuse(
        reason=f"the source goes by what transactional.id {others!r} has committed, but this sink {writes}",
        meaning="What that one has committed would be missing in this sink's output, now or at the next start",
        actions=(
            (
                f"Set the source's `sink.kafka.transactional.id` to {sink.transactional_id!r}"
                if sink.ledger_topic
                else "Remove the source's options `sink.…`"
            )
            + f" (or, without it, let the source's `kafka.group.id` be another group than that of {others!r}), and "
            "start the query with a new checkpointLocation: this one has the start that the other sink's commits gave.",
        ),
        fingerprint=others,
        resolutions=("take-ledger",) if sink.ledger_topic else (),
    )


def another_cluster(sink: SinkIdentity, expected: SinkIdentity) -> Refuse:
    """Batch 0, of a source that looked for the sink's ledger on another cluster."""
    return Refuse(
        reason=f"the source looked for the ledger of {sink.transactional_id!r} on cluster {expected.cluster}, but this "
        f"sink writes to cluster {sink.cluster}",
        meaning="Each sink has its ledger on its own cluster: the source would start where another one ended, or every "
        "time at the beginning",
        actions=(
            (
                "Set `sink.kafka.bootstrap.servers` on the source to the brokers of the sink, and start the query with "
                "a new checkpointLocation."
            ),
        ),
    )


def another_ledger_topic(sink: SinkIdentity, expected: SinkIdentity) -> Refuse:
    """Batch 0, of a source that looked for the sink's ledger in another topic."""
    return Refuse(
        reason=f"the source looked for the ledger of {sink.transactional_id!r} in topic {expected.ledger_topic!r}, but "
        f"this sink keeps it in {sink.ledger_topic!r}, where it has no entry",
        meaning="The source would not find what this sink commits",
        actions=(
            (
                f"Set `sink.ledgerTopic` on the source to {sink.ledger_topic!r}, or `ledgerTopic` on the sink to "
                f"{expected.ledger_topic!r}, and start the query with a new checkpointLocation."
            ),
        ),
    )


# -- the ledger has no entry


def deleted(batch: MicroBatch, discontinuity: str | None) -> Refuse:
    """Batch 0, though this transactional.id has committed before."""
    return Refuse(
        reason="the ledger has no entry, but the group's offsets were committed under this transactional.id, and "
        f"the new query {batch.query_id} does not start there: {discontinuity}",
        meaning="The ledger topic and its group were deleted, or ledgerTopic was changed. Starting earlier repeats "
        "records in the output, starting later skips some",
        actions=("Restore the ledgerTopic of the last run.", f"Or {_RESUME}."),
        resolutions=("write",),
    )


def never_written(batch: MicroBatch, discontinuity: str | None) -> Refuse:
    """A later batch than 0."""
    fits = " (it starts at the group's committed offsets)" if discontinuity is None else ""
    return Refuse(
        reason=f"the ledger has no entry, but the checkpoint is at batch {batch.batch_id}{fits}",
        meaning="Its earlier batches did not call the writer, or were written with another sink, cluster, "
        "transactional.id or ledgerTopic, or the ledger topic was deleted; it is unknown whether this batch has been "
        "written",
        actions=(*_RETURNED, _BY_MISTAKE, _TAKEN_OVER),
        resolutions=("write", "skip"),
    )


# -- the entry is this query's


def incomplete(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """Some of what the entry's batch should have written is not in the output."""
    resolutions: tuple[Resolution, ...] = ("skip",) if entry.batch_id == batch.batch_id else ("write",)
    if lost := _lost(entry):
        return Refuse(
            reason=f"batch {entry.batch_id} is incomplete: an output topic was deleted while it was committed; {lost}",
            meaning="Everything else that it wrote is in the output",
            actions=("Write what is missing with a batch job, and delete no topic that a running query writes.",),
            resolutions=resolutions,
        )
    return Refuse(
        reason=f"batch {entry.batch_id} is incomplete: the writer's first call was committed, but a second call was "
        "refused, or an output topic was deleted meanwhile",
        meaning="The DataFrames of the second call, or the records in that topic, are not in the output; the query's "
        "last error says which",
        actions=(
            (
                "Write all DataFrames of a batch in one `with writer.transaction(...)` block, do not delete topics "
                "that a running query writes, and write what is missing with a batch job."
            ),
        ),
        resolutions=resolutions,
    )


def _lost(entry: LedgerEntry) -> str:
    """What is lost with topics that were deleted while the entry's batch was committed; "" if that is not known."""
    lost = {} if entry.written is None else entry.written.lost
    return (
        "lost are " + first_three(f"{count:,} records of topic {name!r}" for name, count in lost.items())
        if lost
        else ""
    )


def without_topics(entry: LedgerEntry, topics: Sequence[str]) -> Refuse:
    """The entry's batch, which would be skipped, after topics with its records were deleted."""
    names = first_three(map(repr, topics))
    return Refuse(
        reason=f"batch {entry.batch_id} is committed, but topic {names} was deleted since, with the batch's records",
        meaning="That may have been while the batch was committed, unnoticed because the driver ended at that moment. "
        "Everything else that it wrote is in the output",
        actions=(
            "If it was deleted later, on purpose, nothing is missing, and `skip` is correct.",
            "Otherwise, write what is missing with a batch job.",
            "Delete no topic that a running query writes.",
        ),
        resolutions=("skip",),
    )


def moved(entry: LedgerEntry, batch: MicroBatch, differences: str) -> Refuse:
    """The next batch, which does not start where the entry's batch ended."""
    return Refuse(
        reason=f"batch {entry.batch_id} is committed, but batch {batch.batch_id} does not start where it ended: "
        f"{differences}",
        meaning="The checkpoint was changed, or its sources now read another cluster or other topics; writing this "
        "batch would repeat or skip records",
        actions=(_RESTORE, f"Or {_RESUME}."),
        resolutions=("write", "skip"),
    )


def planned_again(entry: LedgerEntry, batch: MicroBatch, *, covered: bool) -> Refuse:
    """The entry's batch, with other offsets."""
    return Refuse(
        reason=f"batch {batch.batch_id} is committed, but with other source offsets than in the checkpoint "
        f"(digest {entry.digest}, now {batch.digest})",
        meaning="The checkpoint lost this batch's offsets or was restored from an older copy, and the batch was "
        "planned again; writing it would repeat the records of the committed one",
        actions=(_RESTORE, *(() if covered else _catch_up(entry, batch)), f"Or {_RESUME}."),
        fingerprint=name_of(entry) if covered else "",
        resolutions=("skip-to",) if covered else ("write", "skip"),
    )


def ran_in_real_time(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    return Refuse(
        reason=f"batch {batch.batch_id} of query {batch.query_id} is one of micro-batches, but since batch "
        f"{entry.batch_id} the query has run in real time",
        meaning="In real time, how far the query came is in its group's offsets, and not in this checkpoint: the "
        "batch would repeat records",
        actions=(
            "Start the query in real time again.",
            f"Or {_RESUME_BY_GROUP}.",
        ),
    )


def rewound(entry: LedgerEntry, batch: MicroBatch, *, covered: bool) -> Refuse:
    """An earlier batch than the entry's."""
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but this driver is at batch {batch.batch_id}",
        meaning="The checkpoint was restored from an older copy, or a newer driver replaced this one; "
        f"{_batches(batch.batch_id, entry.batch_id)} committed, and writing again would repeat records",
        actions=(
            _TWO_DRIVERS,
            "Otherwise, restore the newest checkpoint.",
            *(() if covered else _catch_up(entry, batch)),
            f"Or {_RESUME}.",
        ),
        fingerprint=name_of(entry) if covered else "",
        resolutions=("skip-to",) if covered else ("write", "skip"),
    )


def unfinished(batch: MicroBatch, *, ledger: bool = True) -> Refuse:
    """A batch after one that this run has begun to write, and not committed; at-least-once, without a `ledger`."""
    missing = f"batch {batch.failed[0]}"
    if len(batch.failed) > 1:
        missing = f"batches {first_three(map(str, batch.failed))}"
    return Refuse(
        reason=f"in this run, {missing} began and did not end in a commit: the writer, or the code in its `with` "
        "block, raised an error that did not end the query, or has not ended yet in another thread",
        meaning="Spark considers every batch whose function has returned as done, so going on would lose those records",
        actions=(
            "Find the error in the log of that batch.",
            (
                "Let every error of the writer and of its block end the query, and wait for a thread that calls the "
                "writer: Spark then runs the batch again."
            ),
            *((f"To write the missing records with this sink, {_RESUME}.",) if ledger else ()),
        ),
        resolutions=("write", "skip") if ledger else (),
    )


def gap(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """A later batch than the next one."""
    missing = _batches(entry.batch_id + 1, batch.batch_id - 1)
    return Refuse(
        reason=f"the last committed batch is {entry.batch_id}, but the checkpoint is at batch {batch.batch_id}",
        meaning=f"According to the checkpoint, {missing} done, but this was not committed under this "
        "transactional.id: the function did not call the writer, it was written with another sink, cluster or "
        "transactional.id, or the ledger was reset",
        actions=(*_RETURNED, _BY_MISTAKE, _TAKEN_OVER, f"To write the missing records with this sink, {_RESUME}."),
        resolutions=("write", "skip"),
    )


# -- the entry is another query's


def _last(entry: LedgerEntry) -> str:
    return f"the last commit under this transactional.id is batch {entry.batch_id} of query {entry.query_id}"


def shared_id(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """A later batch than 0."""
    return Refuse(
        reason=f"{_last(entry)}, but this is batch {batch.batch_id} of query {batch.query_id}",
        meaning="Two queries use the same transactional.id, or another checkpoint has replaced this one; it is "
        "unknown whether this batch is already committed",
        actions=(
            _TWO_DRIVERS,
            (
                "If this checkpoint was left behind, for example on the disk of a node that returns, or if this query "
                f"replaces the other, {_RESUME}."
            ),
            f"To run both queries, {_OWN_ID}.",
        ),
        resolutions=("write", "skip"),
    )


def unknown_start(entry: LedgerEntry, batch: MicroBatch, why: str) -> Refuse:
    """Batch 0, whose start the sink does not know."""
    return Refuse(
        reason=f"{_last(entry)}, and this is a new query {batch.query_id} {why}",
        meaning="It is unknown whether it starts where the other one ended; it could repeat or lose records",
        actions=(
            f"If it does, set takeOverQuery={entry.query_id} (a Kafka source with startingOffsets=committed does).",
            "Otherwise, set another `kafka.transactional.id` for the new query, or restore the old query's checkpoint.",
        ),
        resolutions=("write",),
    )


def outdated(entry: LedgerEntry, batch: MicroBatch, regressions: Sequence[str]) -> Refuse:
    """Batch 0, which starts where the other query ended, but ends before that."""
    return Refuse(
        reason=f"{_last(entry)}, and batch 0 of query {batch.query_id} was planned before that: it ends before the "
        f"committed offsets ({first_three(regressions)})",
        meaning="Its records are already committed. Committing it would reset the group's offsets, and the next "
        "batch would repeat records",
        actions=(
            f"This checkpoint is outdated, because another one has replaced it: {_RESUME}.",
            f"If instead a topic was created again and failOnDataLoss is false, {_take_over(entry)}.",
        ),
        resolutions=("skip",),
    )


def state_lost(entry: LedgerEntry, batch: MicroBatch) -> Refuse:
    """Batch 0, which starts where the other query ended, but without its state."""
    return Refuse(
        reason=f"{_last(entry)}, and the new query {batch.query_id} starts exactly where it ended, but without its "
        "state",
        meaning="The state was lost with the checkpoint: aggregates, joins and deduplication would begin anew, and "
        "the output would have wrong results",
        actions=(
            _RESTORE,
            "A query with state needs one on storage that survives the driver.",
            f"To continue without the state, {_take_over(entry)}.",
        ),
        resolutions=("write",),
    )


def elsewhere(entry: LedgerEntry, batch: MicroBatch, discontinuity: str) -> Refuse:
    """Batch 0, which starts elsewhere."""
    return Refuse(
        reason=f"{_last(entry)}, and the new query {batch.query_id} does not start where it ended: {discontinuity}",
        meaning="Starting earlier repeats records in the output, starting later skips some",
        actions=(
            f"To start where the last transaction ended, {_RESUME}.",
            f"If this is another pipeline, {_OWN_ID}.",
            f"If this start is correct, for example because a topic is new, {_take_over(entry)}.",
        ),
        resolutions=("write",),
    )


# -- batch writes


def other_job(entry: LedgerEntry, write: MicroBatch) -> Refuse:
    """The entry is that of another txnAppId, or of a query."""
    return Refuse(
        reason=f"the last write under this transactional.id was version {entry.batch_id} of {entry.query_id!r}, "
        f"but this one has txnAppId {write.query_id!r}",
        meaning="The ledger only records the writes of one txnAppId, so it is unknown whether this one was committed "
        "before",
        actions=("Set a different `kafka.transactional.id` for each txnAppId.",),
        resolutions=("write", "skip"),
    )


def unknown_destination(write: MicroBatch) -> Refuse:
    """An earlier release did not record where its writes went."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is not greater than the last one that an earlier release has written, "
        "without recording to which topics",
        meaning="It is unknown whether this write is committed",
        actions=(),
        resolutions=("write", "skip"),
    )


def below(write: MicroBatch, last: int) -> Refuse:
    """A lower version than the last one, which is not known to have run."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is lower than {last}, the last one that was written to this destination, "
        "and it is not known to be written",
        meaning="Versions may be skipped, so it is unknown whether this write is late or runs again",
        actions=("Give each write a higher version than the one before.",),
        resolutions=("write", "skip"),
    )


def other_topics(write: MicroBatch, before: str) -> Refuse:
    """The same version went to other topics, which its rows named."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is committed, with rows for {before}, and now its rows are for others",
        meaning="It is unknown whether this is the same write with other rows, or another write",
        actions=(
            (
                "Set the option topic or outputTopics, which say where a write goes; or give each write a version of "
                "its own."
            ),
        ),
        resolutions=("write", "skip"),
    )


def topics_created_again(write: MicroBatch) -> Refuse:
    """The same version went to the same names, and not all of these are the same topics."""
    return Refuse(
        reason=f"txnVersion {write.batch_id} is committed, but since then, some of its topics were created again, and "
        "some were not",
        meaning="The new ones do not have it; the others have it, and would have it twice",
        actions=("Write it under another txnAppId to the topics that were created again only.",),
        resolutions=("write", "skip"),
    )


def incomplete_write(entry: LedgerEntry, *, is_same: bool) -> Refuse:
    """Some of what the entry's version should have written is not in the output; `is_same`: it is written again."""
    version, lost = entry.batch_id, _lost(entry) or "the error of that write says what is lost"
    return Refuse(
        reason=f"version {version} of {entry.query_id!r} is incomplete: an output topic was deleted while it was "
        f"committed; {lost}",
        meaning="Everything else that it wrote is in the output" + (", and would be there twice" if is_same else ""),
        actions=("Write what is missing under another txnAppId, and delete no topic while a job writes it.",),
        resolutions=("write", "skip") if is_same else ("write",),
    )


def too_many_destinations(write: MicroBatch, most: int) -> Refuse:
    """The entry has no room for another destination."""
    return Refuse(
        reason=f"txnAppId {write.query_id!r} has written to {most} destinations, as many as the ledger remembers",
        meaning="A further one could not be recognised when it is written again",
        actions=("Choose another txnAppId and another `kafka.transactional.id` for further destinations.",),
    )


def _take_over(entry: LedgerEntry) -> str:
    """The way out for a query that has a new checkpoint at each start: a value of `resolve` only fits one
    checkpoint."""
    return (
        f"set takeOverQuery={entry.query_id}, which has an effect until the next commit, also with another checkpoint"
    )


def _catch_up(entry: LedgerEntry, batch: MicroBatch) -> tuple[str, ...]:
    """The way out for an old copy of a checkpoint whose next batch reads what is committed, and more."""
    if entry.sources is None or any(source and source.start is None for source in entry.sources):
        return ()
    planned = batch.batch_id
    repeat = (
        f"Or have the query repeat what is committed and then go on, with its state: delete `offsets/{planned}` (on a "
        f"local disk also `offsets/.{planned}.crc`) from the checkpoint (this batch is planned, and nothing of it is "
        "committed), set this sink's sink.kafka.transactional.id on the kafka-eos source, which then plans up to the "
        f"ledger's end, and set resolve='skip-to:{name_of(entry)}' on the sink."
    )
    return (repeat,)


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
