"""The command that a refusal names is complete: it can be copied into a shell."""

import pytest

from spark_kafka_eos.ledger.refusal import diagnosis_command
from spark_kafka_eos.options import sink_options

PLAIN = {"kafka.bootstrap.servers": "b1:9092,[::1]:9093", "kafka.transactional.id": "orders-copy"}
BASE = "kafka-eos query resolve orders-copy --bootstrap-servers"


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({}, f"{BASE} 'b1:9092,[::1]:9093'"),
        ({"checkpointLocation": "/data/my copy"}, f"{BASE} 'b1:9092,[::1]:9093' --checkpoint-location '/data/my copy'"),
        ({"ledgerTopic": "books"}, f"{BASE} 'b1:9092,[::1]:9093' --ledger-topic books"),
        (
            {"txnAppId": "monthly", "txnVersion": "7"},
            f"{BASE} 'b1:9092,[::1]:9093' --option txnAppId=monthly --option txnVersion=7",
        ),
    ],
    ids=["nothing else", "checkpoint", "another ledger topic", "batch write"],
)
def test_the_command_has_brokers_and_what_the_ledger_is_compared_with(options, command):
    assert diagnosis_command(sink_options({**PLAIN, **options})) == command


def test_a_secured_cluster_takes_its_properties_and_no_secret_is_shown():
    secured = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="hush";',
    }
    command = diagnosis_command(sink_options({**PLAIN, **secured}))
    assert command.endswith(" --properties client.properties")
    assert "hush" not in command
