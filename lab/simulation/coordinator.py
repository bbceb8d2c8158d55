"""A model of Kafka's transaction coordinator, for one transactional.id: KIP-98, KIP-360 and, in TV2, KIP-890.

Follows TransactionCoordinator and TransactionMetadata (Kafka 3.9 for TV1, 4.3 for TV2);
tests/broker/test_simulation_model.py compares it with these brokers. Simplification: each state is on disk at once.

Not obvious:
- An end is decided when it is answered; its markers reach the partitions later, one by one. Until all of them are
  written, the answer to every new beginning is CONCURRENT_TRANSACTIONS.
- TV1 accepts an EndTxn of an epoch any number of times: after a commit, another commit is "no error", even for a
  transaction that never existed. TV2 increases the epoch with each end, and recognizes a resend by the previous epoch.
- InitProducerId increases the epoch of an open transaction only to abort it, and answers CONCURRENT_TRANSACTIONS; the
  caller eventually gets another epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from spark_kafka_eos.kafka.partitions import TopicPartition

UNKNOWN_SERVER_ERROR = -1
NONE = 0
NOT_COORDINATOR = 16
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90
TRANSACTION_ABORTABLE = 120

_NO_ID = -1
_NO_EPOCH = -1
_LAST_EPOCH = 32_767
_NOT_STARTED = -1
_EXHAUSTED = _LAST_EPOCH - 1

Identity = tuple[int, int]


class Phase(Enum):
    """TransactionMetadata's states, without the two that do not last in a model without disks."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)
_COMPLETE = (Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)


class Coordinator:
    """`server_version` is the cluster's transaction.version; `new_id` returns a new producer id.

    `decided(commit, producer id, epoch of the records, epoch of the markers, partitions)` must write the markers, and
    call `completed` when all of them are written.
    """

    def __init__(
        self,
        *,
        server_version: int,
        new_id: Callable[[], int],
        decided: Callable[[bool, int, int, int, Collection[TopicPartition]], None],
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._server_version, self._new_id, self._decided, self._now_ms = server_version, new_id, decided, now_ms
        self.phase = Phase.EMPTY
        self.producer_id = _NO_ID
        self.epoch = _NO_EPOCH
        self.timeout_ms = 60_000
        self.started_ms = _NOT_STARTED  # of the last transaction
        self.partitions: set[TopicPartition] = set()  # once the end is decided: those without a marker
        self.transactions = 0  # opened so far; relates a timeout to its transaction
        self._last_epoch = _NO_EPOCH
        self._previous_id = _NO_ID
        self._next_id = _NO_ID

    @property
    def at_rest(self) -> bool:
        """Whether no transaction is open or about to end."""
        return self.phase is Phase.EMPTY or self.phase in _COMPLETE

    def init(self, held_id: int, held_epoch: int, timeout_ms: int) -> tuple[int, Identity]:
        """InitProducerId: the error code, and without an error, the new producer id and epoch."""
        if self.producer_id == _NO_ID:
            self.producer_id = self._new_id()
        holder = (held_id, held_epoch) if held_id != _NO_ID else None
        of_another = holder is not None and self.epoch != _NO_EPOCH and held_id != self.producer_id
        if of_another and (held_id != self._previous_id or held_epoch < _EXHAUSTED):
            return PRODUCER_FENCED, (-1, -1)
        if self.phase in _PREPARED:
            return CONCURRENT_TRANSACTIONS, (-1, -1)
        if self.phase is Phase.ONGOING:
            self._fence()
            return CONCURRENT_TRANSACTIONS, (-1, -1)
        if self.epoch >= _EXHAUSTED and (holder is None or held_epoch == self.epoch):
            self._previous_id, self._last_epoch = self.producer_id, self.epoch if holder else _NO_EPOCH
            self.producer_id, self.epoch = self._new_id(), 0
        elif self.epoch >= _EXHAUSTED:  # fenced with the very last epoch: "cannot allocate any more"
            return UNKNOWN_SERVER_ERROR, (-1, -1)
        elif holder is None:
            self.epoch, self._last_epoch = self.epoch + 1, _NO_EPOCH
            self._previous_id = self.producer_id
        elif self.epoch in (held_epoch, _NO_EPOCH):
            self._last_epoch, self.epoch = self.epoch, self.epoch + 1
            self._previous_id = self.producer_id
        elif held_epoch != self._last_epoch:  # otherwise a resend of the previous request, with the same answer
            return PRODUCER_FENCED, (-1, -1)
        self.phase, self.timeout_ms = Phase.EMPTY, timeout_ms
        if self._server_version >= 2:  # Kafka 3 keeps reporting when the last one began
            self.started_ms = _NOT_STARTED
        return NONE, (self.producer_id, self.epoch)

    def add(self, producer_id: int, epoch: int, partitions: Collection[TopicPartition]) -> int:
        """AddPartitionsToTxn, AddOffsetsToTxn, and the request of a TV2 leader at the first append."""
        if producer_id != self.producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if epoch != self.epoch:
            return PRODUCER_FENCED
        if self.phase in _PREPARED:
            return CONCURRENT_TRANSACTIONS
        if self.phase is not Phase.ONGOING:
            self.phase, self.started_ms = Phase.ONGOING, self._now_ms()
            self.transactions += 1
        self.partitions.update(partitions)
        return NONE

    def verify(self, producer_id: int, epoch: int, partition: TopicPartition) -> int:
        """The request of a TV1 leader before the first append: is the partition part of the transaction?"""
        if producer_id != self.producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if epoch != self.epoch:
            return PRODUCER_FENCED
        if self.phase in _PREPARED:
            return CONCURRENT_TRANSACTIONS
        return NONE if partition in self.partitions else TRANSACTION_ABORTABLE

    def end(self, producer_id: int, epoch: int, commit: bool, version: int) -> tuple[int, Identity]:
        """EndTxn: the error code, and without an error, the identity to continue with (only for TV2)."""
        # In TV2, each end increases the epoch, or finally the producer id: so the coordinator recognizes a resend.
        overflowed = (version, self._previous_id, epoch, self.epoch) == (2, producer_id, _EXHAUSTED, 0)
        resend = overflowed or (version >= 2 and self.epoch == epoch + 1)
        if producer_id != self.producer_id and not overflowed:
            return INVALID_PRODUCER_ID_MAPPING, (-1, -1)
        if not self._may_end(epoch, resend, version):
            return PRODUCER_FENCED, (-1, -1)
        if self.phase is Phase.ONGOING:
            return NONE, self._prepare(commit, version)
        if self.phase is Phase.EMPTY or (version >= 2 and not resend):
            return self._end_nothing(commit, version)
        if commit != (self.phase in (Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT)):
            return INVALID_TXN_STATE, (-1, -1)
        if self.phase in _PREPARED:
            return CONCURRENT_TRANSACTIONS, (-1, -1)
        return NONE, (self.producer_id, self.epoch)

    def time_out(self) -> None:
        """Abort the open transaction, if any, because of its timeout."""
        if self.phase is Phase.ONGOING:
            self._fence()

    def completed(self) -> None:
        """Note that every marker of the decided transaction is written."""
        self.phase = Phase.COMPLETE_COMMIT if self.phase is Phase.PREPARE_COMMIT else Phase.COMPLETE_ABORT
        self.partitions.clear()
        if self._next_id != _NO_ID:
            self._previous_id, self.producer_id, self.epoch = self.producer_id, self._next_id, 0
            self._next_id = _NO_ID

    def _may_end(self, epoch: int, resend: bool, version: int) -> bool:
        if version >= 2 and self.phase in _PREPARED:
            return resend
        return epoch == self.epoch or (resend and self.phase in _COMPLETE)

    def _end_nothing(self, commit: bool, version: int) -> tuple[int, Identity]:
        """TV2 lets a client abort a transaction that is empty; the epoch increases nevertheless."""
        if commit or version < 2:
            return INVALID_TXN_STATE, (-1, -1)
        self.started_ms = self._now_ms()
        return NONE, self._prepare(commit, version)

    def _fence(self) -> None:
        """Abort the open transaction, under an epoch that its owner does not have."""
        of_records = self.epoch
        if self._server_version < 2:
            self.epoch, self._last_epoch = self.epoch + 1, _NO_EPOCH
        self._prepare(commit=False, version=self._server_version, of_records=of_records)

    def _prepare(self, commit: bool, version: int, *, of_records: int | None = None) -> Identity:
        """Decide the end; return the identity to continue with. `of_records`: the records' epoch, if fenced."""
        fence = of_records is not None
        of_records = self.epoch if of_records is None else of_records
        if version >= 2:
            if not fence and self.epoch >= _EXHAUSTED:
                self._next_id = self._new_id()
            self._last_epoch = self.epoch
            self.epoch = min(self.epoch + 1, _LAST_EPOCH)
        self._previous_id = self.producer_id
        self.phase = Phase.PREPARE_COMMIT if commit else Phase.PREPARE_ABORT
        following = (self.producer_id, self.epoch) if self._next_id == _NO_ID else (self._next_id, 0)
        self._decided(commit, self.producer_id, of_records, self.epoch, tuple(self.partitions))
        return following
