"""Take the picture of `kafka-eos top` with its own code, of an invented cluster: `python docs/pictures/top.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, TransactionFacts
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.records import LedgerRecord
from spark_kafka_eos.tools.cli.top_rows import Picture
from spark_kafka_eos.tools.cli.top_screen import Top
from spark_kafka_eos.tools.operators.status import PartitionLag, QueryStatus, RecordedEntry, SourceLag
from spark_kafka_eos.tools.operators.survey import ProducerState, Survey, TransactionListing

SIZE = (110, 30)
PICTURE = Path(__file__).with_name("top.svg")
NOW_MS = 1_795_420_800_000
ORDERS, ITEMS, CLICKS = (TopicPartition("orders", 0), TopicPartition("orders", 3), TopicPartition("clicks", 7))


def cluster() -> Picture:
    """A cluster on which a job is stuck, another one commits, and one partition hangs."""
    transactions = [
        _facts("nightly-import", 4021, 0, age_s=2_460, timeout_s=3_600, partitions=(ORDERS, ITEMS)),
        _facts("orders-copy", 4007, 318, age_s=3, timeout_s=60, partitions=(TopicPartition("orders-copy", 1),)),
        _facts("payments", 4012, 77, age_s=190, timeout_s=60, partitions=(ITEMS,), state="PrepareCommit"),
    ]
    producers = [
        _producer(ORDERS, 4021, 0, at=88_120, seconds=2_455),
        _producer(ITEMS, 4021, 0, at=90_002, seconds=2_440),
        _producer(ITEMS, 4012, 76, at=91_400, seconds=191),
        _producer(CLICKS, 3999, 5, at=5_000, seconds=86_400),
        _producer(TopicPartition("orders-copy", 1), 4007, 318, at=700, seconds=1),
    ]
    survey = Survey(
        taken_ms=NOW_MS,
        listings=tuple(
            TransactionListing(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                state=each.state,
                coordinator=each.coordinator,
            )
            for each in transactions
        ),
        transactions={each.transactional_id: each for each in transactions},
        producers={
            tp: tuple(each for each in producers if each.partition == tp) for tp in {p.partition for p in producers}
        },
        log_ends={
            ORDERS: LogEnds(last_stable_offset=88_120, high_watermark=131_874),
            ITEMS: LogEnds(last_stable_offset=90_002, high_watermark=130_066),
            CLICKS: LogEnds(last_stable_offset=5_000, high_watermark=912_345),
            TopicPartition("orders-copy", 1): LogEnds(last_stable_offset=700, high_watermark=1_200),
        },
        complete=True,
    )
    queries = (
        _query("clicks-hourly", 204, seconds=86_340, unread=0, held=907_345),
        _query("orders-copy", 5_017, seconds=4, unread=1_830, held=83_818),
    )
    return Picture(survey=survey, queries=queries)


def _facts(
    name: str,
    producer_id: int,
    epoch: int,
    *,
    age_s: int,
    timeout_s: int,
    partitions: tuple[TopicPartition, ...],
    state: str = "Ongoing",
) -> TransactionFacts:
    return TransactionFacts(
        transactional_id=name,
        coordinator=1 + producer_id % 3,
        state=state,
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_s * 1_000,
        started_ms=NOW_MS - age_s * 1_000,
        described_ms=NOW_MS,
        partitions=partitions,
    )


def _producer(partition: TopicPartition, producer_id: int, epoch: int, *, at: int, seconds: int) -> ProducerState:
    return ProducerState(
        partition=partition,
        producer_id=producer_id,
        epoch=epoch,
        last_timestamp_ms=NOW_MS - seconds * 1_000,
        start_offset=at,
    )


def _query(name: str, batch: int, *, seconds: int, unread: int, held: int) -> QueryStatus:
    entry = LedgerEntry(query_id="8c1f09aa", batch_id=batch, digest="", outputs={name: None})
    at_ms = NOW_MS - seconds * 1_000
    commit = RecordedEntry(
        record=LedgerRecord(offset=batch, timestamp_ms=at_ms, value=b"", producer_id=1, epoch=1), entry=entry
    )
    lag = PartitionLag(
        committed=0, earliest=0, log_ends=LogEnds(last_stable_offset=unread, high_watermark=unread + held)
    )
    source = SourceLag(cluster="", offsets={}, partitions={TopicPartition("orders", 0): lag}, unknown={})
    owner = _facts(name, 1, 1, age_s=seconds, timeout_s=60, partitions=(), state="CompleteCommit")
    return QueryStatus(
        transactional_id=name,
        ledger_topic="kafka-eos-ledger",
        commits=(commit,),
        pending=None,
        sources=(source,),
        owner=owner,
    )


async def take() -> str:
    """The SVG."""
    app = Top(cluster, seconds=2, clock=lambda: NOW_MS / 1e3)
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        shown, before = app.export_screenshot(title="kafka-eos top"), ""
        while shown != before or "Faster" not in shown:  # until everything is drawn, the keys last
            await pilot.pause(0.2)
            shown, before = app.export_screenshot(title="kafka-eos top"), shown
        return shown


if __name__ == "__main__":
    PICTURE.write_text(asyncio.run(take()))
