"""Reads from the ledger where the buckets of a query in real time are read on."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger import bucket_record
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.entry_format import NotAnEntry
from spark_kafka_eos.ledger.records import LedgerRecords
from spark_kafka_eos.ledger.signing import Signer
from spark_kafka_eos.ledger.topic import read_end, still_open
from spark_kafka_eos.options.sink import bucket_id

# Offsets of the ledger topic, from its end: those of some seconds, and those of a minute, which take ten times as long.
_SPANS = (400, 4_000, sys.maxsize)
_BY_HAND = (
    "Find out how far the query came, for example from the output, and go on under another kafka.transactional.id."
)


class BucketReader:
    """The last committed record of each bucket, by its number. It is final once the bucket was taken."""

    def __init__(self, cluster: Cluster, transactional_id: str, signer: Signer) -> None:
        self._cluster, self._id, self._signer = cluster, transactional_id, signer

    def read(self, numbers: Iterable[int], topics: Iterable[str]) -> dict[int, BucketRecord]:
        """Those of these buckets, in these ledger `topics`.

        Raises LedgerRefused if a record is not one of this query's; and AuthorizationFailed, BrokerError,
        BrokerUnreachable.
        """
        ids = self._ids(numbers)
        return self._records(ids, ((topic, self._by_id(topic, ids)) for topic in topics))

    def read_settled(self, numbers: Iterable[int], topics: Iterable[str]) -> dict[int, BucketRecord]:
        """The same for those who do not own the buckets: waits for the outcome of their open transactions."""
        budget, ids, topics = self._cluster.budget(), self._ids(numbers), list(topics)
        while True:
            found = [(topic, self._by_id(topic, ids)) for topic in topics]
            if not any(records.pending for _, by_id in found for records in by_id.values()):
                break
            if (delay := budget.delay()) is None:
                raise still_open(self._id)
            self._cluster.sleep(delay)
        return self._records(ids, found)

    def _ids(self, numbers: Iterable[int]) -> dict[str, int]:
        return {bucket_id(self._id, number): number for number in numbers}

    def _records(
        self, ids: Mapping[str, int], found: Iterable[tuple[str, Mapping[str, LedgerRecords]]]
    ) -> dict[int, BucketRecord]:
        """The decoded ones; of a bucket with records in two topics, as the ledger has moved, the later one."""
        records: dict[int, BucketRecord] = {}
        for topic, by_id in found:
            for name, of_id in by_id.items():
                if of_id.last is not None:
                    record = self._record(topic, name, of_id)
                    before = records.setdefault(ids[name], record)
                    records[ids[name]] = max(before, record, key=lambda each: each.serial)
        return records

    def _by_id(self, topic: str, ids: Collection[str]) -> dict[str, LedgerRecords]:
        if not self._cluster.exists(topic, patience_ms=0):
            return {}
        # Who runs has written lately. Only for a bucket that had nothing to read for long, all is read.
        for span in _SPANS:
            log, is_all = read_end(self._cluster, TopicPartition(topic, 0), span)
            if is_all or all(name in log.by_id and log.by_id[name].last is not None for name in ids):
                break
        return {name: log.by_id[name] for name in ids if name in log.by_id}

    def _record(self, topic: str, name: str, records: LedgerRecords) -> BucketRecord:
        try:
            if records.outside is not None:
                raise NotAnEntry(f"the one at offset {records.outside.offset} was not written in a transaction")
            return bucket_record.decode((records.last and records.last.value) or b"", self._signer.of(name))
        except NotAnEntry as error:
            raise LedgerRefused(
                f"where {name!r} has read to is not known: its record in topic {topic!r} is none of this query "
                f"({error}). Nothing was written",
                action="If ledgerKey was changed, set it to what it was, with the new key before it. Otherwise find "
                "out how far the query came, for example from the output, and go on under another "
                "kafka.transactional.id.",
            ) from error

    def require_same(self, record: BucketRecord, topics: Collection[str]) -> None:
        """Raise LedgerRefused if one of these topics, which are read, was created again since the record."""
        for name in sorted(record.topic_ids.keys() & set(topics)):
            before, now = record.topic_ids[name], self._cluster.topic(name).id
            if None not in (now, before) and now != before:
                raise LedgerRefused(
                    f"topic {name!r} was created again since this query has read it: its id is {now}, and was "
                    f"{before}. Nothing was written",
                    action="To read the new one, from its beginning, use another kafka.transactional.id.",
                )


def impossible_record(transactional_id: str, number: int, serial: int, last: int) -> LedgerRefused:
    """For a query with a record of this bucket that a commit with the number `serial` has started, after the last
    entry, which is commit `last`.
    """
    return LedgerRefused(
        f"where the buckets of {transactional_id!r} have read to is not known: the last record of bucket {number} is "
        f"of a run in real time that commit {serial} began, but the ledger's last commit is number {last}. So the "
        "numbers began again, after an entry that was lost or could not be read. Nothing was written",
        action=_BY_HAND,
    )


def bucket_records_lost(transactional_id: str, topic: str) -> LedgerRefused:
    """For a query whose buckets' records are no longer where its last entry was."""
    return LedgerRefused(
        f"where the buckets of {transactional_id!r} have read to is not known: topic {topic!r}, which had their "
        "records, was deleted since. Nothing was written",
        action=f"{_BY_HAND} The consumer group has a copy, which may be a second late.",
    )
