"""The protocol for a table in SQLite or PostgreSQL, with a driver of DB-API 2.0 (PEP 249) that has transactions.

    CREATE TABLE kafka_eos (name VARCHAR(255) PRIMARY KEY, version BIGINT NOT NULL, token TEXT)

Version and token are a row of this table, in the same database as the rows. Its update comes first in the database's
transaction: it takes the row's lock, so of two commits after the same version, the second one finds another version.

The token comes last. Before the rows, the row of kafka_eos gets `BY_HALF`. So what was committed before the end, by the
driver or by a statement that commits implicitly, is never taken for the whole batch. And a transaction that the
database has rolled back, unnoticed by `insert`, has no row left to give the token to.

PEP 249 leaves open whether a cursor takes part in its connection's transaction. So the first commit of each object
writes a row of its own before, rolls it back, and looks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from spark_kafka_eos.errors import ConfigurationError, TableFailed
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.participants.failure import error_to_text
from spark_kafka_eos.participants.instants import rows_of
from spark_kafka_eos.participants.participant import Conflict, TableVersion

_log = logger(__name__)

CREATE = "CREATE TABLE IF NOT EXISTS kafka_eos (name VARCHAR(255) PRIMARY KEY, version BIGINT NOT NULL, token TEXT)"
_FORGET = "UPDATE kafka_eos SET token = NULL WHERE name = ?"
BY_HALF = "by half"
"""What the table has instead of a token while the rows are written; nobody may ever see it."""

Insert = Callable[[Any, Iterable[tuple[Any, ...]]], None]


class SqlTable:
    """A participant. `connect` opens a new connection without autocommit; each commit has one of its own. `insert` is
    executed for each row, with its values in order. Or it is a function of the cursor and the rows, tuples, that writes
    them to several tables of the database, or changes what is there; it must neither commit nor roll back. `key` names
    the query, and must be no other's. `mark` is the driver's placeholder, `?` for sqlite3, `%s` for psycopg.

    The rows are a DataFrame, which is read partition by partition into the driver, or a list of tuples: what `commit`
    gets must be there again if it is repeated. Of a DataFrame, a TIMESTAMP is a datetime in UTC, with its time zone,
    and a TIMESTAMP_NTZ one without. The function `insert` can read a DataFrame's rows once; a second loop over them
    raises TableFailed.

    `create` and the first `commit` raise ConfigurationError if what a cursor of the driver writes is not in the
    transaction of its connection.
    """

    def __init__(self, connect: Callable[[], Any], *, insert: str | Insert, key: str, mark: str = "?") -> None:
        self._connect, self._insert, self._key, self._mark = connect, insert, key, mark
        self._has_transactions = False  # not known yet

    def create(self) -> None:
        """Create the table `kafka_eos` if it does not exist."""
        with self._transaction() as cursor:
            cursor.execute(CREATE)
        self._require_transactions()

    def held(self) -> TableVersion:
        """Raises TableFailed if a part of a batch was committed."""
        row = self._row(self._key)
        if row is not None and row[1] == BY_HALF:
            raise TableFailed(
                f"version {row[0]} of the key {self._key!r} of kafka_eos was committed before all of its rows were "
                "written: by a connection with autocommit, or by `insert`, which committed or executed a statement "
                "that commits implicitly",
                action="Remove that cause. Then delete that batch's rows from the table, and the token, not the "
                f"version: {_FORGET.replace('?', _quoted(self._key))}. The batch is then written anew.",
            ).replaced(committed="unknown")
        return TableVersion() if row is None else TableVersion(version=row[0], token=row[1])

    def commit(self, rows: Any, token: str | None, *, after: int) -> None:
        """Also raises ConfigurationError, before anything is written, for a driver without transactions."""
        if not self._has_transactions:
            self._require_transactions()
        with self._transaction() as cursor:
            first = token if rows is None else BY_HALF
            if rows is None:
                message = "fencing the key %r of kafka_eos at version %d; waits while another connection locks its row"
                _log.info(message, self._key, after)
            if after == 0:
                statement = "INSERT INTO kafka_eos (version, token, name) VALUES (1, ?, ?) ON CONFLICT DO NOTHING"
                cursor.execute(self._marked(statement), (first, self._key))
            else:
                statement = "UPDATE kafka_eos SET version = version + 1, token = ? WHERE name = ? AND version = ?"
                cursor.execute(self._marked(statement), (first, self._key, after))
            if cursor.rowcount != 1:
                raise Conflict(f"the key {self._key!r} of kafka_eos is not at version {after}")
            if rows is None:
                return
            if isinstance(self._insert, str):
                cursor.executemany(self._insert, _tuples(rows))
            else:
                self._insert(cursor, _Once(_tuples(rows)) if _is_frame(rows) else rows)
            failpoint("table half committed")
            statement = "UPDATE kafka_eos SET token = ? WHERE name = ? AND version = ?"
            cursor.execute(self._marked(statement), (token, self._key, after + 1))
            if cursor.rowcount != 1:
                raise TableFailed(
                    "the database has rolled back the transaction in which the rows were written, and `insert` went on",
                    action="Let `insert` raise the error that it met.",
                )

    def _require_transactions(self) -> None:
        """Raise ConfigurationError unless what a cursor has written can be rolled back by its connection."""
        name = f"probe {uuid.uuid4()}"
        problems = []
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(self._marked("INSERT INTO kafka_eos (version, token, name) VALUES (0, NULL, ?)"), (name,))
            if cursor.rowcount != 1:
                problems.append(f"its rowcount is {cursor.rowcount} after one row was written")
            if self._selected(connection.cursor(), name) is None:
                problems.append("a cursor does not see what another cursor of the same connection has written")
            failed = _rolled_back(connection)
            if failed is not None:
                problems.append(f"rollback() raised {error_to_text(failed)}")
        if self._row(name) is not None:
            problems.insert(0, "what a cursor has written is still there after rollback()")
            with self._transaction() as cursor:
                cursor.execute(self._marked("DELETE FROM kafka_eos WHERE name = ?"), (name,))
        if problems:
            raise ConfigurationError(
                "connect",
                f"the driver or the connection cannot write a batch all or nothing: {'; '.join(problems)}",
                action="Open the connection without autocommit, with a driver whose cursors are in the connection's "
                "transaction, such as sqlite3 or psycopg. DuckDB's are not.",
            )
        self._has_transactions = True

    def _row(self, name: str) -> Any:
        """Version and token, as a new connection sees them; None if there is no row of that name."""
        with self._transaction() as cursor:
            return self._selected(cursor, name)

    def _selected(self, cursor: Any, name: str) -> Any:
        cursor.execute(self._marked("SELECT version, token FROM kafka_eos WHERE name = ?"), (name,))
        return cursor.fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor of a connection of its own, whose transaction is committed, or rolled back after an error.

        Closing alone may leave it open, and its locks: SQLite waits for the statements that the error still refers to.
        """
        with closing(self._connect()) as connection:
            try:
                yield connection.cursor()
                connection.commit()
            except BaseException as error:
                failed = _rolled_back(connection)
                if failed is None or not isinstance(error, Exception):
                    raise
                raise TableFailed(  # also instead of a Conflict, which says that nothing of the commit is there
                    f"{error_to_text(error)}, and rollback() raised {error_to_text(failed)}, so it is unknown what of "
                    "that is there",
                    action="Fix the first cause, and start the query again: it looks what the table has.",
                ).replaced(committed="unknown") from error

    def _marked(self, statement: str) -> str:
        return statement.replace("?", self._mark)


def _rolled_back(connection: Any) -> Exception | None:
    """Roll back; the error if that failed."""
    try:
        connection.rollback()
    except Exception as error:  # noqa: BLE001 - whatever the driver raises; the caller says so
        return error
    return None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _is_frame(rows: Any) -> bool:
    return hasattr(rows, "toLocalIterator")


def _tuples(rows: Any) -> Iterable[tuple[Any, ...]]:
    tuples: Iterable[tuple[Any, ...]] = rows_of(rows) if _is_frame(rows) else rows
    return tuples


class _Once:
    """Rows that are read once. A second loop over them would find none, and leave its table without them."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._rows: Iterable[tuple[Any, ...]] | None = rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        rows, self._rows = self._rows, None
        if rows is None:
            raise TableFailed(
                "`insert` reads its rows a second time, but a DataFrame's rows can be read once",
                action="Let `insert` make a list of them first (list(rows)), or do all with each row in one loop.",
            )
        return iter(rows)
