"""Local files, and those of pyarrow's and fsspec's file systems, behave alike."""

import gc
import io
import os
import threading
import weakref
from pathlib import Path
from typing import cast
from urllib.parse import quote

import pytest
from pyarrow import fs

from spark_kafka_eos.appending.files import ArrowFiles, Files, LocalFiles, files_at, fuse_path
from spark_kafka_eos.errors import ConfigurationError
from tests.s3 import s3_of
from tests.s3_proxy import Faults, s3_proxy


@pytest.fixture(params=["local", "arrow", "fsspec"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "local":
        return LocalFiles(tmp_path / "root")
    if request.param == "fsspec":
        return files_at(f"memory:/{tmp_path}/root", "stagingDir")
    return ArrowFiles(fs.LocalFileSystem(), str(tmp_path / "root"))


def write(files: Files, path: str, content: bytes) -> None:
    with files.create(path) as stream:
        stream.write(content)


@pytest.mark.parametrize("way", ["create", "open"])
def test_a_file_system_lives_as_long_as_a_stream_of_it(tmp_path: Path, way: str) -> None:
    """That of HDFS closes its streams when it is gone."""
    (tmp_path / "file").write_bytes(b"content")
    filesystem = fs.LocalFileSystem()
    alive = weakref.ref(filesystem)
    stream = getattr(ArrowFiles(filesystem, str(tmp_path)), way)("file")
    del filesystem
    gc.collect()
    assert alive() is not None
    stream.close()
    del stream
    gc.collect()
    assert alive() is None


def test_what_was_written_is_read_from_any_position(files: Files) -> None:
    write(files, "a/b/file", b"0123456789")
    with files.open("a/b/file") as stream:
        stream.seek(4)
        assert stream.read(3) == b"456"
    assert files.read_text("a/b/file") == "0123456789"


def test_a_file_that_is_not_there_is_no_text_and_cannot_be_opened(files: Files) -> None:
    assert files.read_text("a/file") is None
    with pytest.raises(FileNotFoundError):
        files.open("a/file")


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing"])
def test_a_file_that_somebody_made_first_is_not_written(tmp_path: Path, kind: str) -> None:
    (tmp_path / "theirs").write_text("theirs")
    made = tmp_path / "made"
    if kind == "file":
        made.write_text("theirs")
    else:
        made.symlink_to(tmp_path / ("theirs" if kind == "link" else "none"))
    with pytest.raises(FileExistsError):
        LocalFiles(tmp_path).create("made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "theirs"]
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_several_files_are_read_each_with_its_text(files: Files) -> None:
    write(files, "offsets/7", b"seven")
    write(files, "metadata", b"{}")
    texts = files.read_texts(["metadata", "offsets/7", "offsets/6"])
    assert texts == {"metadata": "{}", "offsets/7": "seven", "offsets/6": None}


def test_in_a_store_several_files_take_one_round_trip() -> None:
    everyone_asked = threading.Barrier(3, timeout=30)

    class Store:
        def open_input_file(self, path: str) -> io.BytesIO:
            everyone_asked.wait()
            return io.BytesIO(path.encode())

    texts = ArrowFiles(cast("fs.FileSystem", Store()), "root").read_texts(["a", "b", "c"])
    assert texts == {"a": "root/a", "b": "root/b", "c": "root/c"}


def test_only_directories_right_below_are_listed_and_nothing_is_no_error(files: Files) -> None:
    assert files.directories() == []
    write(files, "7/deep/file", b"")
    write(files, "8/file", b"")
    write(files, "file", b"")
    assert sorted(files.directories()) == ["7", "8"]


def test_only_files_right_in_a_directory_are_named_and_nothing_is_no_error(files: Files) -> None:
    assert files.names("offsets") == []
    write(files, "offsets/7", b"")
    write(files, "offsets/8", b"")
    write(files, "offsets/deep/9", b"")
    assert sorted(files.names("offsets")) == ["7", "8"]


def test_a_directory_is_removed_with_all_in_it_and_a_second_time_is_fine(files: Files) -> None:
    write(files, "7/deep/file", b"")
    write(files, "8/file", b"")
    files.remove("7")
    files.remove("7")
    assert files.directories() == ["8"]


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_s3_is_asked_again_if_it_fails_for_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with s3_of(tmp_path) as server, s3_proxy(server) as proxy:
        proxy.faults = Faults(to=f"^{method} ", unavailable_every=2)
        settings = f"?region=eu-west-1&scheme=http&endpoint_override={quote(proxy.endpoint, safe='')}"
        files = files_at(f"s3a://bucket/{settings}", "checkpointLocation")
        assert [files.read_text("offsets/0") for _ in range(2)] == ["v1", "v1"]
    assert proxy.made["503"] == 1


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_plain_path_and_a_file_uri_are_this_machines(prefix: str, tmp_path: Path) -> None:
    assert files_at(f"{prefix}{tmp_path}", "stagingDir") == LocalFiles(tmp_path)


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost", "FILE:"])
def test_a_local_path_is_read_literally_as_spark_does(prefix: str, tmp_path: Path) -> None:
    name = "a b#c?d%20e"
    assert files_at(f"{prefix}{tmp_path}/{name}", "stagingDir") == LocalFiles(tmp_path / name)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("dbfs:/Volumes/main/sales/state/orders", "/Volumes/main/sales/state/orders"),
        ("dbfs:///Volumes/main/sales/state/orders", "/Volumes/main/sales/state/orders"),
        ("dbfs:/tmp/a b#c?d%20e", "/dbfs/tmp/a b#c?d%20e"),
        ("dbfs:///tmp/orders", "/dbfs/tmp/orders"),
    ],
)
def test_a_dbfs_location_is_where_databricks_mounts_it(location: str, path: str) -> None:
    assert fuse_path(location) == Path(path)


def test_a_volume_is_a_local_path() -> None:
    path = "/Volumes/main/sales/state/orders"
    assert files_at(path, "checkpointLocation") == LocalFiles(Path(path))


def test_dbfs_without_its_mount_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'checkpointLocation': cannot open 'dbfs:/a': /dbfs is not mounted"):
        files_at("dbfs:/a", "checkpointLocation")


@pytest.mark.parametrize(
    ("location", "kind", "root"),
    [
        ("s3://bucket/state?region=eu-west-1", "S3FileSystem", "bucket/state"),
        ("s3a://bucket/state?region=eu-west-1", "S3FileSystem", "bucket/state"),
        ("gs://bucket/state/", "GcsFileSystem", "bucket/state"),
        ("abfss://container@account.dfs.core.windows.net/state", "AzureFileSystem", "container/state"),
    ],
)
def test_pyarrow_opens_the_object_stores_of_spark(location: str, kind: str, root: str) -> None:
    files = files_at(location, "checkpointLocation")
    assert isinstance(files, ArrowFiles)
    assert (type(files.filesystem).__name__, files.root) == (kind, root)


@pytest.mark.parametrize(
    ("option", "way"),
    [
        ("checkpointLocation", r"TransactionalWriter in foreachBatch reads the checkpoint"),
        ("stagingDir", r"location\. More: "),
    ],
)
def test_a_scheme_that_nothing_here_knows_is_refused_with_what_to_do(option: str, way: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"'{option}': cannot open 'wasbs://c@a/x'.*{way}"):
        files_at("wasbs://c@a/x", option)


def test_the_space_is_that_of_the_file_system_also_before_the_directory_is_there(tmp_path):
    found = os.statvfs(tmp_path)
    space = LocalFiles(tmp_path / "not" / "yet").space()
    assert space is not None and space.total == found.f_blocks * found.f_frsize
    assert 0 < space.free <= space.total


def test_a_file_system_without_a_size_does_not_tell_its_space():
    assert LocalFiles(Path("/proc")).space() is None


def test_an_object_store_does_not_tell_its_space(tmp_path):
    assert ArrowFiles(fs.LocalFileSystem(), str(tmp_path)).space() is None
