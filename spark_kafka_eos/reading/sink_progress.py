"""Where the transactions of a sink ended in the sources that it reads: what its ledger tells to a source."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.ledger_topic import LedgerTopic
from spark_kafka_eos.core import ledger
from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.model import LedgerEntry, TopicPartition
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.ledger import SinkLedger
from spark_kafka_eos.options.table import SOURCE, take


def cluster_id(options: Mapping[str, object]) -> str:
    """The id of the Kafka cluster that these options reach, as the sink's `sourceClusters` takes it.

    `options` are `kafka.bootstrap.servers` and what else it takes to log in. Raises ConfigurationError,
    AuthenticationFailed, BrokerUnreachable.
    """
    with Cluster(client_options(take(options, SOURCE))) as cluster:
        return cluster.cluster_id()


def last_entry(cluster: Cluster, topic: str, transactional_id: str) -> LedgerEntry | None:
    """The ledger's last record, for others than its owner: waits for a transaction that is still open.

    Raises LedgerRefused for a record that cannot be read, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """
    found = LedgerTopic(cluster, topic, transactional_id).read_settled()
    if found is None or found.value is None:
        return None
    try:
        return ledger.decode_record(found.value)
    except ledger.NotAnEntry as error:
        raise LedgerRefused(
            f"the last record of {transactional_id!r} in topic {topic!r} is no ledger entry: {error}",
            action="Use the release that wrote it, or a later one.",
        ) from None


def committed_by(sink: SinkLedger, cluster_id: str) -> dict[TopicPartition, int]:
    """Up to where the sink has committed the topics of the cluster with this id; nothing where it has none of them.

    Raises LedgerRefused where two of its sources read a partition and stand at different offsets.
    """
    with Cluster(sink.client) as cluster:
        entry = last_entry(cluster, sink.topic, sink.transactional_id)
    found: dict[TopicPartition, int] = {}
    for source in (entry and entry.sources) or ():
        if source is None or source.cluster != cluster_id:
            continue
        for tp, offset in source.offsets.items():
            if found.setdefault(tp, offset) != offset:
                raise LedgerRefused(
                    f"two sources of the query behind {sink.transactional_id!r} read {tp}, and stand at {found[tp]} "
                    f"and {offset}",
                    action="Give startingOffsets as JSON, each source its own.",
                )
    return found
