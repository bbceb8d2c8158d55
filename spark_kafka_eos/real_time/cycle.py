"""The transactions of one bucket, one after the other, by the one process that has its identity.

Not obvious:
- The epoch comes from the driver (`real_time.driver`). Here nothing sends InitProducerId: a task that comes back late
  must not take the bucket from the one that runs. If anything fails, the bucket's driver gives it a new epoch.
- In TV2, each EndTxn returns the next epoch, with sequences from 0. In TV1, the epoch goes on, and so do its sequences.
  So in TV1 a request that was not answered is not sent again: a late copy could arrive in the next transaction.
- The offsets are committed with the records, in the ledger, where the next start reads them (`ledger.bucket_record`
  says why). The group's are a copy for those who watch it, in transactions of their own: in each one they would cost a
  fifth of it. The group has no members (KIP-447), so only the transactional id's epoch keeps others out.
- How a transaction ended that lacks a marker, its coordinator can say only until the next one. So that one begins after
  all markers are there, also if it has only offsets.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from spark_kafka_eos.appending.blocks import Block, BlockEncoder
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.producing.sequences import next_sequence
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import add_offsets, add_partitions, end_transaction
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger import bucket_record
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.options.reserved import reserved_topics
from spark_kafka_eos.transaction.hanging import HangingTransactions

_MARKERS_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a transaction wrote: records of the output and the bytes of their record batches."""

    records: int
    bytes: int


class BucketTransactions:
    """Not thread-safe. `began` has where the bucket's partitions are read on when it starts, `sequences` those of the
    next records, if the epoch has some. `mark` is the metadata of the offsets, by which others see whose they are.
    After an error the object cannot be used: whether the transaction was committed, the ledger says.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        encoder: BlockEncoder,
        *,
        began: BucketRecord,
        group_id: str,
        mark: str,
        ledger_topic: str,
        signer: Signer = UNSIGNED,
        sequences: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        self._cluster, self._encoder, self._mark, self._signer = cluster, encoder, mark, signer
        self._ledger, self._record = TopicPartition(ledger_topic, 0), began
        self._appender = Appender(
            cluster,
            identity,
            transaction_version=identity.transaction_version,
            reserved=reserved_topics(ledger_topic),
            own=[ledger_topic],
        )
        self._group = GroupCoordinator(cluster, group_id)
        self._identity = identity
        # Of what an earlier task has copied, the marker may be missing. Only one of this bucket's own ends that.
        self._uncopied = dict(began.offsets)
        self._sequences = dict(sequences)
        self._hanging = HangingTransactions(cluster)
        self._written: Collection[TopicPartition] = ()  # where the last transaction has records
        self._written_by = identity.producer_id  # another one follows after the last epoch
        self._markers: Callable[[], str | None] | None = None  # what was asked about it

    @property
    def dead_letters(self) -> Mapping[str, int]:
        """The number of dead letters so far, by cause."""
        return self._encoder.dead_letters

    @property
    def identity(self) -> ProducerIdentity:
        """That of the next transaction."""
        return self._identity

    @property
    def sequences(self) -> Mapping[TopicPartition, int]:
        """Those of the next records, in each partition that the identity's epoch has written."""
        return dict(self._sequences)

    def ask_for_markers(self) -> None:
        """Ask whether the transaction before has ended everywhere, which `commit` must know. The brokers answer while
        what was read is decoded, converted and encoded.
        """
        self._markers = self._markers or self._markers_ahead()

    def commit(
        self,
        rows: Iterable[pa.RecordBatch],
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> Written:
        """Commit these rows, with columns of the sink, and where their partitions are read on, after records of these
        leader epochs.
        """
        blocks = [block for part in rows for block in self._encoder.add(part)]
        blocks += self._encoder.finish()
        self._require_ended()
        self._record = self._record.moved(positions, epochs)
        acks = self._append(self._identity, blocks)
        self._written = {self._ledger, *(block.partition for block in blocks)}
        self._written_by = self._identity.producer_id
        failpoint("bucket appended")
        self._end()
        self._uncopied.update(positions)
        failpoint("bucket committed")
        of_output = [ack for ack in acks if ack.partition != self._ledger]
        return Written(records=sum(ack.records for ack in of_output), bytes=sum(ack.bytes for ack in of_output))

    def copy_offsets(self) -> bool:
        """Commit to the group what it lacks of where the partitions are read on; whether it lacked any."""
        if not self._uncopied:
            return False
        self._require_ended()
        identity, again = self._identity, self._again()
        offsets = {tp: OffsetAndMetadata(offset=at, metadata=self._mark) for tp, at in self._uncopied.items()}
        version = identity.transaction_version
        add_offsets(self._cluster, identity, self._group.group_id, again=again)
        self._group.commit_in_transaction(identity, offsets, transaction_version=version, again=again)
        failpoint("bucket offsets sent")
        self._end()
        self._uncopied.clear()
        return True

    def _end(self) -> None:
        ended = end_transaction(self._cluster, self._identity, commit=True, again=self._again())
        if ended.producer != self._identity.producer:
            self._sequences.clear()
        self._identity = ended

    def _again(self) -> Callable[[], None]:
        return _sent_once if self._identity.transaction_version < 2 else _sent_again

    def _require_ended(self) -> None:
        """Wait until the transaction before has ended in all its partitions. Raises TransactionAborted if it has not:
        where Kafka left out its marker, that of the next one would end it, with that one's outcome (KAFKA-20734).
        """
        budget = self._cluster.budget(_MARKERS_MS)
        # Asked again at once: the answers were on their way when the markers came.
        delays = itertools.chain([0.0], iter(lambda: budget.delay(soon=True), None))
        lacking_marker, self._markers = self._markers or self._markers_ahead(), None
        while (where := lacking_marker()) is not None:
            if (delay := next(delays, None)) is None:
                raise _not_ended(where)
            self._cluster.sleep(delay)
            lacking_marker = self._markers_ahead()
        self._written = ()

    def _markers_ahead(self) -> Callable[[], str | None]:
        """Ask now; the function that is returned says where the transaction before has not ended."""
        if not self._written:
            return lambda: None
        hanging = self._hanging.find_ahead({self._written_by}, self._written)
        return lambda: next((str(transaction.partition) for transaction in hanging()), None)

    def _append(self, identity: ProducerIdentity, blocks: Sequence[Block]) -> Sequence[Ack]:
        self._appender.allow({block.partition.topic for block in blocks})
        batches = [(block.partition, block.data, block.records) for block in blocks]
        batches.append((self._ledger, self._ledger_batch(identity), 1))
        # Only TV1: in TV2 the first Produce adds a partition (KIP-890). A late copy would open another transaction.
        add_partitions(self._cluster, identity, {partition for partition, _, _ in batches}, again=_sent_once)
        for partition, data, records in batches:
            sequence = self._sequences.get(partition, 0)
            stamp(
                data,
                producer_id=identity.producer_id,
                epoch=identity.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            self._appender.append(partition, data, records=records, base_sequence=sequence)
            self._sequences[partition] = next_sequence(sequence, records)
        return self._appender.flush()

    def _ledger_batch(self, identity: ProducerIdentity) -> bytearray:
        value = bucket_record.encode(self._record, self._signer)
        return single.encode_record(identity.transactional_id.encode(), value, int(time.time() * 1e3))


def _sent_again() -> None:
    """In TV2: a late copy has the epoch of a transaction that is over."""


def _sent_once() -> None:
    raise TransactionAborted(
        "a request of a transaction was not answered, and in this protocol a late copy of it could change the next one",
        action="The driver starts the bucket again, in another epoch.",
    )


def _not_ended(where: str) -> TransactionAborted:
    return TransactionAborted(
        f"{where} has not got the marker of the last transaction within {_MARKERS_MS} ms",
        action="The driver ends that transaction, and starts the bucket again.",
    )
