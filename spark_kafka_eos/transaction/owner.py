"""Who owns a transactional.id: whether this process still does, and how it takes the id.

Not obvious:
- Nothing sends InitProducerId, or adds anything under the epoch of another owner (the fence), before it has asked who
  owns the id and what is committed:
  - A process that holds an epoch knows who must own the id (`require_held`).
  - One that does not, as the sink's commit process, uses the ledger: if its own run committed the last entry, the id
    must be as that commit left it. If another run did, and this one had committed before it, another driver has taken
    over. Otherwise this run starts, and takes the id. A batch write has no earlier commit, but knows whose the id was
    when it was planned (`planned_under`); so does a replay of dead letters.
  - An InitProducerId without an answer may have been applied, or lost, and meanwhile somebody may have taken the id. So
    whoever sends it again looks again (`_require_only_ours`).
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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from spark_kafka_eos.errors import (
    BrokerError,
    CommitOutcomeUnknown,
    Committed,
    KafkaEosError,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.transactions import TransactionCoordinator
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.keeper import CommittedEntry, LedgerKeeper
from spark_kafka_eos.ledger.refusal import owner_command
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction.attempt import MAY_BE_OPEN, OPEN, Event, State, Transaction
from spark_kafka_eos.transaction.fence import Fence
from spark_kafka_eos.transaction.hold import (
    Hold,
    HoldEvent,
    HoldState,
    is_given_up,
    is_left_by_run,
    is_left_by_take,
    is_shown_committed,
    may_be_given_up,
    owner_in,
    taken_from,
    taken_since,
)

_log = logger(__name__)

OwnerFacts = TransactionFacts | Unavailable | None  # None: the coordinator does not know the transactional.id


def owner_of(cluster: Cluster, transactional_id: str) -> ProducerEpoch | None:
    """Who owns the id now; None if the coordinator does not say."""
    return _owner(_described(cluster, transactional_id))


def _owner(facts: OwnerFacts) -> ProducerEpoch | None:
    return None if isinstance(facts, Unavailable) else owner_in(facts)


def _described(cluster: Cluster, transactional_id: str) -> OwnerFacts:
    try:
        return describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1e3))
    except BrokerError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return Unavailable(reason="the brokers lack DescribeTransactions")


def is_same(before: OwnerFacts, now: OwnerFacts) -> bool:
    """Whether no transaction began or ended in between."""
    if not isinstance(before, TransactionFacts) or not isinstance(now, TransactionFacts):
        return type(before) is type(now)
    return (before.producer, before.state) == (now.producer, now.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLook:
    """What a process that holds no epoch sees: the verdict on its batch, and who owns the id.

    `read_under` is the producer whose transaction had ended when the ledger was read, None if that is not known.
    """

    verdict: verdicts.Verdict
    facts: OwnerFacts
    read_under: ProducerEpoch | None = None


class Owner:
    """This process as the owner of a transactional.id, which it is or may become. Not thread-safe.

    `hold` and `attempt` have all that it knows of its epoch and of its transaction. If `has_ledger`, batches have
    entries in `ledger`. `planned_under` is the owner when the write was planned, None if that is not known. `in_doubt`:
    see Hold. `note` gets whatever the coordinator says.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        *,
        has_ledger: bool,
        planned_under: ProducerEpoch | None,
        in_doubt: bool,
        note: Callable[[TransactionFacts], None],
        clock: Callable[[], float],
    ) -> None:
        self._options, self._cluster, self._note = options, cluster, note
        self._has_ledger, self._planned_under = has_ledger, planned_under
        self.hold = Hold(in_doubt=in_doubt)
        self.attempt = Transaction(clock)
        self.coordinator = TransactionCoordinator(cluster, options.transactional_id, options.timeout_ms)
        self.ledger = LedgerKeeper(options, cluster, self.coordinator)
        self.fence = Fence(options, cluster, self.coordinator, self.ledger.topic if has_ledger else None)

    @property
    def identity(self) -> ProducerIdentity:
        """The identity of the held epoch."""
        assert self.hold.identity is not None, "begin() comes first"
        return self.hold.identity

    @property
    def holds(self) -> bool:
        """Whether this process has an epoch of its own, as far as it knows, and no transaction is open."""
        return self.hold.state is HoldState.HELD and self.attempt.state in (State.READY, State.COMMITTED)

    # -- who owns it

    def facts(self) -> OwnerFacts:
        """What the coordinator says of the id now."""
        facts = _described(self._cluster, self._options.transactional_id)
        if isinstance(facts, TransactionFacts):
            self._note(facts)
        return facts

    def settled_facts(self) -> OwnerFacts:
        """The same, after the end of a transaction that is already decided."""
        return describe.settled(self._cluster, self.facts)

    def require_not_lost(self) -> None:
        """Raise ProducerFenced if it is known that another producer has the id."""
        if self.hold.state is HoldState.LOST:
            raise ProducerFenced(
                f"a newer producer took over transactional.id {self._options.transactional_id!r}",
                action=self._leave_it,
            )

    def require_held(self) -> None:
        """Raise ProducerFenced if the id is no longer that of the identity that this process holds, if it holds one."""
        held = self.hold.identity
        if held is None:
            return
        facts = self.facts()
        if isinstance(facts, TransactionFacts) and taken_from(held, facts) and facts.is_prepared:
            facts = self.settled_facts()
        if facts is None and self._has_ledger:
            self._require_last()
        if not isinstance(facts, TransactionFacts) or not taken_from(held, facts):
            return
        if not self.is_given_up(facts):
            raise self.overtaken(facts)
        self.hold.apply(HoldEvent.TIMED_OUT)

    def _require_last(self) -> None:
        """Raise ProducerFenced if another driver has committed since this one read the ledger: of an id that the
        brokers have forgotten (`transactional.id.expiration.ms`), only the ledger knows who had it last.
        """
        known, now = self.ledger.entry, self.ledger.glance().entry
        if known == now:
            return
        number = f" batch {now.batch_id}" if isinstance(now, LedgerEntry) else ""
        raise self.taken_over(
            f" and committed{number}, before the brokers forgot the id because nobody used it "
            "(transactional.id.expiration.ms)"
        )

    def require_untaken(self, facts: OwnerFacts, glance: CommittedEntry, batch: MicroBatch) -> None:
        """Raise ProducerFenced if somebody took the id since this run committed, or since the write was planned."""
        entry = glance.entry
        if isinstance(entry, LedgerEntry) and not batch.destination and batch.run_id in entry.earlier_runs:
            run = entry.run_id or "of another release"
            raise self.taken_over(f": since this run committed, run {run} has committed batch {entry.batch_id}")
        if self.hold.in_doubt or isinstance(facts, Unavailable) or facts is None:
            return
        if isinstance(entry, LedgerEntry) and entry.run_id is not None and entry.run_id == batch.run_id:
            under, version = glance.producer, entry.transaction_version
            if under.producer_id >= 0 and not is_left_by_run(under, facts, transaction_version=version):
                last = ProducerIdentity(transactional_id=self._options.transactional_id, **under._asdict())
                raise self.overtaken(facts, f", since this run committed batch {entry.batch_id}", last=last)
        elif self._planned_under is not None and taken_since(self._planned_under, facts):
            raise self.overtaken(facts, ", since this write was planned")

    def is_given_up(self, facts: TransactionFacts) -> bool:
        """Whether the coordinator aborted the last transaction of this process by itself (`hold.is_given_up`)."""
        last = self.hold.last
        return last is not None and is_given_up(last, facts, was_open=self.coordinator.is_open(last))

    def after_commit(self, facts: TransactionFacts, error: KafkaEosError) -> ProducerIdentity | None:
        """What to go on with if the coordinator shows that our commit was applied; None if it may still be open, or was
        aborted. Raises ProducerFenced if another producer owns the transactional.id now.
        """
        identity = self.identity
        if is_shown_committed(identity, facts):
            return replace(identity, producer_id=facts.producer_id, epoch=facts.epoch)
        # Before the timeout, only the InitProducerId of somebody who starts can have aborted it: do not take it back.
        if taken_from(identity, facts) and not (self.is_given_up(facts) and self._is_overdue()):
            raise self.overtaken(facts, f" ({error.what})")
        return None

    # -- taking it

    def initialise(self, read_under: ProducerEpoch | None = None) -> Literal["known", "read"]:
        """Get the next epoch of the held identity, or take the id if there is none; then read the ledger, unless what
        is `known` of it counts.

        It counts if it was read while the last transaction of the producer `read_under` had ended, and the new epoch is
        the next one: each commit needs an epoch of its own, so there was none in between.
        """
        self.require_not_lost()
        named, last = self.hold.identity, self.hold.last
        before = None if last is None else last.producer
        if self._may_reach_stragglers():
            named, before = None, self._shut_stragglers_out(self.facts())
        return self._initialise(named, before, read_under)

    def take(self, look: OwnerLook) -> Literal["known", "read", "owner changed"]:
        """The same for a process that takes the id as one that starts, because of this look. If the owner changed since
        the look, or a transaction began or ended, and that is seen, nothing is done.
        """
        self.require_not_lost()
        self.hold.apply(HoldEvent.LOOKED)
        before = _owner(look.facts)
        if self._may_reach_stragglers():
            facts = self.facts()
            if not is_same(look.facts, facts):
                return "owner changed"
            before = self._shut_stragglers_out(facts)
        return self._initialise(None, before, look.read_under)

    def renew(self) -> Literal["known", "read"]:
        """Get the next epoch of a held identity, unless EndTxn returned it. See `initialise`."""
        if self.attempt.state is State.READY:
            return "known"
        held = self.identity.producer
        self.require_held()
        return self.initialise(held)

    def _initialise(
        self, named: ProducerIdentity | None, before: ProducerEpoch | None, read_under: ProducerEpoch | None
    ) -> Literal["known", "read"]:
        may_doubt = named is not None or self.hold.state is HoldState.NOBODY
        self.hold.apply(HoldEvent.EPOCH_REQUESTED)
        try:
            identity = self.coordinator.init_producer_id(
                named, again=lambda: self._require_only_ours(before, may_doubt=may_doubt)
            )
        except ProducerFenced as error:
            raise self.fenced(error) from error
        self.hold.apply(HoldEvent.INITIALISED, identity)
        self.attempt.apply(Event.INITIALISED)
        counts = read_under is not None and identity.producer == read_under._replace(epoch=read_under.epoch + 1)
        if self._has_ledger and not counts:
            self.ledger.read()
        self.hold.apply(HoldEvent.LEDGER_READ)
        self.attempt.apply(Event.LEDGER_READ)
        return "known" if counts else "read"

    def _require_only_ours(self, before: ProducerEpoch | None, *, may_doubt: bool) -> None:
        """Raise ProducerFenced if the id, which was `before`'s when InitProducerId was sent, is now neither that one's
        nor as this request leaves it. If `before` is None, that is not known. Another driver's first InitProducerId
        leaves the same: raise CommitOutcomeUnknown if that may be so, unless it `may_doubt`.
        """
        facts = self.facts()
        if before is None or not isinstance(facts, TransactionFacts):
            return
        if not is_left_by_take(before, facts):
            raise self.overtaken(facts, ", since this driver's InitProducerId, which was not answered")
        if not may_doubt and not is_left_by_take(before, facts, in_doubt=False):
            raise CommitOutcomeUnknown(
                f"InitProducerId was not answered, and transactional.id {self._options.transactional_id!r} now belongs "
                f"to {facts.producer}: by this request, or by another driver",
                action="Start the query again, unless another driver runs, because a start takes the id from it. "
                f"`{owner_command(self._options)}` shows the owner.",
            ).replaced(committed="nothing" if self.attempt.state in OPEN else "unknown")

    def _may_reach_stragglers(self) -> bool:
        """Whether the new epoch needs the fence: late requests of an epoch that may have been used could append."""
        return (self.hold.identity is None or self.attempt.state in MAY_BE_OPEN) and self.fence.needed()

    def _shut_stragglers_out(self, facts: OwnerFacts) -> ProducerEpoch | None:
        """Apply the fence, and return the owner before it. InitProducerId of a new producer must follow."""
        if isinstance(facts, TransactionFacts) and (owner := self.fence.last_owner(facts)) is not None:
            last = self.hold.last
            if last is not None and taken_from(last, facts) and not self.is_given_up(facts):
                raise self.overtaken(facts)
            try:
                self.fence.apply(owner, was_committed=facts.state == "CompleteCommit")
            except ProducerFenced as error:
                if last is not None:
                    raise self.fenced(error) from error
                _log.info("another new producer has fenced the old epoch already")
            else:
                if self.hold.identity is not None:
                    self.hold.apply(HoldEvent.FENCE_ADDED, owner)
        return _owner(facts)

    # -- ending its transaction

    def end(self) -> ProducerIdentity:
        """Send EndTxn(commit); the identity to go on with. Then call `committed`."""
        self.hold.apply(HoldEvent.EPOCH_REQUESTED)
        return self.coordinator.end(self.identity, commit=True)

    def committed(self, entry: LedgerEntry | None, following: ProducerIdentity) -> None:
        """The transaction is committed, with this entry if there is a ledger; this process goes on as `following`."""
        committed_under = self.identity
        self.hold.apply(HoldEvent.COMMITTED, following)
        self.attempt.apply(Event.COMMIT_ANSWERED)
        if entry is not None:
            self.ledger.keep(entry, committed_under)
        if following != committed_under:
            self.attempt.apply(Event.NEXT_EPOCH)

    def abort(self) -> None:
        """Abort the open transaction, and get a new epoch."""
        if self.attempt.state is not State.OVER and not self.fence.needed():  # the fence also aborts
            self.hold.apply(HoldEvent.EPOCH_REQUESTED)
            try:
                self.hold.apply(HoldEvent.ABORTED, self.coordinator.end(self.identity, commit=False))
            except ProducerFenced as error:
                if not self.timed_out():
                    raise self.fenced(error) from error
            except TransactionAborted:
                _log.info("the coordinator has already aborted the transaction")
        self.require_held()
        self.initialise()

    # -- losing it

    @property
    def _leave_it(self) -> str:
        """What to do about another owner of the id."""
        return (
            "This driver has ended, and the other one goes on unharmed: do not start this one again while it runs, "
            "because a start takes the id from it. If two queries have this id, give each its own. "
            f"`{owner_command(self._options)}` shows the owner."
        )

    def _lose(self) -> None:
        """Another producer has the id."""
        self.hold.apply(HoldEvent.FENCED)
        self.attempt.apply(Event.FENCED)

    def taken_over(self, how: str) -> ProducerFenced:
        """What to raise if the ledger shows that another driver has gone on, and what to stop with."""
        self._lose()
        return ProducerFenced(
            f"another driver has taken over transactional.id {self._options.transactional_id!r}{how}",
            committed="nothing",
            action=self._leave_it,
        )

    def overtaken(
        self, facts: TransactionFacts, why: str = "", *, last: ProducerIdentity | None = None
    ) -> ProducerFenced:
        """What to raise if another producer has the id, and what to stop with. `last` is what this run had last, if not
        in this process, which then does not know since when.
        """
        committed: Committed = "unknown" if self.attempt.state is State.UNKNOWN else "nothing"
        what = (
            f"transactional.id {self._options.transactional_id!r} now belongs to producer {facts.producer_id}, epoch "
            f"{facts.epoch}{why}"
        )
        action, had = self._leave_it, last or self.hold.last
        if had is not None and may_be_given_up(had, facts) and (last is not None or self._is_overdue()):
            what = f"{what}: to another driver, or the coordinator aborted a transaction of this one after its timeout"
            action = f"If no other query uses this transactional.id, start the query again. {action}"
        self._lose()
        return ProducerFenced(what, action=action).replaced(committed=committed)

    def timed_out(self) -> bool:
        """Whether the coordinator aborted our transaction because of its timeout, and no other producer took over
        since. Then this process goes on with the next epoch.

        The coordinator then fences the epoch, and the error does not say why (KAFKA-20785).
        """
        # If the identity was let go of, the error comes from somebody who took the id since.
        if self.hold.identity is None or self.attempt.state not in MAY_BE_OPEN or not self._is_overdue():
            return False
        try:
            facts = self.facts()
        except KafkaEosError:  # then the original error stands
            return False
        if not isinstance(facts, TransactionFacts) or not self.is_given_up(facts):
            return False
        self.hold.apply(HoldEvent.TIMED_OUT)
        if self.attempt.state in OPEN:
            self.attempt.apply(Event.TIMED_OUT)
        return True

    def _is_overdue(self) -> bool:
        """Whether the transaction has lasted so long that the coordinator may have aborted it."""
        timeout_ms = self._options.timeout_ms
        return timeout_ms is not None and self.attempt.seconds * 1e3 >= timeout_ms

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Ask why the open transaction is over, if a broker says that it is. It does not say why."""
        try:
            yield
        except ProducerFenced as error:
            raise self.fenced(error) from error
        except TransactionAborted as error:
            if self.timed_out():
                raise self.after_timeout(error) from error
            raise

    def after_timeout(self, error: KafkaEosError) -> TransactionAborted:
        """What to raise or say for `error` if it came because of the timeout: the same wherever it is noticed."""
        return TransactionAborted(
            f"the coordinator aborted the transaction after kafka.transaction.timeout.ms "
            f"({self._options.transaction_timeout_ms}): {error.what}",
            action="The batch is written again; increase the timeout if this happens repeatedly.",
        )

    def fenced(self, error: ProducerFenced) -> KafkaEosError:
        """What to raise for `error`: itself, or TransactionAborted if only the coordinator fenced us."""
        if self.hold.state is HoldState.LOST:  # it was seen by a look, and says everything
            return error
        if self.attempt.state in OPEN and self.timed_out():
            return self.after_timeout(error)
        # If the last transaction has ended, the error refers to the next batch.
        is_over = self.attempt.state is State.COMMITTED
        committed: Committed = "nothing" if is_over else self.attempt.committed
        said = error.replaced(action=self._leave_it, committed=committed)
        if self.attempt.state in MAY_BE_OPEN and self._is_overdue():
            # The coordinator also fences after a timeout, and the error does not distinguish the two.
            action = (
                f"This attempt took {self.attempt.seconds:.0f} s, longer than kafka.transaction.timeout.ms "
                f"({self._options.timeout_ms}): if no other query uses this transactional.id, restart the query, if "
                f"necessary with a longer timeout. {said.action}"
            )
            said = said.replaced(action=action)
        self._lose()
        return said
