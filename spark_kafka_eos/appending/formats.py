"""The topics that this process appends to without a producer id, though one was requested
(`kafka.enable.idempotence=requested`): their message format is from before Kafka 0.11 and has no room for it.

Their leaders said so: the first record batch that they get decides, and they append nothing of it. That answer needs no
right to describe settings, and it is right while brokers are upgraded one after the other. It is kept as long as a
topic's description, so that not every batch asks, and so that a topic whose format was raised is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.protocol.cluster import METADATA_MAX_AGE_S, Cluster
from spark_kafka_eos.options import ClientOptions

_log = logger(__name__)

# When the leader of which topic said so, by cluster. Of the process, because a sink has new connections for each batch.
_refused: dict[ClientOptions, dict[str, float]] = {}


def without_producer_ids(cluster: Cluster) -> list[str]:
    """The topics whose leaders have lately refused a producer id."""
    now = cluster.clock()
    return [topic for topic, at in [*_known(cluster).items()] if now - at <= METADATA_MAX_AGE_S]


def note(cluster: Cluster, refused: Mapping[str, KafkaEosError]) -> None:
    """Remember that these topics take no producer id, and warn about each, with what a leader answered."""
    for topic, error in refused.items():
        _known(cluster)[topic] = cluster.clock()
        _log.warning(
            "topic %s is written without idempotence, because %s; a request that is sent again may write its records "
            "twice",
            topic,
            error.what,
        )


def _known(cluster: Cluster) -> dict[str, float]:
    return _refused.setdefault(cluster.options, {})
