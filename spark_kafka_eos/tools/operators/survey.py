"""Transactions as coordinators and leaders describe them (KIP-664), and who will end one that is open. Pure.

The coordinator of a transactional.id knows the producer, the state and the partitions of its transaction. The leader of
a partition knows, for each producer id, where its open transaction starts there. A transaction hangs in a partition if
it is open there, and no coordinator has that partition in a transaction that it will end. It holds the last stable
offset until an operator aborts it.

All times are in milliseconds, those of an event since 1970 by the clock of the broker that saw it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, ProducerState, TransactionFacts, open_in
from spark_kafka_eos.tools.operators.known import least


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional.id in a coordinator's list; `coordinator` is that broker's node id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Ending(StrEnum):
    """Who ends a transaction that is open in a partition."""

    OWNER = "ongoing"  # its producer; the coordinator, once its timeout has passed
    COORDINATOR = "ending"  # it is decided, and the marker is on its way
    NOBODY = "hanging"
    UNKNOWN = "unknown"  # not every coordinator could be asked, or this principal may not describe every id


class LastOutcome(StrEnum):
    """How a transaction that hangs in a partition has ended in the others: its coordinator left out a marker
    (KAFKA-20734).
    """

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """The part of an open transaction in one partition: what its leader and its coordinator say together.

    `facts` is None if no coordinator lists the producer id. `log_ends` are the partition's, None if they could not be
    read. `holds`: it is the oldest one in the partition, so that the last stable offset waits for it. `outcome` is None
    if its coordinator does not say it.
    """

    producer: ProducerState
    facts: TransactionFacts | None
    ending: Ending
    log_ends: LogEnds | None
    holds: bool
    outcome: LastOutcome | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.producer.partition

    @property
    def abort_command(self) -> str:
        """What an operator runs to abort it."""
        tp = self.partition
        return (
            f"kafka-eos transactions abort --topic {tp.topic} --partition {tp.partition} "
            f"--start-offset {self.producer.start_offset}"
        )

    @property
    def commit_command(self) -> str:
        """What an operator runs to commit it."""
        return f"{self.abort_command} --commit"

    @property
    def end_command(self) -> str:
        """What an operator runs to end it if it hangs: it aborts, unless its coordinator says that it was committed."""
        return self.commit_command if self.outcome is LastOutcome.COMMITTED else self.abort_command

    @property
    def held_offsets(self) -> int | None:
        """By how many offsets it alone holds back the last stable offset: 0 if an older one does, None if unknown."""
        if not self.holds:
            return 0
        return None if self.log_ends is None else self.log_ends.lag

    @property
    def since_ms(self) -> int | None:
        """Since when it can hold the offset: its beginning by its coordinator, else its last record's timestamp."""
        if self.ending in (Ending.OWNER, Ending.COORDINATOR) and self.facts is not None:
            return self.facts.started_ms
        return self.producer.last_timestamp_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCounts:
    """KIP-98's counts of a partition: producer ids that its leader remembers, and open transactions."""

    producer_ids: int
    open_transactions: int


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What coordinators and leaders returned, at `taken_ms` by this machine's clock.

    `listings` are all transactional.ids that this principal may describe, `transactions` those that were described, by
    id. `producers` and `log_ends` are of the partitions that were looked at. `unavailable` and `silent` are the
    partitions and brokers that did not answer, also those that are down and coordinate what nobody else does, with the
    reason; `left_out`: why topics may be missing. `complete`:
    every transaction of the cluster is in `listings`, so that a producer id without one hangs. `transaction_version` is
    the cluster's.
    """

    taken_ms: int
    listings: tuple[TransactionListing, ...] = ()
    transactions: Mapping[str, TransactionFacts] = field(default_factory=dict)
    producers: Mapping[TopicPartition, tuple[ProducerState, ...]] = field(default_factory=dict)
    log_ends: Mapping[TopicPartition, LogEnds] = field(default_factory=dict)
    unavailable: Mapping[TopicPartition, str] = field(default_factory=dict)
    silent: Mapping[int, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    complete: bool = False
    transaction_version: int = 0

    @property
    def open_transactions(self) -> list[TransactionFacts]:
        """Those that their coordinators have open, the oldest first."""
        transactions = [facts for facts in self.transactions.values() if facts.is_open]
        return sorted(transactions, key=lambda facts: (-(facts.age_ms or 0), facts.transactional_id))

    @cached_property  # a table asks for each of its rows
    def open_parts(self) -> list[OpenPart]:
        """What the leaders have open, sorted by partition and offset."""
        names = {listing.producer_id: listing.transactional_id for listing in self.listings}
        return [
            OpenPart(
                producer=producer,
                facts=(facts := self.transactions.get(names.get(producer.producer_id, ""))),
                ending=self._ending(producer, facts, listed=producer.producer_id in names),
                log_ends=self.log_ends.get(tp),
                holds=at == 0,
                outcome=outcome(producer, facts, self.transaction_version),
            )
            for tp in sorted(self.producers)
            for at, producer in enumerate(open_in(self.producers[tp]))
        ]

    @property
    def hanging(self) -> list[OpenPart]:
        """The parts that nobody will end."""
        return [part for part in self.open_parts if part.ending is Ending.NOBODY]

    def parts_of(self, transactional_id: str) -> list[OpenPart]:
        """The open parts whose producer id belongs to this id."""
        return self._parts_by_id.get(transactional_id, [])

    def held_by(self, transactional_id: str) -> int | None:
        """How many offsets this id holds back, as far as that is known; None instead of 0 if a partition is unknown."""
        counts = [part.held_offsets for part in self.parts_of(transactional_id)]
        facts = self.transactions.get(transactional_id)
        unseen = [] if facts is None else [None for tp in facts.partitions if tp in self.unavailable]
        return least([0, *counts, *unseen])

    @cached_property
    def _parts_by_id(self) -> dict[str, list[OpenPart]]:
        parts: dict[str, list[OpenPart]] = {}
        for part in self.open_parts:
            if part.facts is not None:
                parts.setdefault(part.facts.transactional_id, []).append(part)
        return parts

    def _ending(self, producer: ProducerState, facts: TransactionFacts | None, *, listed: bool) -> Ending:
        if facts is None and listed:  # its description did not come
            return Ending.UNKNOWN
        return ending(producer, facts, complete=self.complete)


def ending(producer: ProducerState, facts: TransactionFacts | None, *, complete: bool) -> Ending:
    """Who ends the open transaction of `producer`, given what the coordinator says of its id.

    `facts` is None if no coordinator lists the producer id, and `complete` whether all of them were asked and returned
    every id. The judgement is Kafka's own (`kafka-transactions.sh find-hanging`).
    """
    if facts is None:
        return Ending.NOBODY if complete else Ending.UNKNOWN
    if not facts.is_open or producer.partition not in facts.partitions:
        return Ending.NOBODY
    return Ending.OWNER if facts.state == "Ongoing" else Ending.COORDINATOR


def outcome(producer: ProducerState, facts: TransactionFacts | None, transaction_version: int) -> LastOutcome | None:
    """How this transaction ended, if it is the last one of its coordinator.

    In TV2 every end raises the epoch, so the last one had the epoch before. In TV1 the owner may have gone on with the
    same epoch since, and what is open may be a request that came too late: nothing is known.
    """
    if transaction_version < 2 or facts is None or facts.producer != (producer.producer_id, producer.epoch + 1):
        return None
    match facts.state:
        case "CompleteCommit":
            return LastOutcome.COMMITTED
        case "CompleteAbort":
            return LastOutcome.ABORTED
    return None


def producer_counts(
    producers: Mapping[TopicPartition, tuple[ProducerState, ...]],
) -> dict[TopicPartition, ProducerCounts]:
    """KIP-98's counts of each partition."""
    return {
        tp: ProducerCounts(producer_ids=len(remembered), open_transactions=len(open_in(remembered)))
        for tp, remembered in producers.items()
    }


def active_ids(listings: Iterable[TransactionListing]) -> dict[int, Counter[str]]:
    """KIP-98's count of active transactional.ids, by coordinator and state."""
    counted: dict[int, Counter[str]] = {}
    for listing in listings:
        counted.setdefault(listing.coordinator, Counter())[listing.state] += 1
    return counted
