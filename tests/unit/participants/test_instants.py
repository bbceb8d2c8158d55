"""A table of a database gets the instants that a DataFrame has, whatever time zone its driver is in."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_kafka_eos.errors import TableFailed
from spark_kafka_eos.participants.instants import rows_of
from spark_kafka_eos.participants.participant import TableVersion
from spark_kafka_eos.participants.sql import SqlTable
from tests.local_frames import Frame, internal

# The clocks of Berlin show both as 2:30.
FIRST, SECOND = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
END_OF_TIME = datetime(9999, 12, 31, 22, 59, 59, tzinfo=UTC)  # 23:59:59 in Berlin: many take it for "never"


@pytest.fixture(params=["Europe/Berlin", "America/New_York", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The time zone of the driver's operating system."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


class ConnectFrame:
    """A DataFrame of Spark Connect, whose client makes local times of Arrow's."""

    schema = StructType().add("at", TimestampType())

    def __init__(self, *instants: datetime) -> None:
        self._instants = instants

    def toLocalIterator(self) -> Iterator[Row]:
        return (Row(at=instant.astimezone().replace(tzinfo=None)) for instant in self._instants)


def test_two_instants_that_clocks_show_as_one_are_two_rows_of_the_database(zone: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE sold (number INTEGER, at TEXT UNIQUE)")
    insert = "INSERT INTO sold VALUES (?, ?)"
    table = SqlTable(lambda: sqlite3.connect(tmp_path / "shop.db"), insert=insert, key="sold")
    table.create()
    schema = StructType().add("number", IntegerType()).add("at", TimestampType())
    table.commit(Frame(schema, (1, internal(FIRST)), (2, internal(SECOND)), (3, None)), "first", after=0)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        rows = [*database.execute("SELECT number, at FROM sold ORDER BY number")]
    assert rows == [(1, "2026-10-25 00:30:00+00:00"), (2, "2026-10-25 01:30:00+00:00"), (3, None)]


@pytest.mark.parametrize(
    "instant", [FIRST, SECOND, datetime(1, 6, 1, tzinfo=UTC), datetime(1944, 4, 3, tzinfo=UTC), END_OF_TIME]
)
def test_an_instant_stays_the_same_to_the_microsecond(zone: str, instant: datetime) -> None:
    schema = StructType().add("at", TimestampType())
    ((value,),) = rows_of(Frame(schema, (internal(instant + timedelta(microseconds=7)),)))
    assert (value, value.tzinfo) == (instant + timedelta(microseconds=7), UTC)


@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
def test_an_instant_after_the_year_9999_is_refused_with_words(zone: str) -> None:
    there = internal(END_OF_TIME) + 6 * 3_600_000_000  # 23:59:59, too, but of New York
    with pytest.raises(TableFailed, match=r"9999-12-31 23:59:59 in this process's time zone is out of the range"):
        list(rows_of(Frame(StructType().add("at", TimestampType()), (there,))))


def test_a_time_without_time_zone_stays_as_it_is(zone: str) -> None:
    schema = StructType().add("at", TimestampNTZType()).add("also", ArrayType(TimestampNTZType()))
    ((value, also),) = rows_of(Frame(schema, (internal(FIRST), [internal(SECOND)])))
    assert (value, also) == (FIRST.replace(tzinfo=None), [SECOND.replace(tzinfo=None)])


def test_instants_within_arrays_maps_and_structs_are_in_utc_and_the_rest_is_as_it_was(zone: str) -> None:
    inner = StructType().add("name", StringType()).add("at", TimestampType())
    schema = (
        StructType()
        .add("list", ArrayType(TimestampType()))
        .add("by_time", MapType(TimestampType(), StringType()))
        .add("times", MapType(StringType(), ArrayType(inner)))
        .add("names", MapType(StringType(), StringType()))
        .add("struct", inner)
        .add("none", inner)
    )
    first, second = internal(FIRST), internal(SECOND)
    day = timedelta(days=1)
    row = ([first, None, second], {internal(FIRST + day): "a"}, {"x": [("n", first)]}, {"k": "v"}, ("m", second), None)
    (found,) = rows_of(Frame(schema, row))
    assert found == Row(
        list=[FIRST, None, SECOND],
        by_time={FIRST + day: "a"},
        times={"x": [Row(name="n", at=FIRST)]},
        names={"k": "v"},
        struct=Row(name="m", at=SECOND),
        none=None,
    )
    assert (found.struct.at, found["times"]["x"][0].name) == (SECOND, "n"), "the rows still have their names"


def test_rows_without_an_instant_are_not_touched() -> None:
    rows = iter([Row(number=1)])
    frame = Frame(StructType().add("number", IntegerType()).add("struct", StructType().add("name", StringType())))
    frame.toLocalIterator = lambda: rows  # type: ignore[method-assign] # to be told from another one
    assert rows_of(frame) is rows


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_of_spark_connect_a_time_that_may_be_two_instants_is_refused_and_every_other_is_exact(
    zone: str, tmp_path: Path
) -> None:
    before, after = FIRST - timedelta(minutes=31), SECOND + timedelta(minutes=30)
    assert [at for (at,) in rows_of(ConnectFrame(before, after))] == [before, after]
    table = SqlTable(lambda: sqlite3.connect(tmp_path / "shop.db"), insert="INSERT INTO sold VALUES (?)", key="sold")
    table.create()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE sold (at TEXT)")
    for instant in (FIRST, SECOND):
        with pytest.raises(TableFailed, match="occurs twice in this process's time zone"):
            table.commit(ConnectFrame(before, instant), "first", after=0)
    assert table.held() == TableVersion()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("SELECT count(*) FROM sold").fetchone() == (0,)


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
@pytest.mark.parametrize("instants", [(FIRST,), (SECOND,), (FIRST, SECOND)])
def test_a_key_of_a_map_that_may_be_two_instants_is_refused_because_pyspark_keeps_one_of_both(
    zone: str, instants: tuple[datetime, ...]
) -> None:
    schema = StructType().add("by_time", MapType(TimestampType(), StringType()))
    row = ({internal(instant): "a" for instant in instants},)
    with pytest.raises(TableFailed, match="in the keys of a map"):
        [*rows_of(Frame(schema, row))]


@pytest.mark.parametrize("zone", ["UTC"], indirect=True)
def test_of_spark_connect_in_utc_every_time_is_exact(zone: str) -> None:
    instants = [FIRST, SECOND, END_OF_TIME + timedelta(hours=1)]
    assert [at for (at,) in rows_of(ConnectFrame(*instants))] == instants
