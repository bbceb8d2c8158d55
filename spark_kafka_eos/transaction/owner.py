"""Who owns a transactional.id: whether this process still does, and how it takes the id.

Not obvious:
- Nothing sends InitProducerId, or adds anything under the epoch of another owner (the fence), before it has asked who
  owns the id and what is committed:
  - A process that holds an epoch knows who must own the id (`ask_if_held`).
  - One that does not, as the sink's commit process, uses the ledger: if its own run committed the last entry, the id
    must be as that commit left it. If another run did, and this one had committed before it, another driver has taken
    over. Otherwise this run starts, and takes the id. A batch write has no earlier commit, but knows whose the id was
    when it was planned (`planned_under`); so does a replay of dead letters.
  - An InitProducerId without an answer may have been applied, or lost, and meanwhile somebody may have taken the id. So
    whoever sends it again looks again (`look_again`).
  Only what happens between the answer and InitProducerId remains unseen. Then the last one that takes the id wins, and
  the other one is fenced.
- Who held the id names an epoch in InitProducerId, which then is a compare-and-set (KIP-360): the coordinator gives a
  new epoch only if nobody else got one since, and recognizes a resend. Name an epoch only if nobody else can name it,
  since two processes would get the same new one (`hold`). In TV1, that the coordinator aborted a transaction by itself
  is known only of one of which it has said that it is open (`is_given_up`). After the fence, nothing is named: the
  fence opens a transaction, and the epoch that its abort will leave is not the current one yet. Kafka's coordinator
  aborts it nevertheless, others refuse.
- If an InitProducerId without an epoch is not answered, another driver's first one looks like it. A process that
  held an epoch stops. A starting process continues; so does the sink, which keeps no epoch between batches.
- A request of our own that may have raised the epoch and was not answered leaves us without knowing our epoch. Then the
  owner cannot be distinguished from another one, and the ledger alone decides.
- TV1 with brokers that do not verify which partitions are in a transaction: the fence (transaction.fence) precedes a
  new epoch. A process that was fenced gets an error from the first of its requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from spark_kafka_eos.errors import CommitOutcomeUnknown, Committed, KafkaEosError, ProducerFenced, TransactionAborted
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.refusal import owner_command
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction import loss
from spark_kafka_eos.transaction.attempt import MAY_BE_OPEN, OPEN, State
from spark_kafka_eos.transaction.fence import last_owner
from spark_kafka_eos.transaction.hold import (
    HoldEvent,
    HoldState,
    is_left_by_take,
    is_shown_committed,
    is_taken_from,
    may_be_given_up,
    owner_in,
)
from spark_kafka_eos.transaction.steps import OwnerFacts, TransactionSteps, described, is_same

_log = logger(__name__)


def owner_of(cluster: Cluster, transactional_id: str) -> ProducerEpoch | None:
    """Who owns the id now; None if the coordinator does not say."""
    return _owner(described(cluster, transactional_id))


def _owner(facts: OwnerFacts) -> ProducerEpoch | None:
    return None if isinstance(facts, Unavailable) else owner_in(facts)


class Owner:
    """This process as the owner of a transactional.id, which it is or may become: it decides which of the `steps` comes
    next. Not thread-safe.
    """

    def __init__(self, options: SinkOptions, steps: TransactionSteps) -> None:
        self._options, self._steps = options, steps
        self.transactional_id = options.transactional_id

    # -- who owns it

    def require_not_lost(self) -> None:
        """Raise ProducerFenced if it is known that another producer has the id."""
        if self._steps.hold.state is HoldState.LOST:
            raise loss.lost_before(self._options)

    def ask_if_held(self) -> None:
        """Raise ProducerFenced if the id is no longer that of the identity that this process holds, if it holds one."""
        steps = self._steps
        identity = steps.hold.identity
        if identity is None:
            return
        facts = steps.describe()
        if isinstance(facts, TransactionFacts) and is_taken_from(identity, facts) and facts.is_prepared:
            facts = steps.settle()
        if facts is None and steps.has_ledger:
            self._require_last_entry()
        if not isinstance(facts, TransactionFacts) or not is_taken_from(identity, facts):
            return
        if not steps.is_given_up(facts):
            raise self.overtaken(facts)
        steps.time_out()

    def _require_last_entry(self) -> None:
        """Raise ProducerFenced if another driver has committed since this one read the ledger: of an id that the
        brokers have forgotten (`transactional.id.expiration.ms`), only the ledger knows who had it last.
        """
        before, now = self._steps.ledger.entry, self._steps.ledger.glance().entry
        if before == now:
            return
        number = f" batch {now.batch_id}" if isinstance(now, LedgerEntry) else ""
        raise self.taken_over(
            f" and committed{number}, before the brokers forgot the id because nobody used it "
            "(transactional.id.expiration.ms)"
        )

    # -- a new epoch

    def initialise(self, read_under: ProducerEpoch | None = None) -> Literal["known", "read"]:
        """Get the next epoch of the held identity, or take the id if there is none; then read the ledger, unless what
        is `known` of it counts.

        It counts if it was read while the last transaction of the producer `read_under` had ended, and the new epoch is
        the next one: each commit needs an epoch of its own, so there was none in between.
        """
        self.require_not_lost()
        hold = self._steps.hold
        named, before = hold.identity, None if hold.last is None else hold.last.producer
        if self._needs_fence():
            named, before = None, self._fence(self._steps.describe())
        return self._take(named, before, read_under)

    def take_over(
        self, seen: OwnerFacts, read_under: ProducerEpoch | None
    ) -> Literal["known", "read", "owner changed"]:
        """The same for a process that takes the id as one that starts, because of what was `seen` of its owner. If the
        owner changed since, or a transaction began or ended, and that is seen, nothing is done.
        """
        self.require_not_lost()
        self._steps.hold.apply(HoldEvent.LOOKED)
        before = _owner(seen)
        if self._needs_fence():
            facts = self._steps.describe()
            if not is_same(seen, facts):
                return "owner changed"
            before = self._fence(facts)
        return self._take(None, before, read_under)

    def renew(self) -> Literal["known", "read"]:
        """Get the next epoch of a held identity, unless EndTxn returned it. See `initialise`."""
        if self._steps.attempt.state is State.READY:
            return "known"
        producer = self._steps.identity.producer
        self.ask_if_held()
        return self.initialise(producer)

    def _take(
        self, named: ProducerIdentity | None, before: ProducerEpoch | None, read_under: ProducerEpoch | None
    ) -> Literal["known", "read"]:
        steps = self._steps
        may_doubt = named is not None or steps.hold.state is HoldState.NOBODY
        try:
            steps.take(named, again=lambda: self.look_again(before, may_doubt=may_doubt))
        except ProducerFenced as error:
            raise self.fenced(error) from error
        is_next = read_under is not None and steps.identity.producer == read_under._replace(epoch=read_under.epoch + 1)
        steps.read(is_known=is_next)
        return "known" if is_next else "read"

    def look_again(self, before: ProducerEpoch | None, *, may_doubt: bool) -> None:
        """Raise ProducerFenced if the id, which was `before`'s when InitProducerId was sent, is now neither that one's
        nor as this request leaves it. If `before` is None, that is not known. Another driver's first InitProducerId
        leaves the same: raise CommitOutcomeUnknown if that may be so, unless it `may_doubt`.
        """
        facts = self._steps.describe()
        if before is None or not isinstance(facts, TransactionFacts):
            return
        if not is_left_by_take(before, facts):
            raise self.overtaken(facts, ", since this driver's InitProducerId, which was not answered")
        if not may_doubt and not is_left_by_take(before, facts, in_doubt=False):
            raise CommitOutcomeUnknown(
                f"InitProducerId was not answered, and transactional.id {self.transactional_id!r} now belongs "
                f"to {facts.producer}: by this request, or by another driver",
                action="Start the query again, unless another driver runs, because a start takes the id from it. "
                f"`{owner_command(self._options)}` shows the owner.",
            ).replaced(committed="nothing" if self._steps.attempt.state in OPEN else "unknown")

    def _needs_fence(self) -> bool:
        """Whether the new epoch needs the fence: late requests of an epoch that may have been used could append."""
        steps = self._steps
        return (steps.hold.identity is None or steps.attempt.state in MAY_BE_OPEN) and steps.needs_fence()

    def _fence(self, facts: OwnerFacts) -> ProducerEpoch | None:
        """Apply the fence, and return the owner before it. InitProducerId of a new producer must follow."""
        owner = last_owner(self.transactional_id, facts) if isinstance(facts, TransactionFacts) else None
        if isinstance(facts, TransactionFacts) and owner is not None:
            last = self._steps.hold.last
            if last is not None and is_taken_from(last, facts) and not self._steps.is_given_up(facts):
                raise self.overtaken(facts)
            try:
                self._steps.fence(owner, was_committed=facts.state == "CompleteCommit")
            except ProducerFenced as error:
                if last is not None:
                    raise self.fenced(error) from error
                _log.info("another new producer has fenced the old epoch already")
        return _owner(facts)

    # -- ending its transaction

    def after_commit(self, facts: TransactionFacts, error: KafkaEosError) -> ProducerIdentity | None:
        """What to go on with if the coordinator shows that our commit, which failed with `error`, was applied; None if
        it may still be open, or was aborted. Raises ProducerFenced if another producer owns the id now.
        """
        identity = self._steps.identity
        if is_shown_committed(identity, facts):
            return replace(identity, producer_id=facts.producer_id, epoch=facts.epoch)
        # Before the timeout, only the InitProducerId of somebody who starts can have aborted it: do not take it back.
        if is_taken_from(identity, facts) and not (self._steps.is_given_up(facts) and self._steps.is_overdue()):
            raise self.overtaken(facts, f" ({error.what})")
        return None

    def abort(self) -> None:
        """Abort the open transaction, and get a new epoch."""
        try:
            self._steps.abort()
        except ProducerFenced as error:
            if not self.ask_why():
                raise self.fenced(error) from error
        self.ask_if_held()
        self.initialise()

    # -- losing it

    def ask_why(self) -> bool:
        """Whether the coordinator aborted our transaction because of its timeout, and no other producer took over
        since. Then this process goes on with the next epoch.

        The coordinator then fences the epoch, and the error does not say why (KAFKA-20785).
        """
        steps = self._steps
        # If the identity was let go of, the error comes from somebody who took the id since.
        if steps.hold.identity is None or steps.attempt.state not in MAY_BE_OPEN or not steps.is_overdue():
            return False
        try:
            facts = steps.describe()
        except KafkaEosError:  # then the original error stands
            return False
        if not isinstance(facts, TransactionFacts) or not steps.is_given_up(facts):
            return False
        steps.time_out()
        return True

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Ask why the open transaction is over, if a broker says that it is. It does not say why."""
        try:
            yield
        except ProducerFenced as error:
            raise self.fenced(error) from error
        except TransactionAborted as error:
            if self.ask_why():
                raise self.timed_out(error) from error
            raise

    def timed_out(self, error: KafkaEosError) -> TransactionAborted:
        """What to raise or say for `error` if it came because of the timeout."""
        return loss.timed_out(self._options, error)

    def fenced(self, error: ProducerFenced) -> KafkaEosError:
        """What to raise for `error`: itself, or TransactionAborted if only the coordinator fenced us."""
        steps = self._steps
        if steps.hold.state is HoldState.LOST:  # it was seen by a look, and says everything
            return error
        if steps.attempt.state in OPEN and self.ask_why():
            return self.timed_out(error)
        # If the last transaction has ended, the error refers to the next batch.
        is_over = steps.attempt.state is State.COMMITTED
        committed: Committed = "nothing" if is_over else steps.attempt.committed
        overdue_s = steps.attempt.seconds if steps.attempt.state in MAY_BE_OPEN and steps.is_overdue() else None
        steps.lose()
        return loss.fenced(self._options, error, committed, overdue_s=overdue_s)

    def taken_over(self, how: str) -> ProducerFenced:
        """What to raise if the ledger shows that another driver has gone on, and what to stop with."""
        self._steps.lose()
        return loss.taken_over(self._options, how)

    def overtaken(
        self, facts: TransactionFacts, why: str = "", *, last: ProducerIdentity | None = None
    ) -> ProducerFenced:
        """What to raise if another producer has the id, and what to stop with. `last` is what this run had last, if not
        in this process, which then does not know since when.
        """
        steps = self._steps
        identity = last or steps.hold.last
        may_have_timed_out = (
            identity is not None and may_be_given_up(identity, facts) and (last is not None or steps.is_overdue())
        )
        committed: Committed = "unknown" if steps.attempt.state is State.UNKNOWN else "nothing"
        steps.lose()
        return loss.overtaken(self._options, facts, why, may_have_timed_out=may_have_timed_out, committed=committed)
