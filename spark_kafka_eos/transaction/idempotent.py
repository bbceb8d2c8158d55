"""`deliveryGuarantee=at-least-once`: the same blocks and the same barrier, but no transaction and no ledger.

Every attempt has its own producer epoch (KIP-98's idempotent producer; `kafka.producing.producer_ids`), so within it
the network neither loses nor duplicates a record batch. But the records of a failed attempt stay visible, and a batch
that Spark runs again is written again.

With `kafka.enable.idempotence=off` there is no producer id, and a request that is sent again may duplicate its record
batches. With `requested` there is none if the brokers refuse one, and none in topics whose message format has no room
for it (`appending.formats`); other topics of the same batch are appended to with one.
Source: "Dealing with older message formats when idempotence is enabled", a proposal of KIP-185's discussion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, KafkaEosError, LedgerRefused, UnknownTopic
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets
from spark_kafka_eos.kafka.producer import PLAIN, ProducerIdentity
from spark_kafka_eos.kafka.producing import producer_ids
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, PlainCommits
from spark_kafka_eos.kafka.protocol.recorder import phase
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import identity_of
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.ledger.source_clusters import SourceClusters
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction import outputs

_log = logger(__name__)


class AtLeastOnceProducer:
    """Has the methods of `SharedTransaction`, but never skips or aborts anything."""

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._cluster, self._sink = cluster, identity_of(options)
        self._group = PlainCommits(GroupCoordinator(cluster, options.group_id)) if options.group_id else None
        self._sources = SourceClusters(options, cluster)
        self._fail_on_data_loss = options.fail_on_data_loss
        self._degree = options.enable_idempotence
        self._identity: ProducerIdentity | None = None
        self._taken: ProducerIdentity | None = None  # until the attempt ends

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch of this attempt, or PLAIN; its `transactional_id` is empty."""
        assert self._identity is not None, "begin() comes first"
        return self._identity

    def begin(self, batch: MicroBatch) -> verdicts.Write:
        """Get a new epoch, if there is to be a producer id. Without a ledger, every batch is written.

        Raises LedgerRefused if the source goes by the ledger of a sink.
        """
        self._end()
        sink = replace(self._sink, cluster=self._cluster.cluster_id())
        if (other := verdicts.goes_by_another(None, batch, sink)) is not None:
            raise LedgerRefused(f"{other.reason}. {other.meaning}", action=other.remedy)
        self._identity = PLAIN if self._degree == "off" else self._producer_id()
        return verdicts.Write(reason=f"at-least-once has no ledger, so batch {batch.batch_id} is written")

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        """Records are visible as soon as they are appended."""
        with _nothing_is_taken_back():
            return write(self.identity)

    def commit(self, batch: MicroBatch, *, written: BatchCounts) -> None:
        """Commit the source offsets to `kafka.group.id`, if set, for lag tools: only those of topics on the sink's
        cluster, and not back to before those of a driver that has replaced this one. Raises TransactionAborted if a
        topic was deleted, with what was acknowledged there.
        """
        with _nothing_is_taken_back():
            outputs.require(self._cluster, written.topic_ids)
        if self._group is not None and batch.end:
            with phase("offsets"), _nothing_is_taken_back():
                self._commit_offsets(self._group, self._sources.ends_here(batch))
        self._end()

    def abort(self) -> None:
        """End the attempt. Appended records stay; the next attempt appends them again."""
        self._end()

    def _commit_offsets(self, group: PlainCommits, ends: Offsets) -> None:
        try:
            group.commit(ends)
        except UnknownTopic as error:
            if self._fail_on_data_loss:
                raise
            _log.warning("the source offsets are not committed, because a topic no longer exists: %s", error.what)

    def _producer_id(self) -> ProducerIdentity:
        """A producer id that is held, with its next epoch, or a new one; PLAIN if there is none."""
        try:
            self._taken = producer_ids.take(self._cluster)
        except BrokerError as error:
            refused = isinstance(error, AuthorizationFailed) or error.code == ErrorCode.UNSUPPORTED_VERSION
            if self._degree != "requested" or not refused:
                raise
            self._degree = "off"  # for this writer's later batches, too: all brokers and topics refuse it
            _log.warning(
                "writing without idempotence, because %s; a request that is sent again may write its records twice",
                error.what,
            )
            return PLAIN
        return replace(self._taken, requested=self._degree == "requested")

    def _end(self) -> None:
        """The attempt is over, and its producer id free for the next one."""
        if self._taken is not None:
            producer_ids.give_back(self._cluster, self._taken)
            self._taken = None

    def start_over(self) -> None:
        """After an error: there is nothing to forget."""


@contextmanager
def _nothing_is_taken_back() -> Iterator[None]:
    """Let errors say that records may be visible: no abort hides them."""
    try:
        yield
    except KafkaEosError as error:
        error.committed = "acknowledged"
        raise
