"""Looks at a cluster's queries and transactions again and again, for the exporter's metrics."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.topics import unknown
from spark_kafka_eos.observe.metrics import Series
from spark_kafka_eos.tools.operators.cluster_metrics import cluster_series, down
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey
from spark_kafka_eos.tools.operators.queries import QueryReader
from spark_kafka_eos.tools.operators.status import QueryStatus

_log = logger(__name__)


class ClusterWatch:
    """`ledger_topics` and `sources` as for QueryReader; `topics` are looked at besides those that queries read and
    write, and those with open transactions. Not thread-safe.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        ledger_topics: Sequence[str] | None,
        topics: Collection[str] = (),
        sources: Sequence[Cluster] = (),
    ) -> None:
        self._cluster, self._topics = cluster, topics
        self._reader = QueryReader(cluster, ledger_topics=ledger_topics, sources=sources)
        self._trouble = ""
        self._missed: set[str] = set()  # ledger topics that did not exist at the last look, which is logged

    def look(self) -> Series:
        """The metrics as of now. Raises AuthorizationFailed, UnknownTopic, BrokerError, BrokerUnreachable."""
        queries = self._reader.read(times=True, owners=False)
        missing = set(self._reader.missing)
        for topic in sorted(missing - self._missed):
            _log.warning(
                "there is no ledger topic %s, or this principal may not describe it: its queries are not seen. "
                "--ledger-topic names others",
                topic,
            )
        self._missed = missing
        ledgers = self._reader.ledger_topics - missing
        outputs = self._reader.outputs
        there = outputs - unknown(self._cluster, outputs).keys() if outputs else outputs
        topics = {*self._topics, *ledgers, *there}
        others = partitions_of(self._cluster, topics) if topics else []
        transactions = survey(
            self._cluster, self._read_by(queries).union(others), now_ms=int(time.time() * 1e3), open_too=True
        )
        return cluster_series(queries, transactions, missing=len(self._reader.missing))

    def look_again(self) -> Series:
        """The same; if the cluster cannot be read, the metrics say so. An error is logged until another one comes."""
        try:
            series = self.look()
        except KafkaEosError as error:
            if error.what != self._trouble:
                _log.warning("cannot read the cluster: %s", error)
            self._trouble = error.what
            return down()
        self._trouble = ""
        return series

    def _read_by(self, queries: Sequence[QueryStatus]) -> set[TopicPartition]:
        """The partitions on this cluster that queries read."""
        sources = [source for query in queries for source in query.sources if source is not None]
        here = self._cluster.cluster_id() if sources else None
        return {tp for source in sources if source.cluster == here for tp in source.partitions}
