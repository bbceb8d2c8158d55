import errno
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import pytest

from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.files import Files, LocalFiles
from spark_kafka_eos.appending.staging import INLINE_BYTES, Staging, folder_of, folder_of_run, staging_of
from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.errors import ConfigurationError, StagingFull, StagingLost
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.options import sink_options


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
    clean_before(nowhere, 3)


def test_large_blocks_come_back_from_a_file_in_order(tmp_path: Path):
    staging, made = Staging(str(tmp_path)), blocks(0, 10, INLINE_BYTES, 7, INLINE_BYTES, 1)
    report = staging.stage("3", 0, made)
    assert report.path is not None and sum(block.length for block in report.blocks) == sum(
        len(block.data) for block in made
    )
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


def staged(staging: Staging, *folders: str) -> None:
    """A file in each of these folders."""
    for folder in folders:
        staging.stage(folder, 0, blocks(0, INLINE_BYTES + 1))


def clean_before(staging: Staging, batch_id: int) -> None:
    """What a commit of this batch removes."""
    staging.clean_all(staging.folders_before(batch_id))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_of_earlier_batches_are_removed_and_none_of_this_or_a_later_one(tmp_path: Path):
    staging = Staging(str(tmp_path))
    earlier, later = [folder_of(batch) for batch in (2, 9, 9)], [folder_of(batch) for batch in (10, 10, 11)]
    staged(staging, *earlier, *later, folder_of_run(2))
    clean_before(staging, 10)
    assert {name for name in names(tmp_path) if not name.startswith("run-")} == {*later}
    assert len(names(tmp_path)) == 4


def test_two_calls_for_a_batch_clean_up_after_themselves_only(tmp_path: Path):
    staging = Staging(str(tmp_path))
    overtaken, successor = folder_of(7), folder_of(7)
    staging.stage(overtaken, 0, blocks(0, INLINE_BYTES + 1))
    report = staging.stage(successor, 0, made := blocks(0, INLINE_BYTES + 2))
    staging.clean(overtaken)
    assert names(tmp_path) == [successor]
    assert contents(staging, report) == expected(*made)
    clean_before(staging, 8)
    assert names(tmp_path) == []


def test_cleaning_what_was_never_written_is_fine(tmp_path: Path, caplog):
    never = Staging(str(tmp_path / "never"))
    never.clean("1")
    clean_before(never, 1)
    assert caplog.messages == []


def test_cleaning_never_fails_and_reports_what_remains(tmp_path: Path, caplog):
    directory, elsewhere = tmp_path / "staging", tmp_path / "elsewhere"
    staging = Staging(str(directory))
    first, second, third = map(folder_of, (1, 2, 3))
    staged(staging, first, second, third)
    elsewhere.mkdir()
    for folder in (first, third):  # a link is not removed with what it leads to
        (directory / folder).rename(elsewhere / folder)
        (directory / folder).symlink_to(elsewhere / folder)
    staging.clean(third)
    clean_before(staging, 3)
    assert names(directory) == [first, third]
    assert sorted(message.split(" (")[0] for message in caplog.messages) == [
        f"cannot remove staging files in {directory}/{folder}" for folder in (first, third)
    ]


def test_cleaning_a_directory_that_cannot_be_listed_does_not_fail_either(caplog):
    clean_before(Staging("nosuchscheme://somewhere/dir"), 3)
    Staging("nosuchscheme://somewhere/dir").clean("2-a")
    assert len(caplog.messages) == 2
    assert all("nosuchscheme://somewhere/dir" in message for message in caplog.messages)


def test_a_vanished_file_is_an_error_that_names_the_option(tmp_path: Path):
    staging = Staging(str(tmp_path))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    (tmp_path / (report.path or "")).unlink()
    with pytest.raises(StagingLost, match="stagingDir"):
        contents(staging, report)


def test_a_file_cut_short_is_an_error(tmp_path: Path):
    staging = Staging(str(tmp_path))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    (tmp_path / (report.path or "")).write_bytes(b"short")
    with pytest.raises(StagingLost, match="is truncated"):
        contents(staging, report)


def test_staged_files_are_for_their_user_only(tmp_path: Path):
    previous = os.umask(0)
    try:
        report = Staging(str(tmp_path / "team" / "query")).stage("3", 0, blocks(0, INLINE_BYTES + 1))
    finally:
        os.umask(previous)
    for folder in ("team", "team/query", "team/query/3"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700, "each that was made"
    assert (tmp_path / "team" / "query" / (report.path or "")).stat().st_mode & 0o777 == 0o600


def test_a_link_in_a_staging_files_place_is_not_read(tmp_path: Path):
    staging = Staging(str(tmp_path))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    file = tmp_path / (report.path or "")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StagingLost, match="cannot read the staging file .* of encode task 0: Too many levels"):
        contents(staging, report)


@pytest.mark.parametrize("replaced", ["kafka-eos-staging", "kafka-eos-staging/query"])
def test_a_link_in_a_staging_directorys_place_is_not_followed(tmp_path: Path, replaced, caplog):
    """Who may write to a shared `stagingDir` would otherwise have folders removed that only the query's user may."""
    elsewhere = tmp_path / "elsewhere"
    other = elsewhere / ("query" if replaced == "kafka-eos-staging" else "") / folder_of(3)
    other.mkdir(parents=True)
    link = tmp_path / "shared" / replaced
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    staging = Staging(str(tmp_path / "shared" / "kafka-eos-staging" / "query"))
    with pytest.raises(StagingLost, match=r"is a link.* Remove the link.*Nothing was committed\."):
        staging.stage("5", 0, blocks(0, INLINE_BYTES + 1))
    staging.clean_all([*staging.folders_before(5), other.name])
    assert other.is_dir()
    assert [each.name for each in other.parent.iterdir()] == [other.name]
    assert "is a link" in caplog.text


@pytest.mark.parametrize("whose", ["kafka-eos-staging", "kafka-eos-staging/query"])
def test_somebody_elses_staging_directory_is_refused_and_what_is_in_it_stays(tmp_path, whose, give_away, caplog):
    staging = Staging(str(tmp_path / "kafka-eos-staging" / "query"))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    give_away(tmp_path / whose)
    with pytest.raises(StagingLost, match=r"belongs to user .*Nothing was committed\. Find out who may write"):
        staging.stage("5", 0, blocks(0, INLINE_BYTES + 1))
    with pytest.raises(StagingLost, match="belongs to user"):
        staging.probe()
    with pytest.raises(StagingLost, match="belongs to user"):
        contents(staging, report)
    staging.clean("3")
    assert (tmp_path / "kafka-eos-staging" / "query" / "3").is_dir()
    assert "cannot remove staging files" in caplog.text


def test_a_folder_of_ours_that_storage_opened_to_a_group_is_closed_again(tmp_path):
    """Kubernetes gives each folder of a volume to the pod's fsGroup, to write, when a pod starts."""
    staging = Staging(str(tmp_path / "kafka-eos-staging" / "query"))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    for folder in (tmp_path / "kafka-eos-staging", tmp_path / "kafka-eos-staging" / "query"):
        folder.chmod(0o2775)
    assert contents(staging, report)
    assert (tmp_path / "kafka-eos-staging").stat().st_mode & 0o7777 == 0o3775, "others may have theirs beside"
    assert (tmp_path / "kafka-eos-staging" / "query").stat().st_mode & 0o7777 == 0o2700


@pytest.mark.parametrize("name", ["2024-01", "3", f"3-{'g' * 32}", f"-3-{'a' * 32}", f"3-{'a' * 32}-old", "run-3"])
def test_only_folders_with_a_name_of_its_own_are_removed(tmp_path: Path, name):
    (tmp_path / name).mkdir()
    own = folder_of(3)
    (tmp_path / own).mkdir()
    assert Staging(str(tmp_path)).folders_before(5_000) == [own]


class FullDisk(LocalFiles):
    def create(self, path: str) -> IO[bytes]:
        return Path("/dev/full").open("wb", INLINE_BYTES * 2)


class StagingOnFullDisk(Staging):
    def _files(self, *, making: bool = False) -> Files:
        return FullDisk(Path(str(self.directory)))


@pytest.mark.parametrize("sizes", [(INLINE_BYTES + 1,), (INLINE_BYTES + 1, 10_000_000)])
def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path, sizes):
    """The first is found when the file is closed, the second when it is written."""
    with pytest.raises(
        StagingFull, match=r"cannot write .*: No space left on device\. Nothing was committed\. Make room"
    ):
        StagingOnFullDisk(str(tmp_path)).stage("3", 0, blocks(0, *sizes))


class Disk(Staging):
    """Staging on a disk of a gigabyte, of which `free` bytes are free, less what is staged there."""

    def __init__(self, directory: Path, free: int) -> None:
        super().__init__(str(directory))
        self.free, self.looks = free, 0

    def _files(self, *, making: bool = False) -> Files:
        disk = self

        class OnIt(LocalFiles):
            def space(self) -> Space:
                disk.looks += 1
                staged = sum(path.stat().st_size for path in self.root.rglob("*") if path.is_file())
                return Space(free=disk.free - staged, total=1 << 30)

        return OnIt(Path(str(self.directory)))


RESERVE = (1 << 30) // 20


def test_what_would_leave_too_little_free_is_not_written_and_the_error_says_what_to_do(tmp_path: Path):
    disk = Disk(tmp_path, RESERVE + 5_000_000)
    with pytest.raises(StagingFull) as raised:
        disk.stage("3", 7, blocks(7, *[1_000_000] * 6))
    assert sum(path.stat().st_size for path in (tmp_path / "3").iterdir()) == 5_000_000
    assert str(raised.value).startswith(
        f"a block of encode task 7 needs 1.0 MB in the staging directory {tmp_path}, whose file system has 53.7 MB of "
        "1,073.7 MB free; 53.7 MB stay free for other programs. Nothing was committed. Make room there, or set stag"
    )
    disk.clean("3")
    made = blocks(7, *[1_000_000] * 5)
    assert contents(disk, disk.stage("4", 7, made)) == expected(*made)


def test_a_disk_that_somebody_else_fills_meanwhile_is_noticed(tmp_path: Path):
    disk = Disk(tmp_path, 1 << 30)

    def rows() -> Iterator[Block]:
        for number, block in enumerate(blocks(0, *[1_000_000] * 20)):
            if number == 10:
                disk.free = 0
            yield block

    with pytest.raises(StagingFull, match="has 0.0 MB|has -"):
        disk.stage("3", 0, rows())
    assert sum(path.stat().st_size for path in (tmp_path / "3").iterdir()) <= 10_000_000


def test_the_free_space_is_not_asked_for_each_block(tmp_path: Path):
    disk = Disk(tmp_path, 1 << 30)
    disk.stage("3", 0, blocks(0, INLINE_BYTES + 1, *[10_000] * 250))
    assert disk.looks <= 5


def test_a_limit_of_the_size_of_files_is_a_full_disk(tmp_path: Path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(StagingFull, match=os.strerror(errno.EFBIG)):
            Staging(str(tmp_path)).stage("3", 0, blocks(0, *[1 << 20] * 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def as_another_user(directory: Path) -> Iterator[None]:
    """Somebody who may not enter `directory`: its owner without its rights, or as root somebody else."""
    if os.geteuid() == 0:
        os.seteuid(65_534)
    mode = directory.stat().st_mode if os.geteuid() != 65_534 else 0
    if mode:
        directory.chmod(0)
    try:
        yield
    finally:
        if mode:
            directory.chmod(mode)
        else:
            os.seteuid(0)


def test_a_directory_without_access_is_an_error_that_says_so(tmp_path: Path):
    staging = Staging(str(tmp_path / "private"))
    report = staging.stage("3", 0, blocks(0, INLINE_BYTES + 1))
    with as_another_user(tmp_path / "private" / "3"):
        with pytest.raises(StagingLost, match="cannot read the staging file .* of encode task 0: Permission denied"):
            contents(staging, report)
        with pytest.raises(StagingLost, match="cannot write the staging file .* of encode task 1: Permission denied"):
            staging.stage("3", 1, blocks(1, INLINE_BYTES + 1))


def test_an_error_of_the_rows_is_not_taken_for_one_of_the_disk(tmp_path: Path):
    def rows():
        yield from blocks(0, INLINE_BYTES + 1)
        raise ConnectionResetError("the JVM is gone")

    with pytest.raises(ConnectionResetError):
        Staging(str(tmp_path)).stage("3", 0, rows())


def test_batch_writes_that_were_killed_are_removed_a_week_later(tmp_path: Path):
    staging, now = Staging(str(tmp_path)), 1_800_000_000.0
    old, running = folder_of_run(now - 8 * 86_400), folder_of_run(now - 6 * 86_400)
    staged(staging, old, running, "7-somebodys", "run-1-somebodys")
    staging.clean_old(now)
    assert names(tmp_path) == sorted([running, "7-somebodys", "run-1-somebodys"])
    Staging(str(tmp_path / "never")).clean_old(now)


def test_a_location_that_cannot_be_opened_names_the_option():
    with pytest.raises(ConfigurationError, match="stagingDir"):
        Staging("nosuchscheme://somewhere/dir").stage("1", 0, blocks(0, INLINE_BYTES + 1))


def directory(transactional_id: str, **more: str) -> str:
    """Where an id's files are, below the stagingDir `root`."""
    options = {"kafka.bootstrap.servers": "b:1", "topic": "t", "stagingDir": "root"} | more
    if transactional_id:
        options["kafka.transactional.id"] = transactional_id
    return staging_of(sink_options(options), "/checkpoint").directory or ""


IDS = [
    "orders",
    "orders/7",
    "orders~2F7",
    "orders%2F7",
    ".",
    "..",
    "...",
    "~2E",
    "a b",
    "é",
    "x" * 300,
    "x" * 299 + "y",
]


def test_each_transactional_id_has_a_directory_that_is_not_inside_another_one():
    parents = [PurePosixPath(directory(name)).parent for name in IDS]
    last = [PurePosixPath(directory(name)).name for name in IDS]
    assert parents == [PurePosixPath("root/kafka-eos-staging")] * len(IDS)
    assert len(set(last)) == len(IDS)
    assert all(name not in ("", ".", "..") and len(name.encode()) < 255 for name in last)
    assert re.fullmatch("orders-[0-9a-f]{8}", last[0])


def test_queries_of_one_id_on_two_clusters_do_not_share_a_directory():
    """Ids are unique in a cluster only: the same job runs in production and for disaster recovery."""
    production, again, recovery = (
        directory("orders", **{"kafka.bootstrap.servers": servers}) for servers in ("a:1,b:1", "b:1,a:1", "c:1,d:1")
    )
    assert production == again != recovery


def test_an_escaped_id_is_one_folder_also_where_the_directory_is_an_uri():
    assert "%" not in "".join(directory(name) for name in IDS)


def test_without_a_transactional_id_the_checkpoint_tells_whose_directory_it_is():
    found = directory("", deliveryGuarantee="at-least-once")
    assert found == "root/kafka-eos-staging/~2Fcheckpoint"


def test_a_name_stays_readable_as_long_as_it_is_short_enough_for_a_directory():
    def directory(name: str) -> str:
        given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "stagingDir": "/s", "kafka.transactional.id": name}
        return PurePosixPath(staging_of(sink_options(given), "/default").directory or "").name

    assert directory("x" * 191).startswith("x" * 191 + "-")
    long = [directory("x" * 200 + end) for end in "yz"]
    assert long[0] != long[1]
    assert all(len(each) < 200 and each.startswith("x" * 50) for each in long)
