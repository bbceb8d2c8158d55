"""What the sink learns of the source's ranges, and when a plan in the checkpoint is not the one in Spark's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_eos.spark.plan_registry import Note, digest_of, is_replaced, publish, published

START = {"orders": {"0": 10}}
MINE, OTHER = digest_of(START, {"orders": {"0": 20}}), digest_of(START, {"orders": {"0": 80}})


@pytest.fixture
def of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "blockmgr-1"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/elsewhere")
    return folder


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([], False),
        ([MINE], False),
        ([OTHER], True),
        ([OTHER, MINE], False),
        ([digest_of({"orders": {"0": 20}}, {"orders": {"0": 80}})], False),
        ([digest_of({"payments": {"0": 10}}, {"payments": {"0": 80}})], False),
    ],
)
def test_a_plan_is_replaced_if_another_one_was_made_here_from_the_same_start(notes: list[Note], expected: bool) -> None:
    assert is_replaced(MINE, notes) == expected


def test_first_batches_of_the_same_topics_begin_at_the_same_place() -> None:
    first = {"start={}": {}, "orders": {"0": 20}}
    assert digest_of({"orders": {"0": 1}}, first).start == digest_of(None, first | {"orders": {"0": 80}}).start
    assert digest_of(None, first).start != digest_of(None, {"start={}": {}, "payments": {"0": 20}}).start


def test_the_order_of_names_does_not_matter() -> None:
    assert digest_of({"a": 1, "b": 2}, {"c": {}, "d": {}}) == digest_of({"b": 2, "a": 1}, {"d": {}, "c": {}})


def test_the_last_note_of_a_process_is_found(of_spark: Path) -> None:
    assert published() == []
    publish(OTHER)
    publish(MINE)
    assert published() == [MINE]


@pytest.mark.parametrize("folders", ["", "/tmp/shared", "/nowhere/blockmgr-1"])
def test_where_spark_has_no_folder_of_its_own_nothing_is_left(monkeypatch: pytest.MonkeyPatch, folders: str) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", folders)
    publish(MINE)
    assert published() == []
