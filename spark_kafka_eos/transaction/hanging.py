"""Transactions that hang because their coordinator left out a marker: found before the next batch, and ended.

A transaction ends in a partition with its marker there. Kafka 4.3 and 4.4 leave out the partitions that have no leader
when the transaction ends, and call it complete (KAFKA-20734). When such a partition is back, its readers wait at the
transaction's first record. Worse, the next marker of the same producer id ends it, with that one's outcome: an abort
takes away what was committed, a commit shows what was aborted.

So before a batch is appended, the leaders are asked whether the producer id has a transaction open, which its
coordinator has ended. The ledger knows the outcome, because a transaction that commits has a record there. Then:
- What was committed gets its commit marker from this process: one request, which a crash cannot leave half done. It
  needs the right to write markers.
- What was aborted is added to a transaction that is aborted. A crash in between aborts it, too.
- A group whose offsets stay pending is treated likewise: aborted. If the batch was committed, its record in the
  ledger is newer than the pointer, and counts.
- After the last epoch of a producer id, another one goes on, whose markers end nothing of the old one. There only a
  marker of this process helps, also for what was aborted.

Sources: KIP-98 (markers), KIP-664 (DescribeProducers), Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, LedgerRefused
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts, open_in
from spark_kafka_eos.kafka.protocol.markers import write_marker
from spark_kafka_eos.kafka.protocol.producers import producers_ahead
from spark_kafka_eos.kafka.protocol.transactions import add_offsets, add_partitions, end_transaction
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC

_log = logger(__name__)

CAUSE = "Kafka 4.3 and 4.4 end a transaction without a marker where a partition has no leader (KAFKA-20734)"
_ENDED = "It is ended there now, too."


class HangingTransactions:
    """Those of one transactional.id. Every method may raise BrokerError, BrokerUnreachable, and ProducerFenced if
    another producer has the id.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._undescribed: set[str] = set()  # topics of which brokers do not say it
        self._lacking = False  # brokers without the request
        self._ignored: set[tuple[TopicPartition, int]] = set()  # where no batch can change the outcome
        self.topics: set[str] = set()  # in which the id had a transaction open, as its coordinator said
        self.producer_ids: set[int] = set()  # which the id had, as its coordinator said

    def note(self, facts: TransactionFacts) -> None:
        """The coordinator says this of the id: a transaction that is open now may hang later."""
        self.topics |= {tp.topic for tp in facts.partitions} - {OFFSETS_TOPIC}
        self.producer_ids.add(facts.producer_id)

    def find(self, ids: Collection[int], partitions: Collection[TopicPartition]) -> list[ProducerState]:
        """Where one of these producer ids has a transaction open. Old brokers lack the request, and it needs Read on
        the topics. Without that right, wait for every currently open transaction to end. Raises LedgerRefused if that
        lasts longer than delivery.timeout.ms.
        """
        return self.find_ahead(ids, partitions)()

    def find_ahead(
        self, ids: Collection[int], partitions: Collection[TopicPartition]
    ) -> Callable[[], list[ProducerState]]:
        """As `find`, which the function that is returned ends; the brokers are asked now."""
        asked = [tp for tp in partitions if tp.topic not in self._undescribed]
        remembered = None if self._lacking or not asked else producers_ahead(self._cluster, asked)

        def wait() -> list[ProducerState]:
            self._await_ends([tp for tp in partitions if tp.topic in self._undescribed])
            if remembered is None:
                return []
            try:
                return self._open_in(ids, remembered())
            except AuthorizationFailed as error:
                topics = sorted({tp.topic for tp in asked})
                if len(topics) == 1:
                    _log.info("cannot see who has a transaction open: %s", error)
                    self._undescribed.add(topics[0])
            except BrokerError as error:
                if error.code != ErrorCode.UNSUPPORTED_VERSION:
                    raise
                self._lacking = True
                return []
            return [
                open_producer
                for topic in topics
                for open_producer in self.find(ids, [tp for tp in asked if tp.topic == topic])
            ]

        return wait

    def _await_ends(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until the last stable offset has reached what is now the end."""
        log_ends = offsets.log_ends(self._cluster, partitions)
        ends = {tp: log_end.high_watermark for tp, log_end in log_ends.items() if log_end.lag}
        budget = self._cluster.budget()
        while ends:
            delay = budget.delay(soon=True)
            if delay is None:
                where = ", ".join(map(str, sorted(ends)))
                raise LedgerRefused(
                    f"a transaction is open in {where}, and has been for {budget.milliseconds} ms. It may be one of "
                    f"this id, with the marker left out: {CAUSE}. This principal is not authorized to see which "
                    "transactional id owns it",
                    action="Grant Read on the topics that the query writes. Then start it again.",
                )
            self._cluster.sleep(delay)
            stable = offsets.latest(self._cluster, ends)
            ends = {tp: end for tp, end in ends.items() if stable[tp] < end}

    def _open_in(
        self, ids: Collection[int], remembered: Mapping[TopicPartition, Iterable[ProducerState]]
    ) -> list[ProducerState]:
        transactions = (producer for states in remembered.values() for producer in open_in(states))
        return [
            producer
            for producer in transactions
            if producer.producer_id in ids and _place(producer) not in self._ignored
        ]

    def commit(self, producer: ProducerState) -> None:
        """Write the marker of a transaction that was committed."""
        _log.warning("a committed transaction hangs in %s: %s. %s", producer.partition, CAUSE, _ENDED)
        try:
            write_marker(self._cluster, producer, commit=True)
        except AuthorizationFailed as error:
            raise LedgerRefused(
                f"{_described(producer)} of a committed batch, without the marker: {CAUSE}. Until the marker is "
                "written, consumers cannot read these records, and a later transaction could abort them. This "
                f"principal is not authorized to write it: {error.what}",
                action=f"{error.action} Then start the query again: it writes the marker. The right is needed once.",
            ) from error

    def abort_former(self, producer: ProducerState) -> None:
        """Write the marker of an aborted transaction of a former producer id, if this principal may."""
        try:
            write_marker(self._cluster, producer, commit=False)
        except AuthorizationFailed as error:
            self.leave(producer, f"{error}")

    def leave(self, producer: ProducerState, why: str) -> None:
        """Leave a transaction of a former producer id as it is: readers wait, but no batch can change its outcome."""
        _log.warning("a transaction hangs in %s, and its readers wait: %s. %s", producer.partition, CAUSE, why)
        self._ignored.add(_place(producer))

    def abort(
        self, identity: ProducerIdentity, hanging: Iterable[ProducerState] = (), groups: Iterable[str] = ()
    ) -> None:
        """Abort what hangs in partitions, and the offsets that stay pending in `groups`. InitProducerId must follow.

        With the requests of TV1, which every broker accepts, because in TV2 only an append adds a partition.
        """
        partitions, groups = [producer.partition for producer in hanging], list(groups)
        where = ", ".join([*map(str, partitions), *(f"group {group}" for group in groups)])
        _log.warning("an aborted transaction hangs in %s: %s. %s", where, CAUSE, _ENDED)
        if identity.transaction_version >= 2:
            identity = replace(identity, transaction_version=1)
        add_partitions(self._cluster, identity, partitions)
        for group in groups:
            add_offsets(self._cluster, identity, group)
        end_transaction(self._cluster, identity, commit=False)


def undecided(producer: ProducerState, why: str) -> LedgerRefused:
    """What to raise if the outcome is unknown."""
    return LedgerRefused(
        f"{_described(producer)} of this transactional.id, without the marker: {CAUSE}. {why}, so their outcome is "
        "unknown; the next batch would commit or abort them by accident",
        action="Look at these records with a read_uncommitted consumer. If they must not be seen, run: kafka-eos "
        f"transactions abort {place_of(producer)}. If their batch was committed, add --commit. Then start the query "
        "again.",
    )


def place_of(producer: ProducerState) -> str:
    """The transaction as the options of `kafka-eos transactions abort`."""
    at = producer.partition
    return f"--topic {at.topic} --partition {at.partition} --start-offset {producer.start_offset}"


def _place(producer: ProducerState) -> tuple[TopicPartition, int]:
    return producer.partition, producer.producer_id


def _described(producer: ProducerState) -> str:
    return (
        f"{producer.partition} has records from offset {producer.start_offset} on, of producer {producer.producer_id}, "
        f"epoch {producer.epoch},"
    )
