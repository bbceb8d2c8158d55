"""Ends what hangs of a transactional.id before its next batch, with the outcome that the ledger has of it."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_eos.errors import BrokerError, LedgerRefused, ProducerFenced, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import groups, written_topics
from spark_kafka_eos.transaction.hanging import CAUSE, HangingTransactions, undecided
from spark_kafka_eos.transaction.outcome import outcome
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.steps import TransactionSteps


class Recovery:
    """What hangs of the id of `owner`. Without a ledger, nobody knows how it ended."""

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        steps: TransactionSteps,
        owner: Owner,
        hanging: HangingTransactions,
    ) -> None:
        self._options, self._cluster, self._steps, self._owner, self._hanging = options, cluster, steps, owner, hanging

    def end(self) -> bool:
        """End what hangs in any partition that an earlier transaction may have written; whether there was anything."""
        for number in range(describe.MOST_LOOKS):
            if not (hanging := self._find()):
                return number > 0
            self._owner.ask_if_held()
            entry, under = self._steps.ledger.entry, self._steps.ledger.committed_under
            outcomes = {producer: outcome(producer, entry, under) for producer in hanging}
            for producer, how in outcomes.items():
                if not self._steps.has_ledger:
                    raise undecided(producer, "Without txnAppId there is no ledger")
                if how == "unknown" and producer.producer_id == self._steps.identity.producer_id:
                    raise undecided(producer, "Another batch has been committed since")
                if how == "unknown":
                    self._hanging.leave(producer, "The ledger does not say how it ended.")
            for producer in (producer for producer, how in outcomes.items() if how == "committed"):
                self._hanging.commit(producer)
            if aborted := [producer for producer, how in outcomes.items() if how == "aborted"]:
                self._abort(aborted)
        raise undecided(hanging[0], "Its marker was written, and does not help")

    def end_pending_offsets(self, error: BrokerError) -> None:
        """Abort the offsets that are still pending after InitProducerId, for which `error` was the answer. Of what was
        committed, the ledger has a record, which then counts.
        """
        if not self._steps.has_ledger:
            raise error
        topic = self._steps.ledger.topic
        if topic.read(None).pending:
            raise LedgerRefused(
                f"whether the last batch was committed is not known: its record in {topic.at} has no "
                f"marker, and its pointer in group {self._options.ledger_group} has none either, as {CAUSE}",
                action="Look at the output: are its records of that batch visible? `kafka-eos transactions hanging` "
                "shows where markers are missing. Then see docs/runbook.md, LedgerRefused.",
            ) from error
        self._abort_offsets(groups(self._options))

    def abort_source_offsets(self) -> None:
        """Abort the source's offsets that are still pending in the group, if they are those of this id: what was
        committed of them, the ledger has.
        """
        self._abort_offsets([self._options.group_id])

    def _abort_offsets(self, of_groups: Iterable[str]) -> None:
        self._owner.ask_if_held()
        self._abort_in_own([], of_groups)
        self._owner.ask_if_held()
        self._owner.initialise()

    def _find(self) -> list[ProducerState]:
        """What is open although the last transaction has ended: not what waits for markers that are on their way."""
        where = self._written()
        if not self._hanging.find(self._ids(), where):
            return []
        if not isinstance(self._steps.settle(), TransactionFacts):
            # The coordinator does not say, but this waits for all markers, too.
            self._owner.initialise(self._steps.identity.producer)
        return self._hanging.find(self._ids(), where)

    def _ids(self) -> set[int]:
        """The producer ids of this id's next transaction, of its last commit, of records in the ledger that lack their
        marker, and of what else this process saw.
        """
        ledger = self._steps.ledger
        last = ledger.committed_under
        return {self._steps.identity.producer_id, last.producer_id, *ledger.undecided, *self._hanging.producer_ids}

    def _written(self) -> list[TopicPartition]:
        """Every partition that an earlier transaction of this id may have written, as far as that is known."""
        entry = self._steps.ledger.entry
        outputs = entry.outputs.keys() if isinstance(entry, LedgerEntry) else ()
        topics = {*written_topics(self._options), *outputs, *self._hanging.topics}
        try:
            self._cluster.look_up(topics)
        except UnknownTopic:
            topics = set(self._cluster.existing(topics, patience_ms=0))
        partitions = [TopicPartition(topic, n) for topic in topics for n in self._cluster.topic(topic).partitions]
        return [*partitions, self._steps.ledger.topic.at] if self._steps.has_ledger else partitions

    def _abort(self, hanging: list[ProducerState]) -> None:
        identity = self._steps.identity
        for former in (producer for producer in hanging if producer.producer_id != identity.producer_id):
            self._hanging.abort_former(former)
        if own := [producer for producer in hanging if producer.producer_id == identity.producer_id]:
            self._abort_in_own(own)
            self._owner.ask_if_held()
            self._owner.initialise(identity.producer)

    def _abort_in_own(self, hanging: list[ProducerState], groups: Iterable[str] = ()) -> None:
        """Abort it in a transaction of this process; a new epoch must follow.

        One precedes, too: the abort leaves its epoch, and whoever had the one before would take that for an abort by
        the coordinator (`hold.is_given_up`).
        """
        self._owner.initialise(self._steps.identity.producer)
        try:
            self._hanging.abort(self._steps.identity, hanging, groups)
        except ProducerFenced as error:
            raise self._owner.fenced(error) from error
