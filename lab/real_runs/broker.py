"""A broker that is reached through a proxy alone, even by itself: so its markers pass there, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lab.real_runs.driver import SOURCE
from lab.real_runs.witness import Witness
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.proxy import Passed, Proxy, Watcher

OFFSETS_PARTITIONS = 16
_CONFIG = {
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "broker.session.timeout.ms": 60_000,  # a busy machine is no reason to fence it
}


@dataclass(slots=True, kw_only=True)
class WatchedBroker:
    """`witness` is of the run that is recorded now, and asks `asked`, in the proxy's threads; `cluster` is for what
    else is not recorded.
    """

    kafka: EmbeddedKafka
    proxy: Proxy
    cluster: Cluster
    asked: Cluster
    witness: Witness | None = None

    @property
    def bootstrap(self) -> str:
        return self.proxy.bootstrap


@dataclass(slots=True)
class _Watching:
    broker: WatchedBroker | None = field(default=None)

    def __call__(self, passed: Passed) -> Watcher | None:
        witness = self.broker.witness if self.broker is not None else None
        return None if witness is None else witness.watch(passed)


@contextmanager
def watched_broker(version: str) -> Iterator[WatchedBroker]:
    """A broker of this release of Kafka, with the source's topic."""
    direct, advertised = free_ports(2)
    watching = _Watching()
    with Proxy(watch=watching) as proxy:
        proxy.relay(1, advertised, to=direct)
        config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised}", **_CONFIG}
        with EmbeddedKafka(version, port=direct, config=config) as kafka:
            kafka.create_topic(SOURCE.topic)
            options = ClientOptions(bootstrap_servers=(("127.0.0.1", advertised),), client_id="witness")
            with Cluster(options) as cluster, Cluster(options) as asked:
                watching.broker = WatchedBroker(kafka=kafka, proxy=proxy, cluster=cluster, asked=asked)
                yield watching.broker
