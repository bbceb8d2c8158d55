"""Reads from the ledger where the buckets of a query in real time are read on."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
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


class BucketReader:
    """The last committed record of each bucket. It is final once the bucket was taken."""

    def __init__(self, cluster: Cluster, transactional_id: str, signer: Signer) -> None:
        self._cluster, self._id, self._signer = cluster, transactional_id, signer

    def read(
        self, numbers: Iterable[int], began: BucketRecord, read: Collection[str], topics: Iterable[str]
    ) -> BucketRecord:
        """Where partitions are read on: where they `began`, or where these buckets have ended since, by the records in
        these ledger `topics`. `read` are the topics that will be read.

        Raises LedgerRefused if a record is not one of this query's, or if a topic that is read was created again; and
        AuthorizationFailed, BrokerError, BrokerUnreachable.
        """
        ids = self._ids(numbers)
        records = [began, *(record for topic in topics for record in self._records(topic, self._by_id(topic, ids)))]
        for record in records:
            self._require_same(record, read)
        return bucket_record.latest(records)

    def read_settled(self, numbers: Iterable[int], topics: Iterable[str]) -> Offsets:
        """Where the partitions of these buckets are read on, for those who do not own them: waits for the outcome of
        their open transactions. Raises what `read` raises, but for topics that were created again.
        """
        budget, ids, topics = self._cluster.budget(), self._ids(numbers), list(topics)
        while True:
            found = [(topic, self._by_id(topic, ids)) for topic in topics]
            if not any(records.pending for _, by_id in found for records in by_id.values()):
                break
            if (delay := budget.delay()) is None:
                raise still_open(self._id)
            self._cluster.sleep(delay)
        return bucket_record.latest(record for topic, by_id in found for record in self._records(topic, by_id)).offsets

    def _ids(self, numbers: Iterable[int]) -> list[str]:
        return [bucket_id(self._id, number) for number in numbers]

    def _records(self, topic: str, by_id: Mapping[str, LedgerRecords]) -> list[BucketRecord]:
        return [self._record(topic, name, of_id) for name, of_id in by_id.items() if of_id.last]

    def _by_id(self, topic: str, ids: Sequence[str]) -> dict[str, LedgerRecords]:
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

    def _require_same(self, record: BucketRecord, topics: Collection[str]) -> None:
        for name in sorted(record.topic_ids.keys() & set(topics)):
            before, now = record.topic_ids[name], self._cluster.topic(name).id
            if None not in (now, before) and now != before:
                raise LedgerRefused(
                    f"topic {name!r} was created again since this query has read it: its id is {now}, and was "
                    f"{before}. Nothing was written",
                    action="To read the new one, from its beginning, use another kafka.transactional.id.",
                )


def bucket_records_lost(transactional_id: str, topic: str) -> LedgerRefused:
    """For a query whose buckets' records are no longer where its last entry was."""
    return LedgerRefused(
        f"where the buckets of {transactional_id!r} have read to is not known: topic {topic!r}, which had their "
        "records, was deleted since. Nothing was written",
        action="Find out how far the query came, for example from the output, and go on under another "
        "kafka.transactional.id. The consumer group has a copy, which may be a second late.",
    )
