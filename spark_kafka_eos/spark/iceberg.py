"""The protocol for a table of Apache Iceberg. Version and token are in the summary of a snapshot that a tag names.

Each commit is one exchange of the table's metadata, with all of this:

- what Spark has staged before, on a branch of its own, is picked onto `main`: the rows;
- an append without files follows it, with `{"key": KEY, "version": after + 1, "token": token}` in its summary;
- the tag `kafka-eos:KEY` moves to that snapshot, and the key's staging branches go. A fence is the same without rows.

What makes it a compare-and-set (Iceberg 1.12):

- Iceberg's own commits (`PendingUpdate.commit`) are tried again on top of whatever came in between, so a late driver's
  append would land after a fence. So the metadata is built in a Transaction whose start was looked at, and goes to
  `TableOperations.commit(start, new)`, which succeeds only if the table still is at that start, and never tries again.
  After a failure we look again at the version first.
- A REST catalog gets the changes, not the metadata, and requires for each branch and tag that moves that it is still
  where it was at the start (`UpdateRequirements`). Each of our commits moves the tag to a new snapshot, and nobody else
  moves it. So a commit after an old version fails there as well, even if `main` was rolled back to what it was.
- A snapshot that a tag names is kept by `expire_snapshots`, with its summary; the tag has no maximal age of its own
  that the table's could shorten. Compaction and rollback move `main` only. So the version never goes back.
- HadoopTableOperations relies on a rename that does not replace a file. Only HDFS has it: elsewhere it is refused.

What `merge` has staged depends on what it has read. So it is picked only if `main` is where the branch began, and is
else staged anew. A batch that is appended does not depend on that.

If `main` no longer descends from the tag's snapshot, the table was rolled back or replaced, and rows that Kafka has are
missing there: nothing is read or committed. It is not noticed if the snapshots between have been expired since.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.errors import ConfigurationError, TableFailed
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.participants.participant import Conflict, TableVersion
from spark_kafka_eos.participants.refusal import ANEW
from spark_kafka_eos.spark.jvm import file_system, iceberg_table, is_classic, raising

_FIELD = "kafka-eos"
_MOST_TRIES = 20  # as many other commits may come in between
_FOR_EVER = 2**63 - 1  # ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """Snapshots of a staging branch, oldest first, which began at the snapshot `start` of main."""

    start: int
    snapshots: tuple[int, ...]


class IcebergParticipant:
    """A participant. `table` is its name with catalog and schema; it must exist. `key` names the query, and must be no
    other's. Needs Iceberg in the session, and classic Spark (not Connect).

    The rows are a DataFrame, and are appended. With `merge` they are not: `merge(rows, table)` executes MERGE, UPDATE,
    DELETE or INSERT on the table of the name that it gets, in the session of the rows:

        rows.createOrReplaceTempView("news")
        rows.sparkSession.sql(f"MERGE INTO {table} t USING news s ON t.id = s.id WHEN …")

    It is called again if another program has committed to the table meanwhile.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        *,
        key: str,
        merge: Callable[[DataFrame, str], object] | None = None,
    ) -> None:
        if not is_classic(spark):
            raise ConfigurationError("spark", "IcebergParticipant needs a classic session: Spark Connect shows no JVM")
        self._spark, self._table, self._key, self._merge = spark, table, key, merge
        self._tag = f"{_FIELD}:{key}"

    def held(self) -> TableVersion:
        return self._held(self._load(self._spark).operations().refresh())

    def commit(self, rows: DataFrame | None, token: str | None, *, after: int) -> None:
        # In the session of the rows: another one's catalog would have a table with a state of its own.
        table = self._load(self._spark if rows is None else rows.sparkSession)
        summary = json.dumps({"key": self._key, "version": after + 1, "token": token})
        staged: _Staged | None = None
        tried: set[int] = set()
        for _ in range(_MOST_TRIES):
            transaction = table.newTransaction()
            start = transaction.startMetadata()
            if start != transaction.currentMetadata():
                continue  # another thread came between the two
            if any(start.snapshot(snapshot_id) is not None for snapshot_id in tried):
                return  # it was applied, although the answer was another one
            if self._held(start).version != after:
                raise Conflict(f"the key {self._key!r} of {self._table} is not at version {after}")
            if rows is not None and not self._fits(staged, start):
                staged = self._stage(rows, table, transaction) or staged
                continue
            self._build(transaction, staged, summary)
            tried.add(_main(transaction.currentMetadata()))
            if self._sent(table, transaction):
                return
        raise RuntimeError(
            f"other programs have committed to {self._table} {_MOST_TRIES} times, each time before version {after + 1} "
            f"of the key {self._key!r}, so this one was given up"
        )

    # -- what the table holds

    def _held(self, metadata: Any) -> TableVersion:
        """What this state of the table holds of the key."""
        tagged = self._tagged(metadata)
        if tagged is None:
            return TableVersion()
        summary = _decode(metadata.snapshot(tagged).summary().get(_FIELD))
        if summary is None or summary["key"] != self._key:
            raise TableFailed(
                f"the tag {self._tag!r} of {self._table} names snapshot {tagged}, which is not a commit of this key: "
                "another program has moved it",
                action="Move it back.",
            )
        if not _may_descend(metadata, tagged):
            raise TableFailed(
                f"{self._table} was rolled back or replaced: version {summary['version']} of the key {self._key!r} "
                f"(snapshot {tagged}) is not in its history any more, so rows that Kafka has may be missing there",
                action=f"Set the table to a snapshot that has it. {ANEW}",
            )
        return TableVersion(version=summary["version"], token=summary["token"])

    def _tagged(self, metadata: Any) -> int | None:
        """The snapshot of the key's last commit."""
        ref = metadata.ref(self._tag)
        return None if ref is None else int(ref.snapshotId())

    # -- the rows

    def _fits(self, staged: _Staged | None, metadata: Any) -> bool:
        """Whether this state of the table can get what is staged."""
        return staged is not None and (self._merge is None or staged.start == _main(metadata))

    def _stage(self, rows: DataFrame, table: Any, transaction: Any) -> _Staged | None:
        """Have Spark write to a branch that begins where `transaction` does; None if it could not be made."""
        branch = f"{self._tag}:{uuid.uuid4().hex}"
        if transaction.currentMetadata().currentSnapshot() is None:
            transaction.newFastAppend().commit()  # so that there is something to begin at
        manage = transaction.manageSnapshots()
        manage.createBranch(branch)
        manage.commit()
        start = _main(transaction.currentMetadata())
        if not self._sent(table, transaction):
            return None
        name = f"{self._table}.`branch_{branch.replace('`', '``')}`"
        if self._merge is None:
            rows.writeTo(name).append()
        else:
            self._merge(rows, name)
        failpoint("table half committed")
        snapshots = _since(start, table.operations().refresh(), branch)
        if not snapshots:
            raise RuntimeError(
                f"Spark has committed nothing to the branch {branch!r} of {self._table}: spark.wap.id is set, or "
                "`merge` has not changed the table that it was given. If it has changed another one, that is not undone"
            )
        return _Staged(start=start, snapshots=snapshots)

    # -- the commit

    def _build(self, transaction: Any, staged: _Staged | None, summary: str) -> None:
        """Put everything that belongs to one commit into `transaction`."""
        if staged is not None:
            manage = transaction.manageSnapshots()
            for snapshot in staged.snapshots:
                manage.cherrypick(snapshot)
            manage.commit()
        append = transaction.newFastAppend()
        append.set(_FIELD, summary)
        append.commit()
        metadata, manage = transaction.currentMetadata(), transaction.manageSnapshots()
        if self._tagged(metadata) is None:
            manage.createTag(self._tag, _main(metadata))
        else:
            manage.replaceTag(self._tag, _main(metadata))
        manage.setMaxRefAgeMs(self._tag, _FOR_EVER)
        for name in metadata.refs():  # our own branch, and those of drivers that are gone or have been overtaken
            if _is_branch_of(self._tag, name) and metadata.ref(name).isBranch():
                manage.removeBranch(name)
        manage.commit()

    def _sent(self, table: Any, transaction: Any) -> bool:
        """Commit `transaction` once, if the table still is where it began; False if it may not be committed. Any other
        error leaves that open.
        """
        try:
            with raising(_NotCommitted, "org.apache.iceberg.exceptions.CommitFailedException"):
                table.operations().commit(transaction.startMetadata(), transaction.currentMetadata())
        except _NotCommitted:
            return False
        return True

    # -- the table

    def _load(self, session: SparkSession) -> Any:
        table = iceberg_table(session, self._table)
        if table.operations().getClass().getSimpleName() == "HadoopTableOperations":
            scheme = file_system(session, table.location())
            if scheme != "hdfs":
                raise RuntimeError(
                    f"{self._table} is a table of a Hadoop catalog on {scheme!r}, where of two commits at once the "
                    "second may replace the first: use another catalog, or HDFS. Nothing was committed"
                )
        return table


class _NotCommitted(Exception):
    """The table is no longer where the commit began, as far as Iceberg knows."""


def _main(metadata: Any) -> int:
    """The current snapshot, -1 if there is none."""
    snapshot = metadata.currentSnapshot()
    return -1 if snapshot is None else int(snapshot.snapshotId())


def _may_descend(metadata: Any, ancestor: int) -> bool:
    """Whether main descends from `ancestor`; also if that is unknown, because a snapshot between is expired."""
    snapshot = metadata.currentSnapshot()
    if snapshot is None:
        return False
    while snapshot is not None:
        if snapshot.snapshotId() == ancestor:
            return True
        parent = snapshot.parentId()
        if parent is None:
            return False
        snapshot = metadata.snapshot(parent)
    return True


def _since(start: int, metadata: Any, branch: str) -> tuple[int, ...]:
    """The snapshots of `branch` after `start`, oldest first; none if it does not descend from it."""
    ref = metadata.ref(branch)
    snapshot = None if ref is None else metadata.snapshot(ref.snapshotId())
    snapshot_ids: list[int] = []
    while snapshot is not None and snapshot.snapshotId() != start:
        snapshot_ids.insert(0, int(snapshot.snapshotId()))
        parent = snapshot.parentId()
        snapshot = None if parent is None else metadata.snapshot(parent)
    return () if snapshot is None else tuple(snapshot_ids)


def _is_branch_of(tag: str, name: str) -> bool:
    """Whether `name` is a staging branch of the key of `tag`."""
    key, _, own = name.rpartition(":")
    return key == tag and len(own) == len(uuid.uuid4().hex)


def _decode(summary: str | None) -> dict[str, Any] | None:
    """Our part of a snapshot's summary, None if it has none."""
    value = json.loads(summary or "null")
    return value if isinstance(value, dict) and value.keys() == {"key", "version", "token"} else None
