"""Every property of Kafka's own clients is honoured, ignored with a reason or refused with a reason."""

import re
import subprocess

import pytest

from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.table import OPTIONS
from spark_kafka_eos.testing.jars import DEFAULT_VERSION, class_path
from spark_kafka_eos.testing.java import java
from tests.conftest import KAFKA_35, KAFKA_39, KAFKA_OLDEST

pytestmark = pytest.mark.broker


def properties(version: str, client: str) -> set[str]:
    """All public properties, from the documentation that the class prints (`ConfigDef.toHtml`)."""
    command = [str(java()), "-cp", class_path(version), f"org.apache.kafka.clients.{client}"]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r'<h4><a id="([^"]+)"></a>', page))


@pytest.mark.parametrize("client", ["consumer.ConsumerConfig", "producer.ProducerConfig"])
@pytest.mark.parametrize("version", [KAFKA_OLDEST, KAFKA_35, KAFKA_39, DEFAULT_VERSION])
def test_no_property_of_kafkas_clients_is_unknown(version, client):
    found = {f"kafka.{name}" for name in properties(version, client)}
    assert len(found) > 70
    assert (
        found - {name for row in OPTIONS for name in (row.name, *row.also)} - REFUSED.keys() - WITHOUT_EFFECT.keys()
        == set()
    )
