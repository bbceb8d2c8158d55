"""What librdkafka cannot do is told; tests/broker has it reading."""

import pytest

from spark_kafka_eos.errors import ConfigurationError, ToolFailed
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.options import source_options
from spark_kafka_eos.tools.verify.follower import witness
from spark_kafka_eos.tools.verify.verification import _options


def test_a_login_that_librdkafkas_wheel_does_not_support_is_an_error_that_says_so():
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}
    given |= {"kafka.sasl.kerberos.service.name": "kafka", "kafka.bootstrap.servers": "any:1", "subscribe": "t"}
    with pytest.raises(ToolFailed, match="librdkafka cannot be used .*No provider for SASL mechanism GSSAPI"):
        witness(source_options(given).client, [OffsetRange(partition=TopicPartition("t", 0), start=0, end=1)])


def test_the_checker_takes_its_addresses_as_the_sink_does():
    given = "[::1]:9092, SSL://broker:9093,"
    servers = source_options({"kafka.bootstrap.servers": given, "subscribe": "t"}).client.bootstrap_servers
    assert _options(given).bootstrap_servers == servers == (("::1", 9092), ("broker", 9093))
    for wrong in ("broker", "broker:0", "broker:１"):
        with pytest.raises(ConfigurationError, match="is not host:port"):
            _options(wrong)
