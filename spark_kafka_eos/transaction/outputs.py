"""Whether what a batch appended is still there: topics that are deleted before it is done take their records along.

The coordinator does not notice. It writes its markers by name, into a topic that was created again, too, and calls the
transaction committed. So the ids that the topics had before anything was appended are compared with those that they
have before EndTxn, when all of it can be aborted, and after EndTxn, when what is gone can only be said. Without a
transaction they are compared once all is acknowledged, and the batch is written again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from spark_kafka_eos.appending.report import AppendedTopic
from spark_kafka_eos.errors import KafkaEosError, OutputLost, TransactionAborted
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.topics import deleted
from spark_kafka_eos.micro_batch import MicroBatch

_log = logger(__name__)


def require(cluster: Cluster, ids: Mapping[str, uuid.UUID]) -> None:
    """Raise TransactionAborted if a topic no longer has its id; AuthorizationFailed, BrokerError, BrokerUnreachable."""
    if gone := deleted(cluster, ids):
        raise TransactionAborted(
            f"topic {gone[0]!r} was deleted after this attempt had looked it up, and what it appended there is gone or "
            "may be",
            action="The batch is written again.",
        )


def require_committed(
    cluster: Cluster,
    batch: MicroBatch,
    ids: Mapping[str, uuid.UUID],
    topics: Mapping[str, AppendedTopic],
    note: Callable[[Mapping[str, AppendedTopic]], KafkaEosError | None] | None,
) -> None:
    """Raise OutputLost if one of the `topics` to which the committed batch was appended no longer has its id: `note`
    then has the ledger say that what was appended there is lost, and returns the error if that failed. If only the
    ledger's topic was deleted, it gets the entry once more. Without `note` there is no ledger.
    """
    try:
        gone = deleted(cluster, ids)
    except KafkaEosError as error:
        raise error.replaced(
            what=f"batch {batch.batch_id} was committed, but whether its topics are still there is not known: "
            f"{error.what}",
            committed="everything",
        ) from error
    if not gone:
        return
    topics = {name: topic for name, topic in topics.items() if name in gone}
    failure = None if note is None else note(topics)
    records = _records(topics)
    if not records and failure is None:
        _log.warning("topic %s was deleted; the entry of batch %d is written again", gone[0], batch.batch_id)
        return
    raise _lost(batch, gone[0], records, is_noted=note is not None, failure=failure)


def _lost(batch: MicroBatch, topic: str, what: str, *, is_noted: bool, failure: KafkaEosError | None) -> OutputLost:
    """The committed batch lost `what` with this topic, "" if only the ledger's entry, which could not be written again.
    `is_noted`: the ledger has to say so, and does, unless that ended in `failure`.
    """
    which = f"batch {batch.batch_id} of query {batch.query_id}" if batch.query_id else "the batch write"
    action = "Write what is missing with a batch job, and delete no topic that a running query writes."
    if failure is not None:
        action = (
            f"That could not be noted in the ledger ({failure.what}), so do not start the query or job again "
            f"before you have looked at what its output has of this batch. {action}"
        )
    elif is_noted:
        action = (
            "The ledger has the batch as incomplete: the next start is refused, and goes on with the word that its "
            f"message names. {action}"
        )
    else:
        action = f"If other topics have the batch, do not write the batch again: they would have it twice. {action}"
    return OutputLost(
        f"{which} was committed, and while it was, topic {topic!r} was deleted: lost are "
        + (what or "the ledger's entry"),
        action=action,
    )


def _records(topics: Mapping[str, AppendedTopic]) -> str:
    """What is lost with these topics, in words; "" if nothing."""
    return ", ".join(
        f"{topic.records:,} records in {topic.partitions} partitions of topic {name!r}"
        for name, topic in topics.items()
    )
