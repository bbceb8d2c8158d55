"""Keeps a stream from planning a batch across the end of its sink's ledger, if `sink.kafka.transactional.id` is set.

`reading.batch_boundaries` says where the batches end. The ledger is read once, when this process plans its first batch
after a start that it did not determine itself: a batch that Spark has planned already runs before that, so by then the
sink has settled it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.reading.batch_boundaries import BatchBoundary, began_before, is_empty, next_boundary
from spark_kafka_eos.reading.topic_identity import TopicIdentity

if TYPE_CHECKING:
    from spark_kafka_eos.ledger.entry import SourceProgress

log = logger(__name__)


class LedgerReplay:
    """What the sink has committed, as far as this source's batches still repeat it."""

    def __init__(self, sink: SinkLedger | None, identity: TopicIdentity) -> None:
        self._sink, self._identity = sink, identity
        self._last: SourceProgress | None = None
        self._ran_again: Offsets | None = None
        self._began_before = False

    def starts_here(self) -> None:
        """This process determines the query's first start, so nothing is repeated."""
        self._sink = None

    def runs_again(self, begin: Offsets) -> None:
        """An earlier process has planned the batch that begins there."""
        self._ran_again = begin

    def boundary(self, begin: Offsets, latest: Offsets) -> BatchBoundary | None:
        """Where the batch after `begin` has to end; None if nothing limits it.

        A batch that ends where it begins lets Spark run the batch without data in which windows close: once, before
        the next one with data. Raises what `ledger.progress.last_batch` raises.
        """
        self._read(begin, latest)
        last = self._last
        if last is None:
            return None
        self._began_before |= began_before(begin, last)
        if (boundary := next_boundary(begin, last, latest)) is not None:
            return boundary
        self._last = None
        return BatchBoundary(ends=begin, exact=True) if self._began_before and is_empty(last) else None

    def _read(self, begin: Offsets, latest: Offsets) -> None:
        if self._sink is None:
            return
        from spark_kafka_eos.ledger.progress import last_batch

        sink, self._sink = self._sink, None
        self._last = last_batch(sink, self._identity.origin(latest), latest.keys())
        if self._last is None:
            return
        self._began_before = self._ran_again is not None and began_before(self._ran_again, self._last)
        if next_boundary(begin, self._last, latest) is not None:
            log.warning(
                "the checkpoint is behind the ledger of %r: no batch is planned across the ledger's end",
                sink.transactional_id,
            )
