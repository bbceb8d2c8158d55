"""`commitOffsets`: a consumer group's offsets follow the batches that Spark says are done, for lag tools.

What is not obvious:
- Spark calls a source's `commit(end)` only when it begins the batch after: of a query that waits for data, or whose
  run is over, the last batch would never count. But Spark also asks for each next batch from where the last one that
  it noted as done ended, so that start is an end to commit as well. Only a new query's first start is none.
- It is not the query's own bookkeeping, so the query does not stop because of a fault that may pass. The commit is
  tried for a few seconds, over connections of its own, and left to the next batch then.
- A sink of this package commits the source offsets in its transactions. A plain commit is not fenced as those are and
  may arrive late, so it could move such a group back behind its transactions: refused by the mark they leave.
Source: Spark's MicroBatchExecution (constructNextBatch, cleanUpLastExecutedMicroBatch), KIP-98.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.core.error_codes import passes
from spark_kafka_eos.core.ledger import marked_by
from spark_kafka_eos.errors import ConfigurationError, KafkaEosError
from spark_kafka_eos.model import UNRESOLVED, OffsetAndMetadata, Offsets, offsets_from_json
from spark_kafka_eos.options import ClientOptions, SourceOptions
from spark_kafka_eos.reading.positions import JsonOffsets

log = logging.getLogger(__name__)

_PATIENCE_MS = 5_000  # a batch waits so long for a commit, about as long as a broker does for its replicas
_TRY_AGAIN_SECONDS = 30.0
_RENEW_SECONDS = 3_600.0  # of a query that waits for data, or its offsets would expire (offsets.retention.minutes)


class ConsumedOffsets:
    """The offsets of `kafka.group.id`, moved to the ends that Spark confirms. Does nothing without `commitOffsets`.

    Raises ConfigurationError where a sink of this package commits to the group, AuthorizationFailed, and BrokerError
    for whatever else no retry mends, such as another client's membership in the group.
    """

    def __init__(
        self,
        options: SourceOptions,
        connect: Callable[[ClientOptions], Cluster] = Cluster,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._connect, self._clock = connect, clock
        self._cluster: Cluster | None = None
        self._checked = False
        self._last: JsonOffsets | None = None  # the end that was tried last, not to be tried again before `_again`
        self._again = float("-inf")

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def done(self, end: JsonOffsets) -> None:
        """Commit `end`, which Spark has confirmed: every partition's, and nothing else."""
        if not self._options.commit_offsets or end == UNRESOLVED:
            return
        if end == self._last and self._clock() < self._again:
            return
        try:
            self._commit(offsets_from_json(end))
        except KafkaEosError as error:
            if not passes(error):
                raise
            log.warning("the offsets of group %r are not committed yet: %s", self._options.group_id, error.what)
            self._last, self._again = end, self._clock() + _TRY_AGAIN_SECONDS
        else:
            self._last, self._again = end, self._clock() + _RENEW_SECONDS

    def _commit(self, offsets: Offsets) -> None:
        if self._cluster is None:
            client = self._options.client
            self._cluster = self._connect(
                replace(
                    client,
                    delivery_timeout_ms=min(client.delivery_timeout_ms, _PATIENCE_MS),
                    request_timeout_ms=min(client.request_timeout_ms, _PATIENCE_MS),
                    socket_connection_setup_timeout_ms=min(client.socket_connection_setup_timeout_ms, _PATIENCE_MS),
                )
            )
        group = GroupCoordinator(self._cluster, self._options.group_id or "")
        if not self._checked:
            _check(group, offsets)
            self._checked = True
        group.commit_offsets({tp: OffsetAndMetadata(offset=offset) for tp, offset in offsets.items()})


def _check(group: GroupCoordinator, offsets: Offsets) -> None:
    """Refuse a group that transactions of this package's sink commit to. The sink's first batch comes before our first
    commit, so once is enough."""
    for committed in group.fetch_offsets(offsets).values():
        if committed is not None and (owner := marked_by(committed)) is not None:
            raise ConfigurationError(
                "commitOffsets",
                f"group {group.group_id!r} is committed by the transactions of {owner!r}, and a commit beside them "
                "could move it back",
                action="Leave commitOffsets out, the sink does it; or give the source another kafka.group.id.",
            )
