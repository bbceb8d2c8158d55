"""The transactional ids of the buckets of a run in real time (`real_time`), and how a driver takes them.

A record of the ledger says where a bucket has ended, not in which transaction. So if a marker was left out
(transaction.hanging), how the transaction ended is known only from the coordinator, before the bucket is taken: that is
asked first. It can only be the last one, because a task appends nothing before the transaction before has ended in all
its partitions. If it is open then, the coordinator is asked again while it ends: its task may still live, and commit it
before InitProducerId can abort it. And an open transaction of a later epoch than the one that was taken does not hang:
it is that of another driver's task.

InitProducerId leaves nothing of what the coordinator knew. So it is sent only once the leaders answer that have to say
what hangs. And what the coordinator said before counts only if the epoch that is given then is the next one. If a
transaction has ended in between, that took an epoch, too: but for a commit in TV1, which follows a commit, because
after an abort no task has the epoch.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from spark_kafka_eos.errors import LedgerRefused, ProducerFenced, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe, offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts
from spark_kafka_eos.kafka.protocol.transactions import init_producer_id
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import bucket_id, ledger_topics, written_topics
from spark_kafka_eos.transaction.hanging import HangingTransactions, place_of, undecided
from spark_kafka_eos.transaction.steps import OwnerFacts, described

_TIMEOUT_MS = 10_000  # a transaction lasts milliseconds; one that a killed worker leaves open holds readers back


def last_outcome(facts: OwnerFacts) -> Literal["committed", "aborted", "unknown"]:
    """How the last transaction of an id ended, by what its coordinator said last before InitProducerId was answered.
    One that was open then has ended since, by itself.
    """
    match facts:
        case None:
            return "aborted"  # the id is new, or nothing was written under it for a week
        case TransactionFacts(state="PrepareCommit" | "CompleteCommit"):
            return "committed"
        case TransactionFacts(state="PrepareEpochFence" | "PrepareAbort" | "CompleteAbort"):
            return "aborted"
    return "unknown"


def known_of(before: OwnerFacts, facts: OwnerFacts, taken: ProducerIdentity | None) -> OwnerFacts:
    """What is known of an id of which its coordinator has said `before`, and now says `facts`. If it is still as this
    process has `taken` it, no transaction was begun since.
    """
    if (
        isinstance(before, TransactionFacts)
        and isinstance(facts, TransactionFacts)
        and facts.state == "Empty"
        and taken is not None
        and taken.producer == (facts.producer_id, facts.epoch)
    ):
        return replace(facts, state=before.state)
    return facts


def known_once_taken(facts: OwnerFacts, taken: ProducerIdentity) -> OwnerFacts:
    """What is known after `facts` once InitProducerId has returned `taken`: not how the last transaction ended, if that
    may have been another one.
    """
    if not isinstance(facts, TransactionFacts) or taken.producer == (facts.producer_id, facts.epoch + 1):
        return facts
    return replace(facts, state="Empty")


class Buckets:
    """The buckets of one query, for who has taken the query's own transactional id. Not thread-safe.

    Every method may raise LedgerRefused if it is not known how a transaction ended that lacks a marker, and what the
    requests raise.
    """

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._cluster, self._options = cluster, options
        self._hanging = HangingTransactions(cluster)
        self.identities: dict[int, ProducerIdentity] = {}  # of those that were taken
        self._facts: dict[int, OwnerFacts] = {}  # of their last transactions, before that
        self._former: dict[int, int] = {}  # the producer ids that this process has taken before

    def take(self, numbers: Iterable[int]) -> None:
        """A new epoch for each of these: what is open is aborted, what is being committed is waited for, and whoever
        had it can commit nothing more. What hangs is ended.
        """
        taken = sorted(numbers)
        for number in taken:
            ask = functools.partial(described, self._cluster, self._id(number))
            facts, last = describe.settled(self._cluster, ask), self.identities.get(number)
            known = known_of(self._facts.get(number), facts, last)
            if known is facts and last is not None:
                self._former[number] = last.producer_id
            self._note(number, known)
        self._require_leaders(taken)
        for number in taken:
            self._initialise(number, functools.partial(self._look_again, number))
            self._facts[number] = known_once_taken(self._facts[number], self.identities[number])
        self._end_hanging(taken)

    def existing(self, least: int) -> int:
        """How many there are by what their coordinators say, at least `least`. Of ids that this principal may not
        describe, it has begun no transaction either.
        """
        following = itertools.count(least)
        asked = ((number, described(self._cluster, self._id(number))) for number in following)
        return next(number for number, facts in asked if not isinstance(facts, TransactionFacts))

    def _note(self, number: int, facts: OwnerFacts) -> None:
        self._facts[number] = facts
        if isinstance(facts, TransactionFacts):
            self._hanging.note(facts)

    def _require_leaders(self, numbers: Iterable[int]) -> None:
        """Raise what ListOffsets raises if a leader that these buckets may have to ask what hangs does not answer."""
        if any(isinstance(self._facts[number], TransactionFacts) for number in numbers):
            offsets.earliest(self._cluster, self._written())

    def _look_again(self, number: int) -> None:
        """Ask how the transaction ends that InitProducerId may have aborted, or its task committed before. If the
        request was applied, nothing can be seen of that any more.
        """
        facts = described(self._cluster, self._id(number))
        if isinstance(facts, TransactionFacts) and facts.state != "Empty":
            self._note(number, facts)

    def _commit(self, producer: ProducerState) -> None:
        """Write the marker of a bucket's committed transaction. Once the bucket is taken, no start can know this again,
        so without the right, another one must write it.
        """
        try:
            self._hanging.commit(producer)
        except LedgerRefused as error:
            raise error.replaced(
                action="Have somebody who may run: kafka-eos transactions abort "
                f"{place_of(producer)} --commit. Then start the query again."
            ) from error

    def _id(self, number: int) -> str:
        return bucket_id(self._options.transactional_id, number)

    def _initialise(self, number: int, look: Callable[[], None] = lambda: None) -> None:
        timeout_ms = min(self._options.transaction_timeout_ms, _TIMEOUT_MS)
        taken = init_producer_id(self._cluster, self._id(number), timeout_ms, again=look, ending=look)
        self.identities[number] = taken

    def _producer_ids(self, number: int, facts: TransactionFacts) -> set[int]:
        """Those in which the bucket's last transaction may have been. After the last epoch of one, its coordinator only
        names the next one.
        """
        former = self._former.get(number)
        return {facts.producer_id, self.identities[number].producer_id} | (set() if former is None else {former})

    def _end_hanging(self, numbers: Iterable[int]) -> None:
        """End it until nothing hangs: the marker that ends it may be left out, too."""
        for _ in range(describe.MOST_LOOKS):
            if not (hanging := self._end_once(numbers)):
                return
        raise undecided(hanging[0], "Its marker was written, and does not help")

    def _end_once(self, numbers: Iterable[int]) -> list[ProducerState]:
        """End what hangs now, and return it."""
        of_bucket = {
            producer_id: number
            for number in numbers
            for facts in [self._facts[number]]
            if isinstance(facts, TransactionFacts)
            for producer_id in self._producer_ids(number, facts)
        }
        aborted: dict[int, list[ProducerState]] = {}
        all_hanging = self._hanging.find(of_bucket.keys(), self._written()) if of_bucket else []
        for producer in all_hanging:
            number = of_bucket[producer.producer_id]
            self._require_untaken(number, producer)
            match last_outcome(self._facts[number]):
                case "committed":
                    self._commit(producer)
                case "aborted" if producer.producer_id == self.identities[number].producer_id:
                    aborted.setdefault(number, []).append(producer)
                case "aborted":
                    self._hanging.abort_former(producer)
                case _:
                    raise undecided(producer, "It had ended before its coordinator was asked how")
        for number, hanging in aborted.items():
            self._hanging.abort(self.identities[number], hanging)
            self._initialise(number)
        return all_hanging

    def _require_untaken(self, number: int, producer: ProducerState) -> None:
        """Raise ProducerFenced if what is open is another driver's, which has taken the bucket since."""
        taken = self.identities[number]
        if producer.producer_id == taken.producer_id and producer.epoch > taken.epoch:
            raise ProducerFenced(f"another driver has taken {self._id(number)} since this one has")

    def _written(self) -> list[TopicPartition]:
        """Every partition that the buckets may have written, as far as that is known."""
        topics = {*written_topics(self._options), *ledger_topics(self._options), *self._hanging.topics}
        try:
            self._cluster.look_up(topics)
        except UnknownTopic:
            topics = set(self._cluster.existing(topics, patience_ms=0))
        return [TopicPartition(topic, n) for topic in sorted(topics) for n in self._cluster.topic(topic).partitions]
