"""What a write task of the sink tells the commit, through Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_eos.appending.report import EncodeReport
from spark_kafka_eos.spark.plans import PlanDigest


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """A write task's message to the commit: where its blocks are. In a stream also the folder of its files, its query
    and the run of it (None if Spark does not provide them), the plan that it worked for (None if unknown), and the
    address and key of the session's listener, which the commit does not know otherwise (`worker.STATS_ENDPOINT`).
    """

    report: EncodeReport
    folder: str = ""
    query_id: str | None = None
    run_id: str | None = None
    plan: PlanDigest | None = None
    collector: str | None = field(default=None, repr=False)


def staged(messages: Iterable[WriterCommitMessage | None]) -> list[StagedMessage]:
    """Those of the tasks that sent one: Spark passes None for a task without a message."""
    return [message for message in messages if isinstance(message, StagedMessage)]
