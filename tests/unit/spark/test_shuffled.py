"""The rows between encode and append tasks: which task receives what."""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import EncodeReport, encoded
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.spark.shuffled import block_row, read, report_rows

SLOTS = 3
BLOCKS = [
    Block(partition=TopicPartition("out", number), task=5, number=0, records=number + 1, data=bytearray(b"block"))
    for number in (0, 1, 3, 4)
]
REPORT = EncodeReport(task=5, blocks=tuple(map(encoded, BLOCKS)), milliseconds=7.0, links=("00-1-2-01",))


def received(report: EncodeReport) -> dict[int, EncodeReport]:
    """The reports by the append task that receives them."""
    rows = list(report_rows(report, SLOTS))
    slots = [row.column("slot")[0].as_py() for row in rows]
    assert len(set(slots)) == len(slots)
    return {slot: each for slot, each in zip(slots, read(rows), strict=True) if isinstance(each, EncodeReport)}


def test_each_append_task_is_told_of_the_blocks_that_it_gets():
    blocks = {slot: sorted(each.records) for slot, each in received(REPORT).items()}
    assert sorted(tp for partitions in blocks.values() for tp in partitions) == [b.partition for b in BLOCKS]
    for block in BLOCKS:
        (slot,) = block_row(block, SLOTS).column("slot").to_pylist()
        assert block.partition in blocks[slot]
    assert {(each.task, each.milliseconds, each.links) for each in received(REPORT).values()} == {
        (5, 7.0, ("00-1-2-01",))
    }


def test_a_task_without_rows_is_reported_to_one_append_task():
    assert received(EncodeReport(task=5)) == {2: EncodeReport(task=5)}


def test_an_error_goes_to_every_append_task():
    found = received(EncodeReport(task=5, error=InvalidRow("too large")))
    assert {slot: each.error.what for slot, each in found.items() if each.error} == dict.fromkeys(
        range(SLOTS), "too large"
    )


def test_dead_letters_are_counted_once_although_several_tasks_are_told():
    found = received(replace(REPORT, dead_letters={"undecodable": 2}))
    assert len(found) > 1
    assert [each.dead_letters for each in found.values() if each.dead_letters] == [{"undecodable": 2}]
