"""The producer ids that this process holds for writes without a transaction.

Every attempt to write a batch has an epoch of its own, so its sequences start at 0 and no late request of an earlier
attempt is taken for one of its own. Its producer id is that of the attempt before: brokers remember each id in each
partition for `producer.id.expiration.ms` (a day), so a new one for each batch would fill their memory.

Who writes takes an id and gives it back. Two that write at the same time have different ids, because the later epoch of
an id fences the earlier one. The ids belong to the process, not to a writer: a sink has a new one for each batch. A
process that was forked has none: the same id, epoch and sequence would make one's records duplicates of the other's.
"""

from __future__ import annotations

import os
from collections import deque

from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.sequences import next_epoch
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity

# What nobody uses now, with the epoch that was used last. By process, brokers and cluster (KIP-78), as ids are only
# unique in a cluster. Operations of a deque are atomic.
_idle: dict[tuple[int, ClientOptions, str], deque[ProducerIdentity]] = {}


def take(cluster: Cluster) -> ProducerIdentity:
    """A producer id and epoch under which nothing was written yet. Raises what InitProducerId raises."""
    try:
        identity = _of(cluster).pop()
    except IndexError:
        return idempotent_identity(cluster)
    return next_epoch(identity) or idempotent_identity(cluster)


def give_back(cluster: Cluster, identity: ProducerIdentity) -> None:
    """Make the producer id available to others. Its taker sends nothing more under this epoch, and what is still on its
    way is a repetition, as at-least-once allows.
    """
    _of(cluster).append(identity)


def _of(cluster: Cluster) -> deque[ProducerIdentity]:
    return _idle.setdefault((os.getpid(), cluster.options, cluster.cluster_id()), deque())
