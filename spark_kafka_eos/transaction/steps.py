"""Performs the steps of a transactional id: one method for each request that takes, uses or ends its epoch.

Each step tells the two tables, `hold` and `attempt`, what is about to be sent and what was answered, so that nothing is
sent that they do not allow. `owner` decides which step comes next. The steps of the whole protocol have the names of
the specification's actions (spec/SharedTransaction.tla):

    describe      DescribeTransactions: whose is the id
    glance        the ledger, before the id is taken               ledger.keeper
    ask_if_held   describe: is the held epoch the current one      owner
    fence         AddPartitionsToTxn, all under the old epoch      fence
    take          InitProducerId
    look_again    describe, before InitProducerId is sent again    owner
    read          the ledger, as the owner
    add_partitions  append                                         appending
    append_entry  commit_offsets, each after what it needs in TV1  ledger.topic, ledger.keeper
    commit        EndTxn(commit)
    doubt         describe: was it committed                       doubt
    ask_why       describe: why is the epoch over                  owner
    abort         EndTxn(abort)
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_kafka_eos.errors import BrokerError, TransactionAborted
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe, transactions
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction.attempt import OPEN, Event, State, Transaction
from spark_kafka_eos.transaction.fence import Fence
from spark_kafka_eos.transaction.hold import Hold, HoldEvent, HoldState, is_given_up

_log = logger(__name__)

OwnerFacts = TransactionFacts | Unavailable | None  # None: the coordinator does not know the transactional.id


def described(cluster: Cluster, transactional_id: str) -> OwnerFacts:
    """What the coordinator says of the id now."""
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


class TransactionSteps:
    """The steps of one transactional id in this process. Not thread-safe.

    `hold` and `attempt` have all that this process knows of its epoch and of its transaction. If `has_ledger`, batches
    have entries in `ledger`. `in_doubt`: see Hold. `note` gets whatever the coordinator says.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        *,
        has_ledger: bool,
        in_doubt: bool,
        note: Callable[[TransactionFacts], None],
        clock: Callable[[], float],
    ) -> None:
        self._options, self._cluster, self._note = options, cluster, note
        self.has_ledger = has_ledger
        self._version: int | None = None
        self.hold = Hold(in_doubt=in_doubt)
        self.attempt = Transaction(clock)
        self.ledger = LedgerKeeper(options, cluster)
        self._fence = Fence(options, cluster, self.ledger.topic if has_ledger else None)

    @property
    def identity(self) -> ProducerIdentity:
        """The identity of the held epoch."""
        assert self.hold.identity is not None, "begin() comes first"
        return self.hold.identity

    @property
    def holds(self) -> bool:
        """Whether this process has an epoch of its own, as far as it knows, and no transaction is open."""
        return self.hold.state is HoldState.HELD and self.attempt.state in (State.READY, State.COMMITTED)

    @property
    def transaction_version(self) -> int:
        """Requested once: a transaction ends in the protocol in which it started."""
        if self._version is None:
            self._version = self._cluster.transaction_version()
        return self._version

    # -- whose it is

    def describe(self) -> OwnerFacts:
        """What the coordinator says of the id now."""
        facts = described(self._cluster, self._options.transactional_id)
        if isinstance(facts, TransactionFacts):
            self._note(facts)
        return facts

    def settle(self) -> OwnerFacts:
        """The same, after the end of a transaction that is already decided."""
        return describe.settled(self._cluster, self.describe)

    def is_given_up(self, facts: TransactionFacts) -> bool:
        """Whether the coordinator aborted the last transaction of this process by itself (`hold.is_given_up`)."""
        last = self.hold.last
        return last is not None and is_given_up(last, facts, was_open=transactions.was_opened(self._cluster, last))

    def is_overdue(self) -> bool:
        """Whether the transaction has lasted so long that the coordinator may have aborted it."""
        timeout_ms = self._options.timeout_ms
        return timeout_ms is not None and self.attempt.seconds * 1e3 >= timeout_ms

    # -- a new epoch

    def needs_fence(self) -> bool:
        """Whether late requests of an earlier epoch could still append."""
        return self._fence.needed(self.transaction_version)

    def unseen_verification(self) -> Unavailable | None:
        """Why `needs_fence` could not find out whether the brokers verify; None if it could."""
        return self._fence.unseen()

    def fence(self, owner: ProducerIdentity, *, was_committed: bool) -> None:
        """Add whatever late requests may reach to the transaction of the last `owner`. `take` without a named epoch
        must follow. Raises ProducerFenced if somebody else did that before.
        """
        self._fence.apply(owner, was_committed=was_committed)
        if self.hold.identity is not None:
            self.hold.apply(HoldEvent.FENCE_ADDED, owner)

    def take(self, named: ProducerIdentity | None, again: Callable[[], None]) -> None:
        """Send InitProducerId, which names this identity; `again` is called before it is sent once more."""
        self.hold.apply(HoldEvent.EPOCH_REQUESTED)
        identity = transactions.init_producer_id(
            self._cluster,
            self._options.transactional_id,
            self._options.timeout_ms,
            named,
            transaction_version=self.transaction_version,
            again=again,
        )
        self.hold.apply(HoldEvent.INITIALISED, identity)
        self.attempt.apply(Event.INITIALISED)

    def read(self, *, is_known: bool) -> None:
        """Read the ledger under the new epoch, unless what was read before counts."""
        if self.has_ledger and not is_known:
            self.ledger.read()
        self.hold.apply(HoldEvent.LEDGER_READ)
        self.attempt.apply(Event.LEDGER_READ)

    # -- the end

    def commit(self) -> ProducerIdentity:
        """Send EndTxn(commit); the identity to go on with. `committed` must follow."""
        self.hold.apply(HoldEvent.EPOCH_REQUESTED)
        return transactions.end_transaction(self._cluster, self.identity, commit=True)

    def committed(self, entry: LedgerEntry | None, following: ProducerIdentity) -> None:
        """The transaction is committed, with this entry if there is a ledger; this process goes on as `following`."""
        committed_under = self.identity
        self.hold.apply(HoldEvent.COMMITTED, following)
        self.attempt.apply(Event.COMMIT_ANSWERED)
        if entry is not None:
            self.ledger.remember_committed(entry, committed_under)
        if following != committed_under:
            self.attempt.apply(Event.NEXT_EPOCH)

    def abort(self) -> None:
        """Send EndTxn(abort); a new epoch must follow. Does nothing if `fence` is needed, which also aborts, or if the
        coordinator has aborted the transaction.
        """
        if self.attempt.state is State.OVER:
            return
        self.attempt.apply(Event.ABORT)
        if self.needs_fence():
            return
        self.hold.apply(HoldEvent.EPOCH_REQUESTED)
        try:
            following = transactions.end_transaction(self._cluster, self.identity, commit=False)
        except TransactionAborted:
            _log.info("the coordinator has already aborted the transaction")
        else:
            self.hold.apply(HoldEvent.ABORTED, following)

    def time_out(self) -> None:
        """The coordinator has aborted the transaction by itself; this process goes on with the epoch after it."""
        self.hold.apply(HoldEvent.TIMED_OUT)
        if self.attempt.state in (*OPEN, State.DECIDED):
            self.attempt.apply(Event.TIMED_OUT)

    def let_go(self) -> None:
        """The transaction may be open, and its epoch must not be named: a new producer must abort it."""
        self.hold.apply(HoldEvent.LET_GO)

    def lose(self) -> None:
        """Another producer has the id."""
        self.hold.apply(HoldEvent.FENCED)
        self.attempt.apply(Event.FENCED)
