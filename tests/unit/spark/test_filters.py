"""Spark's filters, as they reach a Python data source, and the notes on what a loaded frame was planned with."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql import datasource as spark

from spark_kafka_eos.core.filters import Condition
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import source_options
from spark_kafka_eos.spark.filters import conditions, is_first_plan
from spark_kafka_eos.spark.source import FilteringReader

OFFSET, PARTITION, TIME, TOPIC = ("offset",), ("partition",), ("timestamp",), ("topic",)


@pytest.mark.parametrize(
    ("given", "column", "operator", "values"),
    [
        (spark.EqualTo(PARTITION, 3), "partition", "=", (3,)),
        (spark.EqualNullSafe(PARTITION, 3), "partition", "=", (3,)),
        (spark.In(PARTITION, (1, None, 2)), "partition", "=", (1, 2)),
        (spark.LessThan(OFFSET, 3), "offset", "<", (3,)),
        (spark.LessThanOrEqual(OFFSET, 3), "offset", "<=", (3,)),
        (spark.GreaterThan(OFFSET, 3), "offset", ">", (3,)),
        (spark.GreaterThanOrEqual(OFFSET, 3), "offset", ">=", (3,)),
        (spark.EqualTo(TOPIC, "t"), "topic", "=", ("t",)),
    ],
)
def test_comparisons_with_values_are_conditions(given, column, operator, values):
    assert list(conditions([given])) == [Condition(column=column, operator=operator, values=values)]


@pytest.mark.parametrize(
    "given",
    [
        spark.Not(spark.EqualTo(PARTITION, 3)),
        spark.IsNotNull(OFFSET),
        spark.IsNull(OFFSET),
        spark.EqualNullSafe(PARTITION, None),
        spark.In(PARTITION, (None,)),
        spark.EqualTo(("key",), b"k"),
        spark.EqualTo(("headers", "offset"), 3),
        spark.StringStartsWith(TOPIC, "t"),
    ],
)
def test_all_others_leave_everything(given):
    assert list(conditions([given])) == []


def test_times_are_microseconds_whatever_their_zone():
    there = timezone(timedelta(hours=-5))
    for at in (datetime(1970, 1, 2, 0, 0, 0, 7, UTC), datetime(1970, 1, 1, 19, 0, 0, 7, there)):
        [condition] = conditions([spark.GreaterThan(TIME, at)])
        assert condition.values == (86_400_000_007,)
    [condition] = conditions([spark.LessThan(TIME, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC))])
    assert condition.values == (-1,)


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The folder in which plans are noted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"kafka-eos-plans-{os.getuid()}"


def test_a_plan_with_other_filters_than_the_first_is_told_and_so_are_all_that_follow(notes):
    assert is_first_plan("frame", "a")
    assert is_first_plan("frame", "a"), "the same plan made again"
    assert is_first_plan("another frame", "b")
    assert not is_first_plan("frame", "b")
    assert not is_first_plan("frame", "a"), "the other one may still be used"


def test_old_notes_are_removed(notes):
    is_first_plan("old", "a")
    os.utime(notes / "old", (0, 0))
    is_first_plan("new", "a")
    assert [note.name for note in notes.iterdir()] == ["new"]


@pytest.mark.parametrize("filters", [None, [spark.EqualTo(PARTITION, 3)]])
def test_a_use_without_the_filter_that_is_always_there_is_refused_before_anything_is_asked(filters):
    given = {"kafka.bootstrap.servers": "broker.invalid:1", "subscribe": "t", "pushDownFilters": "true"}
    reader = FilteringReader(source_options(given, streaming=False), "frame")
    if filters is not None:
        assert reader.pushFilters(filters) == filters, "Spark evaluates all of them again"
    with pytest.raises(ConfigurationError, match=r"where\('offset >= 0'\)"):
        reader.partitions()
