"""The protocol for a table of Delta Lake. Version and token are in Delta's own log, in the commits that have the rows.

Each commit has the transaction identifier (`txnAppId`) `kafka-eos:KEY` at our version (`txnVersion`), and in
`userMetadata` key, version, token and a mark of its own:

    {"kafka-eos": {"key": KEY, "version": after + 1, "token": token, "mark": a random text,
                   "planned_on": the table's version when the log was read before}}

What makes it a compare-and-set (delta-io/delta 4.4, which other clients need not follow: only Spark writes this key):

- A commit that does not follow the key's last one in the log is not sent. The rest is about what comes in between.
- Delta writes nothing if its snapshot has the identifier at this version or a later one, and does not say so
  (`DeltaCommand.hasBeenExecuted`). So a commit with another mark, or none, has to be looked for.
- To ask this, it reads the identifier, which makes the commit depend on it (`OptimisticTransaction.txnVersion`). If
  another commit with the same identifier comes in between, ours fails with ConcurrentTransactionException, whatever the
  isolation level, and although both only append (`ConflictChecker`). So the versions of one key ascend, and each is of
  one commit.
- Delta puts the identifier into the commit before it asks whether that is empty, so an append of no rows is committed:
  the fence. A MERGE that changes nothing is, too. A DELETE that changes nothing is not.
- The mark tells our commit from another driver's with the same version and the same token, as two fences have.

The identifier is in the table's state and stays. `userMetadata` is not: Delta deletes old commits from its log
(`delta.logRetentionDuration`, 30 days, after a checkpoint). If the key's last commit is gone, the identifier is still
there, so nothing is written, and that is an error. `delta.setTransactionRetentionDuration`, by default not set, would
have Delta forget the identifier and let a late driver through a fence, so a table with it is refused.

RESTORE and CREATE OR REPLACE take rows from the table and leave identifiers and log as they are (delta-io/delta#1813).
So the log is read as the table's history: what a RESTORE passed over, or came before another table, is not in it. If
that is the key's last commit, rows that Kafka has are missing, which is an error.

A RESTORE that comes between that look and Delta's commit makes no conflict with it, so ours lands on top. It is noticed
at the next look: between `planned_on` and the key's last commit, nothing may have taken the one before that away. Until
then, table and Kafka both have the batch, so it is no failure of that commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.errors import TableFailed
from spark_kafka_eos.participants.participant import Conflict, TableVersion
from spark_kafka_eos.participants.refusal import ANEW
from spark_kafka_eos.spark.jvm import cloned

_FIELD = "kafka-eos"
_FIRST_READ = 20  # commits of the log that are read at first; ours is usually the last one
_FORGETS = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """What a commit says of itself in `userMetadata`. `planned_on`: the table's version at the look before, None if it
    does not say.
    """

    key: str
    version: int
    token: str | None
    mark: str
    planned_on: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """An entry of Delta's log: the table's version, and our part of it, None if it is another program's.

    `keeps`: the version up to which the table has what is older, None if it has all.
    """

    version: int
    commit: _Commit | None
    keeps: int | None

    def of(self, key: str) -> _Commit | None:
        return self.commit if self.commit is not None and self.commit.key == key else None


class DeltaParticipant:
    """A participant. `table` is its name with the schema, or delta.`/its/path`; it must exist, without columns that are
    GENERATED ALWAYS AS IDENTITY. `key` names the query, and must be no other's. Needs the Python package `delta-spark`,
    and Delta in the session.

    The rows are a DataFrame, and are appended. With `merge` they are not: `merge(session, rows)` executes one MERGE of
    this table, in `session`, which makes it the commit. It is a clone of the rows' session, with the same settings and
    temporary views. The MERGE must be of a DeltaTable of that clone:

        DeltaTable.forName(session, "sales").alias("t").merge(rows.alias("s"), "t.id = s.id")….execute()
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        *,
        key: str,
        merge: Callable[[SparkSession, DataFrame], object] | None = None,
    ) -> None:
        self._spark, self._table, self._key, self._merge = spark, table, key, merge

    def held(self) -> TableVersion:
        if _FORGETS in self._delta().detail().select("properties").collect()[0][0]:
            raise TableFailed(f"{self._table} has {_FORGETS}, with which Delta forgets fences", action="Unset it.")
        return self._look()[0]

    def commit(self, rows: DataFrame | None, token: str | None, *, after: int) -> None:
        held, planned_on = self._look()
        if held.version != after:
            raise self._conflict(after)
        own = _Commit(key=self._key, version=after + 1, token=token, mark=uuid.uuid4().hex, planned_on=planned_on)
        try:
            self._write(rows, own)
        except Exception:
            if self._has(own):  # a hook after the commit failed, or Delta met its own commit
                return
            raise
        if not self._has(own):
            raise RuntimeError(
                f"Delta has not committed version {own.version} of the key {self._key!r} to {self._table}. Either its "
                "log no longer has the key's last commit (delta.logRetentionDuration), or `merge` has not executed a "
                "MERGE of this table in the session that it was given"
            )

    def _look(self) -> tuple[TableVersion, int]:
        return _look(self._log(), self._table, self._key)

    def _write(self, rows: DataFrame | None, own: _Commit) -> None:
        identifier, metadata = f"{_FIELD}:{own.key}", json.dumps({_FIELD: asdict(own)})
        if rows is not None and self._merge is not None:
            # MERGE has no options. So that no other statement takes the version: a session of its own, like the rows'.
            session = cloned(rows.sparkSession)
            session.conf.set("spark.databricks.delta.write.txnAppId", identifier)
            session.conf.set("spark.databricks.delta.write.txnVersion", str(own.version))
            session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
            self._merge(session, rows)
            return
        if rows is None:
            rows = self._spark.createDataFrame([], self._spark.table(self._table).schema)
        options = {"txnAppId": identifier, "txnVersion": str(own.version), "userMetadata": metadata}
        # In another thread than the session's, saveAsTable takes a table with a path for a new one.
        rows.writeTo(self._table).options(**options).append()

    def _has(self, own: _Commit) -> bool:
        """Whether the table has this commit. Raises Conflict if another one has taken its version."""
        overtaken = False
        for entry in self._log():
            if (commit := entry.of(self._key)) is None:
                continue
            if commit.mark == own.mark:
                return True
            if commit.version < own.version:
                break
            overtaken = True
        if overtaken:
            raise self._conflict(own.version - 1)
        return False

    def _conflict(self, after: int) -> Conflict:
        return Conflict(f"the key {self._key!r} of {self._table} is not at version {after}")

    def _log(self) -> Iterator[_Entry]:
        """What the log still has, newest first."""
        limit, before = _FIRST_READ, None
        columns = ("version", "userMetadata", "operation", "operationParameters")
        while True:
            log = self._delta().history(limit).select(*columns).collect()
            for version, metadata, operation, parameters in log:
                if before is None or version < before:
                    before = version
                    yield _Entry(version=version, commit=_decode(metadata), keeps=_keeps(operation, parameters))
            if len(log) < limit:
                return
            limit *= 10

    def _delta(self) -> Any:
        from delta.tables import DeltaTable

        return DeltaTable.forName(self._spark, self._table)


def _look(log: Iterable[_Entry], table: str, key: str) -> tuple[TableVersion, int]:
    """What the table has of the key, by its log, newest first; and the table's own version, -1 without a log. Raises
    TableFailed if the key's last commit is not in the table any more, or the one before it was not when that one came.
    """
    last: _Commit | None = None
    newest, is_there = -1, True
    for entry, is_there in _standing(log):
        newest = max(newest, entry.version)
        if last is not None and (last.planned_on is None or (is_there and entry.version == last.planned_on)):
            break  # what was there at the look before the last commit is there
        if (commit := entry.of(key)) is None:
            continue
        if not is_there:
            at = f" (the table's version {entry.version})"
            raise _lost(table, key, commit.version, at, last)
        if last is not None:
            break
        last = commit
    else:  # the log does not have the one before it any more, if there was one; one that is complete never had it
        if last is not None and last.version > 1 and (not is_there or entry.version == 0):
            raise _lost(table, key, last.version - 1, "", last)
    return TableVersion() if last is None else TableVersion(version=last.version, token=last.token), newest


def _lost(table: str, key: str, version: int, at: str, last: _Commit | None) -> TableFailed:
    """The table does not have this version of the key any more. `last` was committed after that, None if none was."""
    meanwhile = "" if last is None else f" while version {last.version} was committed"
    action = "RESTORE it to a version that has it (TO VERSION AS OF)."
    if last is not None:
        action = f"A RESTORE to it would take version {last.version} away, so insert what is missing."
    return TableFailed(
        f"{table} was restored or replaced{meanwhile}: version {version} of the key {key!r}{at} is not in it any more, "
        "so rows that Kafka has may be missing there",
        action=f"{action} {ANEW}",
    )


def _standing(log: Iterable[_Entry]) -> Iterator[tuple[_Entry, bool]]:
    """Each entry, newest first, and whether the table still has it."""
    keeps: int | None = None
    for entry in log:
        is_there = keeps is None or entry.version <= keeps
        if is_there and entry.keeps is not None:
            keeps = entry.keeps
        yield entry, is_there


def _keeps(operation: str | None, parameters: Mapping[str, str | None] | None) -> int | None:
    """The version up to which the table still has what came before this operation; None: all of it.

    Where a RESTORE names a time, nobody knows which version that was, so nothing of what came before counts.
    """
    if operation == "RESTORE":
        return int((parameters or {}).get("version") or -1)
    return -1 if "REPLACE TABLE" in (operation or "") else None


def _decode(metadata: str | None) -> _Commit | None:
    """Our part of a commit's `userMetadata`, None if it is another program's."""
    try:
        return _Commit(**json.loads(metadata or "null")[_FIELD])
    except (ValueError, TypeError, KeyError):
        return None
