"""`commitOffsets`: commits the offsets of completed batches to a consumer group, for lag tools.

Not obvious:
- Spark calls a source's `commit(end)` only when it starts the next batch, so the last batch of an idle or finished
query
  would never be committed. But Spark also plans each batch from the end of the last completed one, so that start is
  committed as well, except a new query's first start.
- The query does not depend on these offsets, so it does not stop on a transient error. The commit is tried for a few
  seconds, over its own connections, and is then left to the next batch.
- A sink of this package commits the source offsets in its transactions. A plain commit is not fenced and may arrive
  late, so it could reset such a group to older offsets. Such groups are rejected; the sink's commits mark them.
- A driver that was suspended and replaced plans once more before Spark stops it, and would commit its old offsets. So
  where the group has moved on since this process's last commit, it is left alone (`PlainCommits`).
Source: Spark's MicroBatchExecution (constructNextBatch, cleanUpLastExecutedMicroBatch), KIP-98.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_kafka_eos.errors import ConfigurationError, KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets, offsets_from_json
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.error_codes import passes
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, PlainCommits
from spark_kafka_eos.ledger.source_mark import marked_by
from spark_kafka_eos.options import ClientOptions, SourceOptions
from spark_kafka_eos.source_offset import UNRESOLVED, JsonOffsets

log = logger(__name__)

_PATIENCE_MS = 5_000  # the time a batch waits for a commit, about as long as a broker waits for its replicas
_TRY_AGAIN_SECONDS = 30.0
_RENEW_SECONDS = 3_600.0  # in an idle query, whose offsets would expire otherwise (offsets.retention.minutes)


class ConsumedOffsets:
    """Commits the end of each completed batch to `kafka.group.id`, for a source with `commitOffsets`.

    Raises ConfigurationError if a sink of this package commits to the group, AuthorizationFailed, and BrokerError for
    other errors that are not retriable, such as another client's membership in the group.
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
        self._commits: PlainCommits | None = None  # of the group, once it is checked
        self._overtaken = False
        self._last: JsonOffsets | None = None  # the end that was tried last; not tried again before `_again`
        self._again = float("-inf")

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = self._commits = None

    def done(self, end: JsonOffsets) -> None:
        """Commit `end`, the offsets of all partitions at the end of a completed batch."""
        if end == UNRESOLVED:
            return
        if end == self._last and self._clock() < self._again:
            return
        try:
            self._commit(offsets_from_json(end))
        except KafkaEosError as error:
            if not passes(error):
                raise
            log.warning("cannot commit the offsets of group %r yet: %s", self._options.group_id, error.what)
            self._last, self._again = end, self._clock() + _TRY_AGAIN_SECONDS
        else:
            self._last, self._again = end, self._clock() + _RENEW_SECONDS

    def _commit(self, offsets: Offsets) -> None:
        if self._cluster is None:
            self._cluster = self._connect(self._options.client.answering_within(_PATIENCE_MS))
        if self._commits is None:
            group = GroupCoordinator(self._cluster, self._options.group_id or "")
            _check(group, offsets)
            self._commits = PlainCommits(group)
        ahead = self._commits.commit(offsets)
        if ahead and not self._overtaken:
            log.warning(
                "somebody else has moved group %r on, to %s, beyond the offsets of this query, and it stays there: "
                "another driver of this query, or an operator",
                self._options.group_id,
                ", ".join(f"{tp} {offset}" for tp, offset in sorted(ahead.items())[:5]),
            )
        self._overtaken = bool(ahead)


def _check(group: GroupCoordinator, offsets: Offsets) -> None:
    """Reject a group to which transactions of this package's sink commit. The sink's first batch precedes our first
    commit, so checking once is enough.
    """
    for committed in group.fetch_offsets(offsets).values():
        if committed is not None and (owner := marked_by(committed)) is not None:
            raise ConfigurationError(
                "commitOffsets",
                f"the transactions of {owner!r} commit to group {group.group_id!r}; other commits could reset its "
                "offsets",
                action="Remove commitOffsets, because the sink commits the offsets, or set another kafka.group.id.",
            )
