"""`appendMode=executors`: append tasks append the blocks of their partitions, and the driver decides about all of them.

Each task runs `append_attempt`. The barrier (`appending.barrier`) is the driver's `judge`.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from spark_kafka_eos.appending import barrier
from spark_kafka_eos.appending.append import WRITTEN_AGAIN, append, records_by_partition, topic_ids
from spark_kafka_eos.appending.barrier import AppendReport, StageAttempts
from spark_kafka_eos.appending.report import Appended, EncodeReport, appended_topics, total
from spark_kafka_eos.dead_letters import causes
from spark_kafka_eos.errors import KafkaEosError, TransactionAborted
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.protocol import recorder
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options.values import Limit

if TYPE_CHECKING:
    from spark_kafka_eos.appending.blocks import Block

_log = logger(__name__)

_KEPT_BY_TASK = 25  # requests in its report, the first ones, and as many of the last ones


def append_attempt(
    cluster: Cluster,
    identity: ProducerIdentity,
    shuffled: Iterable[Block | EncodeReport],
    *,
    stage_id: int,
    slot: int,
    attempt: int,
    batch_id: int,
    ledger_topic: str = "",
    added: Iterable[TopicPartition] = (),
    anew: bool = False,
    append: Callable[..., list[Ack]] = append,
) -> AppendReport:
    """One attempt of the append task of `slot`. Only the first attempt appends its blocks. The encode tasks' reports
    come before them, so that on TV1 one request adds all the task's partitions to the transaction, and none if they are
    among those that the driver has `added` (KIP-609). `anew`: look up the topics again, because an attempt before this
    one may have failed for what this process knows of them.

    It never fails on purpose. Spark would retry it, and a second attempt must not append: requests of the first one may
    still be in flight with the same sequence numbers, and the broker compares nothing else. So it returns its error in
    the report, a second attempt appends nothing and reports that, and the driver decides (appending.barrier).
    """
    report = AppendReport(stage_id=stage_id, slot=slot, attempt=attempt)
    if attempt > 0:
        return report
    sent: Counter[TopicPartition] = Counter()

    def counted(blocks: Iterable[Block]) -> Iterator[tuple[TopicPartition, int, bytearray]]:
        for block in blocks:
            sent[block.partition] += block.records
            yield block.partition, block.records, block.data

    started = time.perf_counter()
    with recorder.recording(kept=_KEPT_BY_TASK) as requests:
        encoded, blocks = _reports_first(shuffled)
        recorder.add_links(link for report in encoded for link in report.links)
        expected = total(report.records for report in encoded)
        try:
            for encode_report in encoded:
                if encode_report.error is not None:
                    raise encode_report.error
            ids = topic_ids(cluster, expected, anew=anew)
            acks = append(
                cluster,
                identity,
                counted(blocks),
                partitions=expected,
                added=added,
                batch_id=batch_id,
                ledger_topic=ledger_topic,
            )
        except KafkaEosError as error:
            # The report of a straggler is lost, so its executor's log is the only trace.
            _log.warning("append task %d of batch %d, epoch %d: %s", slot, batch_id, identity.epoch, error)
            return replace(report, sent=dict(sent), error=error, trace=requests.trace())
    return replace(
        report,
        trace=requests.trace(),
        encoded=expected,
        sent=dict(sent),
        acked=records_by_partition(acks),
        topic_ids=ids,
        bytes=sum(ack.bytes for ack in acks),
        dead_letters=causes.counted(report.dead_letters for report in encoded),
        milliseconds={
            "encode": max((report.milliseconds for report in encoded), default=0.0),
            "append": (time.perf_counter() - started) * 1e3,
        },
    )


def _reports_first(shuffled: Iterable[Block | EncodeReport]) -> tuple[list[EncodeReport], Iterator[Block]]:
    rows = iter(shuffled)
    reports: list[EncodeReport] = []
    for row in rows:
        if not isinstance(row, EncodeReport):
            return reports, itertools.chain([row], cast("Iterator[Block]", rows))
        reports.append(row)
    return reports, iter(())


def judge(
    reports: Sequence[AppendReport],
    attempts: Callable[[set[int]], Mapping[int, StageAttempts]],
    max_dead_letters: Limit | None = None,
) -> Appended:
    """The barrier: every record was appended exactly once, else raise TransactionAborted or the error of a task. Then
    TooManyDeadLetters, if there are too many among them.

    `attempts` returns the attempts of the stages with these ids.
    """
    recorder.add_tasks([(report.slot, report.trace) for report in reports if report.trace is not None])
    errors = [report.error for report in reports if report.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, TransactionAborted)):
        raise error  # an error that no retry can fix comes first
    expected = total(report.encoded for report in reports)
    if reason := barrier.obstacle(reports, attempts({report.stage_id for report in reports}), expected):
        raise TransactionAborted(reason, action=WRITTEN_AGAIN)
    records = sum(expected.values())
    dead = causes.counted(report.dead_letters for report in reports)
    causes.check_limit(dead, records, max_dead_letters)
    return Appended(
        partitions=len(expected),
        records=records,
        bytes=sum(report.bytes for report in reports),
        topics=appended_topics(
            {topic: topic_id for report in reports for topic, topic_id in report.topic_ids.items()}, expected
        ),
        dead_letters=dead,
        milliseconds={
            step: max((report.milliseconds.get(step, 0.0) for report in reports), default=0.0)
            for step in ("encode", "append")
        },
    )
