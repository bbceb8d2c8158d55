"""The clusters of a soak: stops and restarts brokers, and waits until the replicas are in sync."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy

_SECONDS, _POLL_SECONDS = 120.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster, and the proxy that all its clients use, except the soak itself."""

    kafka: EmbeddedKafka
    proxy: Proxy

    def heal(self) -> None:
        """Restart or resume every stopped broker, and return when the replicas are in sync."""
        self.kafka.resume()
        self.kafka.start()
        await_in_sync(self.kafka.bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One node of a site."""

    site: Site
    node: int

    def kill(self) -> bool:
        """Whether it was running."""
        running = self.site.kafka.is_running(self.node)
        self.site.kafka.kill(self.node)
        return running

    def pause(self) -> bool:
        """Whether it was running."""
        self.site.kafka.pause(self.node)
        return self.site.kafka.is_running(self.node)


def await_in_sync(bootstrap: str) -> None:
    """Return when every partition has a leader and all its replicas in sync. Raises ToolFailed after two minutes."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + _SECONDS
    while (behind := _behind(admin)) != set():
        if time.monotonic() > deadline:
            raise ToolFailed(f"replicas are not in sync after {_SECONDS:g} s: {behind or 'no broker answers'}")
        admin.poll(_POLL_SECONDS)


def _behind(admin: AdminClient) -> set[str] | None:
    """The partitions that lack a leader or a replica; None if no broker answers."""
    try:
        topics = admin.list_topics(timeout=5).topics
    except KafkaException:
        return None
    return {
        f"{name}-{number}"
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader < 0 or len(partition.isrs) < len(partition.replicas)
    }
