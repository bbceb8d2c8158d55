"""How a process that holds no epoch takes a transactional id: it looks whose it is and what is committed, and takes the
id only to write.

Look before you take. InitProducerId aborts the open transaction of whoever owns the id and fences it. A driver that
comes back late, after another one took over, must end by itself, without the live one noticing (transaction.owner).

The look waits for no open transaction: that of a crashed owner must not delay a restart until its timeout. So the
ledger is read again after InitProducerId, when nothing can be committed any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_eos.errors import Committed, LedgerRefused
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import CommittedEntry, LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction.buckets import Buckets
from spark_kafka_eos.transaction.hold import is_left_by_run, taken_since
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.steps import OwnerFacts, TransactionSteps, is_same


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLook:
    """What a process that holds no epoch sees: the verdict on its batch, and who owns the id.

    `read_under` is the producer whose transaction had ended when the ledger was read, None if that is not known.
    """

    verdict: verdicts.Verdict
    facts: OwnerFacts
    read_under: ProducerEpoch | None = None


class OwnerTakeover:
    """The takeovers of one transactional id. If `decide` is None, there is no ledger, and every batch is written.
    `planned_under` is the owner when the write was planned, None if that is not known.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        decide: Decide | None,
        steps: TransactionSteps,
        owner: Owner,
        *,
        planned_under: ProducerEpoch | None,
    ) -> None:
        self._options, self._cluster, self._decide, self._steps, self._owner = options, cluster, decide, steps, owner
        self._planned_under = planned_under

    def verdict(self, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict on the batch, by what was read of the ledger last."""
        if self._decide is None:
            return verdicts.Write(reason="without txnAppId, every write is new")
        return self._steps.ledger.verdict(self._decide, batch)

    def take(
        self, batch: MicroBatch, look: Callable[[], OwnerLook], *, without_verdict: bool = False
    ) -> verdicts.Verdict:
        """Have a `look`, and take the id if the verdict is to write, or `without_verdict`: the verdict once the id is
        ours. Raises ProducerFenced if this process must not take it.
        """
        for number in range(describe.MOST_LOOKS + 1):
            seen = look()
            if isinstance(seen.verdict, Refuse) or not (without_verdict or isinstance(seen.verdict, verdicts.Write)):
                return seen.verdict
            if number < describe.MOST_LOOKS:
                ledger = self._owner.take_over(seen.facts, seen.read_under)
            else:  # it changes all the time, and again what follows the look is not seen
                ledger = self._owner.initialise()
            if ledger == "known" and self._buckets_to_end(batch) is None:
                return seen.verdict
            if ledger != "owner changed":
                break
        verdict = self.verdict(batch) if (count := self._buckets_to_end(batch)) is None else self._after(count, batch)
        if not isinstance(verdict, verdicts.Write):  # committed since the look, by a predecessor or a successor
            self._owner.ask_if_held()
        return verdict

    def _after(self, count: int, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict once the buckets of a run in real time, of this number, are taken: only then where they ended
        stays as it is.
        """
        Buckets(self._cluster, self._options).take(range(count))
        self._steps.ledger.read()
        return self.verdict(batch)

    def _buckets_to_end(self, batch: MicroBatch) -> int | None:
        """The buckets of the last run, if it was in real time, or may have been, and this batch is not."""
        entry = self._steps.ledger.entry
        if batch.buckets is not None or entry is None:
            return None
        if isinstance(entry, LedgerEntry):
            return entry.buckets
        return Buckets(self._cluster, self._options).existing(entry.buckets) or None

    def look(self, batch: MicroBatch, *, to_take: bool) -> OwnerLook:
        """What a process sees that holds no epoch. Raises ProducerFenced if it must not take the id, to write the batch
        or `to_take` it anyway.
        """
        facts, committed, verdict = self._described_and_read(batch)
        if isinstance(verdict, Refuse) and isinstance(facts, Unavailable) and committed.pending:
            verdict = verdicts.Write(reason="only after InitProducerId it is known whether a predecessor has committed")
        if to_take or isinstance(verdict, verdicts.Write):
            self._require_untaken(facts, committed, batch)
        # Where a record is pending although the transaction has ended, its marker may have been left out.
        settled = committed.agreed and not committed.pending
        if isinstance(facts, TransactionFacts) and facts.state in ("CompleteCommit", "CompleteAbort") and settled:
            return OwnerLook(verdict=verdict, facts=facts, read_under=facts.producer)
        return OwnerLook(verdict=verdict, facts=facts)

    def _described_and_read(self, batch: MicroBatch) -> tuple[OwnerFacts, CommittedEntry, verdicts.Verdict]:
        """Who owns the id, what is committed, and the verdict on that.

        A commit may come between the answers, and then they do not fit together. What is written is decided on again,
        and what is committed stays so. But a refusal only counts if the owner did not change meanwhile.
        """
        facts, budget = self._steps.settle(), self._cluster.budget()
        while True:
            committed = CommittedEntry(entry=None) if self._decide is None else self._steps.ledger.glance()
            verdict = self.verdict(batch)
            if not isinstance(verdict, Refuse):
                return facts, committed, verdict
            before, facts = facts, self._steps.settle()
            if is_same(before, facts):
                return facts, committed, verdict
            if budget.spent:  # this process was paused, and what it knows is old: no reason to give up
                budget.restart()
            self._cluster.sleep(budget.delay(soon=True) or 0.0)

    def _require_untaken(self, facts: OwnerFacts, committed: CommittedEntry, batch: MicroBatch) -> None:
        """Raise ProducerFenced if somebody took the id since this run committed, or since the write was planned."""
        owner, entry = self._owner, committed.entry
        if isinstance(entry, LedgerEntry) and not batch.destination and batch.run_id in entry.earlier_runs:
            run = entry.run_id or "of another release"
            raise owner.taken_over(f": since this run committed, run {run} has committed batch {entry.batch_id}")
        if self._steps.hold.in_doubt or isinstance(facts, Unavailable) or facts is None:
            return
        if isinstance(entry, LedgerEntry) and entry.run_id is not None and entry.run_id == batch.run_id:
            under, version = committed.producer, entry.transaction_version
            if under.producer_id >= 0 and not is_left_by_run(under, facts, transaction_version=version):
                last = ProducerIdentity(transactional_id=owner.transactional_id, **under._asdict())
                raise owner.overtaken(facts, f", since this run committed batch {entry.batch_id}", last=last)
        elif self._planned_under is not None and taken_since(self._planned_under, facts):
            raise owner.overtaken(facts, ", since this write was planned")


def refused(refusal: Refuse, command: str, committed: Committed = "nothing") -> LedgerRefused:
    """What to raise for the refusal, of which `command` shows both sides."""
    remedy = refusal.remedy
    if refusal.resolutions:
        remedy += f"\n- `{command}` shows both sides and the choices."
    return LedgerRefused(f"{refusal.reason}. {refusal.meaning}", action=remedy, committed=committed)
