"""Brokers that come back at other addresses, under their ids, while a process lives that knows the old ones."""

from __future__ import annotations

import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.options import source_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports
from tests.reading import ours

pytestmark = pytest.mark.broker

PARTITION = TopicPartition("moving", 0)


def test_leaders_and_coordinators_at_other_addresses_are_found_by_the_bootstrap_servers(
    kafka_version, tmp_path, record_batch
):
    """The second address is that of no broker yet, as that of a service whose brokers are replaced."""
    old, new = free_ports(2)
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{new},127.0.0.1:{old}", "subscribe": "moving"}
    with Cluster(source_options(given).client) as cluster:

        def use(offset: int) -> None:
            append(cluster, idempotent_identity(cluster), [(PARTITION, 1, record_batch(None, 0, [b"value"]))])
            group = GroupCoordinator(cluster, "readers")
            group.commit_offsets({PARTITION: OffsetAndMetadata(offset=offset)})
            committed = group.fetch_offsets([PARTITION])[PARTITION]
            assert committed is not None
            assert committed.offset == offset

        with EmbeddedKafka(kafka_version, directory=tmp_path, port=old) as kafka:
            kafka.create_topic("moving", 1)
            use(0)
            kafka.stop()
        with EmbeddedKafka(kafka_version, directory=tmp_path, port=new) as moved:
            use(1)
            assert len(ours(moved.bootstrap, "moving")) == 2
