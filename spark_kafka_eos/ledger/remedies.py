"""Sentences about ways out that several refusals share. Pure."""

from __future__ import annotations

from spark_kafka_eos.kafka.words import first_three
from spark_kafka_eos.ledger.entry import LedgerEntry

RESUME = (
    "start the query with a new checkpointLocation, and set startingOffsets=committed and this sink's "
    "sink.kafka.transactional.id on its kafka-eos source (on another cluster, also sink.kafka.bootstrap.servers): it "
    "then starts exactly where the last committed transaction ended (a query with state loses it with the checkpoint, "
    "and is refused once more because of that)"
)
RESUME_BY_GROUP = (
    "start the query with a new checkpointLocation, and set startingOffsets=committed and this sink's kafka.group.id "
    "(by default its kafka.transactional.id) on its kafka-eos source: it then starts where the group is (a query with "
    "state loses it with the checkpoint)"
)
OWN_ID = "set a different `kafka.transactional.id` for each query"
TAKEN_OVER = (
    "If the query ran with another sink until now, for example the built-in one, and was stopped cleanly, this batch "
    "has not run yet, and `write` is correct."
)
RETURNED = (
    (
        "If your foreachBatch function returns without calling the writer for some batches (`if df.isEmpty(): "
        "return`), nothing is missing, and `write` is correct."
    ),
    "Call the writer for every batch, so that this cannot stop the query: an empty DataFrame costs next to nothing.",
)
BY_MISTAKE = "If the sink's options were changed by mistake, restore those of the last run."
TWO_DRIVERS = "If another driver runs this query, stop this one."
RESTORE = "Restore the newest checkpoint."
RESTORE_LEDGER = "Restore the ledgerTopic of the last run."
MAKE_READABLE = (
    "If `ledgerKey` was changed, set it to the new key and the one before it, separated by a comma.",
    "Otherwise, run this query with the release that wrote the entry, or a later one.",
)


def take_over_option(entry: LedgerEntry) -> str:
    """The way out for a query that has a new checkpoint at each start: a value of `resolve` only fits one
    checkpoint."""
    return (
        f"set takeOverQuery={entry.query_id}, which has an effect until the next commit, also with another checkpoint"
    )


def why_incomplete(entry: LedgerEntry) -> str:
    """Why the entry's batch is incomplete, and what it lacks as far as that is known."""
    if lost := lost_records(entry):
        return f"an output topic was deleted while it was committed; {lost}"
    return (
        "the writer's first call was committed, but a second call was refused, or an output topic was deleted meanwhile"
    )


def lost_records(entry: LedgerEntry) -> str:
    """What is lost with topics that were deleted while the entry's batch was committed; "" if that is not known."""
    lost = {} if entry.written is None else entry.written.lost
    return (
        "lost are " + first_three(f"{count:,} records of topic {name!r}" for name, count in lost.items())
        if lost
        else ""
    )
