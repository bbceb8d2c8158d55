"""`deliveryGuarantee=at-least-once`: the same blocks and the same barrier, but no transaction and no ledger.

Every attempt has its own producer id (KIP-98's idempotent producer), so within it the network neither loses nor
duplicates a record batch. But the records of a failed attempt stay visible, and a batch that Spark runs again is
written again.
"""

from __future__ import annotations

import logging

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.recorder import phase
from spark_kafka_eos.broker.transactions import idempotent_identity
from spark_kafka_eos.core import recovery
from spark_kafka_eos.errors import UnknownTopic
from spark_kafka_eos.model import MicroBatch, OffsetAndMetadata, ProducerIdentity, Written
from spark_kafka_eos.options import SinkOptions

_log = logging.getLogger(__name__)


class IdempotentWrites:
    """Has the methods of `SharedTransaction`, but never skips or aborts anything."""

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._cluster = cluster
        # The offsets of another cluster's topic would be taken for those of this cluster's.
        here = options.group_id and not any(options.source_clusters)
        self._group = GroupCoordinator(cluster, options.group_id) if here else None
        self._fail_on_data_loss = options.fail_on_data_loss
        self._identity: ProducerIdentity | None = None

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id of this attempt; its `transactional_id` is empty."""
        assert self._identity is not None, "begin() comes first"
        return self._identity

    def begin(self, batch: MicroBatch) -> recovery.Write:
        """Get a new producer id. Without a ledger, every batch is written."""
        self._identity = idempotent_identity(self._cluster)
        return recovery.Write(reason=f"at-least-once has no ledger, so batch {batch.batch_id} is written")

    def appending(self) -> None:
        """Does nothing. Records are visible as soon as they are appended."""

    def commit(self, batch: MicroBatch, *, written: Written) -> None:
        """Commit the source offsets to `kafka.group.id`, if set, for lag tools; not if a source is on another
        cluster.
        """
        del written
        if self._group is None or not batch.end:
            return
        with phase("offsets"):
            try:
                self._group.commit_offsets({tp: OffsetAndMetadata(offset=offset) for tp, offset in batch.end.items()})
            except UnknownTopic as error:
                if self._fail_on_data_loss:
                    raise
                _log.warning("the source offsets are not committed, because a topic no longer exists: %s", error.what)

    def abort(self) -> None:
        """Does nothing. Appended records stay; the next attempt appends them again."""
