"""The protocol for a table in SQLite or PostgreSQL, with any driver of DB-API 2.0 (PEP 249).

    CREATE TABLE kafka_eos (name VARCHAR(255) PRIMARY KEY, version BIGINT NOT NULL, token TEXT)

Version and token are a row of this table, in the same database as the rows. Its update comes first in the database's
transaction: it takes the row's lock, so of two commits after the same version, the second one finds another version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.participants.participant import Conflict, Held

CREATE = "CREATE TABLE IF NOT EXISTS kafka_eos (name VARCHAR(255) PRIMARY KEY, version BIGINT NOT NULL, token TEXT)"

Insert = Callable[[Any, Iterable[tuple[Any, ...]]], None]


class SqlTable:
    """A participant. `connect` opens a connection without autocommit; each commit has one of its own. `insert` is
    executed for each row, with its values in order. Or it is a function of the cursor and the rows, tuples, that writes
    them to several tables of the database, or changes what is there; it must neither commit nor roll back. `key` names
    the query, and must be no other's. `mark` is the driver's placeholder, `?` for sqlite3, `%s` for psycopg.

    The rows are a DataFrame, which is read partition by partition into the driver, or any iterable of tuples.
    """

    def __init__(self, connect: Callable[[], Any], *, insert: str | Insert, key: str, mark: str = "?") -> None:
        self._connect, self._insert, self._key, self._mark = connect, insert, key, mark

    def create(self) -> None:
        """Create the table `kafka_eos` if it does not exist."""
        with self._transaction() as cursor:
            cursor.execute(CREATE)

    def held(self) -> Held:
        with self._transaction() as cursor:
            cursor.execute(self._marked("SELECT version, token FROM kafka_eos WHERE name = ?"), (self._key,))
            row = cursor.fetchone()
        return Held() if row is None else Held(version=row[0], token=row[1])

    def commit(self, rows: Any, token: str | None, *, after: int) -> None:
        with self._transaction() as cursor:
            if after == 0:
                statement = "INSERT INTO kafka_eos (version, token, name) VALUES (1, ?, ?) ON CONFLICT DO NOTHING"
                cursor.execute(self._marked(statement), (token, self._key))
            else:
                statement = "UPDATE kafka_eos SET version = version + 1, token = ? WHERE name = ? AND version = ?"
                cursor.execute(self._marked(statement), (token, self._key, after))
            if cursor.rowcount != 1:
                raise Conflict(f"the key {self._key!r} of kafka_eos is not at version {after}")
            if rows is not None:
                if isinstance(self._insert, str):
                    cursor.executemany(self._insert, _tuples(rows))
                else:
                    self._insert(cursor, _tuples(rows))
                failpoint("table half committed")

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor of a connection of its own, whose transaction is committed, or rolled back after an error.

        Closing alone may leave it open, and its locks: SQLite waits for the statements that the error still refers to.
        """
        with closing(self._connect()) as connection:
            try:
                yield connection.cursor()
                connection.commit()
            except BaseException:
                with suppress(Exception):  # of a lost connection; the first error says more
                    connection.rollback()
                raise

    def _marked(self, statement: str) -> str:
        return statement.replace("?", self._mark)


def _tuples(rows: Any) -> Iterable[tuple[Any, ...]]:
    found: Iterable[tuple[Any, ...]] = rows.toLocalIterator() if hasattr(rows, "toLocalIterator") else rows
    return found
