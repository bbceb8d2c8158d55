from pathlib import Path

import pytest

from spark_kafka_eos.eos.blocks import Block
from spark_kafka_eos.eos.staging import INLINE_BYTES, Staging
from spark_kafka_eos.errors import ConfigurationError, KafkaEosError
from spark_kafka_eos.model import TopicPartition


def blocks(task: int, *sizes: int) -> list[Block]:
    return [
        Block(
            partition=TopicPartition("t", number % 2),
            task=task,
            number=number,
            records=size,
            data=bytearray([number]) * size,
        )
        for number, size in enumerate(sizes)
    ]


def contents(staging: Staging, *reports):
    return [(block.partition.partition, block.records, bytes(data)) for block, data in staging.read(reports)]


def expected(*made: Block):
    return [(block.partition.partition, block.records, bytes(block.data)) for block in made]


def test_few_small_blocks_travel_inline_and_leave_no_file(tmp_path: Path):
    staging, made = Staging(str(tmp_path)), blocks(0, 10, 20)
    report = staging.stage("3", 0, made)
    assert report.path is None and not list(tmp_path.iterdir())
    assert contents(staging, report) == expected(*made)


def test_without_a_directory_blocks_that_do_not_fit_into_the_report_are_dropped_and_it_says_so():
    nowhere = Staging(None, inline_bytes=100)
    assert contents(nowhere, nowhere.stage("3", 0, blocks(0, 60, 40))) == expected(*blocks(0, 60, 40))
    report = nowhere.stage("3", 0, blocks(0, 60, 41, 5))
    assert (report.too_large, report.blocks) == (True, ())
    nowhere.clean("3")


def test_large_blocks_come_back_from_a_file_in_order(tmp_path: Path):
    staging, made = Staging(str(tmp_path)), blocks(0, 10, INLINE_BYTES, 7, INLINE_BYTES, 1)
    report = staging.stage("3", 0, made)
    assert report.path is not None and report.bytes == sum(len(block.data) for block in made)
    assert contents(staging, report) == expected(*made)


def test_blocks_are_read_in_the_tasks_order_whatever_the_reports_order(tmp_path: Path):
    staging = Staging(str(tmp_path))
    first, second = blocks(0, 5), blocks(1, INLINE_BYTES + 1)
    reports = [staging.stage("3", 1, second), staging.stage("3", 0, first)]
    assert contents(staging, *reports) == expected(*first, *second)


def test_two_attempts_of_a_task_write_two_files_and_the_reported_one_is_read(tmp_path: Path):
    staging = Staging(str(tmp_path))
    staging.stage("3", 0, blocks(0, INLINE_BYTES + 9))
    made = blocks(0, INLINE_BYTES + 1)
    report = staging.stage("3", 0, made)
    assert len(list((tmp_path / "3").iterdir())) == 2
    assert contents(staging, report) == expected(*made)


def test_cleaning_a_batch_removes_what_older_batches_left_and_nothing_newer(tmp_path: Path):
    staging = Staging(str(tmp_path))
    for batch in ("2", "9", "10", "11", "run"):
        staging.stage(batch, 0, blocks(0, INLINE_BYTES + 1))
    staging.clean("10")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["11", "run"]


def test_cleaning_what_was_never_written_is_fine(tmp_path: Path):
    Staging(str(tmp_path / "never")).clean("1")


def test_a_vanished_file_is_an_error_that_names_the_option(tmp_path: Path):
    staging = Staging(str(tmp_path))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    (tmp_path / (report.path or "")).unlink()
    with pytest.raises(KafkaEosError, match="stagingDir"):
        contents(staging, report)


def test_a_file_cut_short_is_an_error(tmp_path: Path):
    staging = Staging(str(tmp_path))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    (tmp_path / (report.path or "")).write_bytes(b"short")
    with pytest.raises(KafkaEosError, match="ends before"):
        contents(staging, report)


def test_a_location_nobody_can_open_names_the_option():
    with pytest.raises(ConfigurationError, match="stagingDir"):
        Staging("nosuchscheme://somewhere/dir").clean("1")
