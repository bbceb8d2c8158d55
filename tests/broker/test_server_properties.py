"""conf/server.properties: brokers take every setting of the file, and then the preflight has nothing to say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.properties import entries
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.conftest import release
from tests.pages import ROOT

pytestmark = pytest.mark.broker

FILE = entries(ROOT / "conf" / "server.properties")
SINCE = {"transaction.partition.verification.enable": (3, 6), "producer.id.expiration.ms": (3, 4)}


@pytest.fixture(scope="module")
def configured(kafka_version: str) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(kafka_version, brokers=3, config=FILE) as kafka:
        yield kafka


def test_brokers_take_every_setting_of_the_file(configured, kafka_version):
    admin = AdminClient({"bootstrap.servers": configured.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    settings = {name: entry.value for name, entry in described.result(30).items()}
    expected = {name: value for name, value in FILE.items() if release(kafka_version) >= SINCE.get(name, (0, 0))}
    assert {name: settings.get(name) for name in expected} == expected


def test_the_preflight_finds_nothing_on_such_brokers(configured):
    configured.create_topic("out", 3)
    given = {"kafka.bootstrap.servers": configured.bootstrap, "kafka.transactional.id": "copy", "topic": "out"}
    options = sink_options(given)
    with Cluster(options.client) as cluster:
        found = examine(cluster, options)
        if cluster.transaction_version() < 2:
            found = [finding for finding in found if finding.subject != "transaction.version"]
    assert [finding for finding in found if finding.severity is not Severity.OK] == []
