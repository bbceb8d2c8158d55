"""What librdkafka cannot do is told; tests/broker has it reading."""

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.model import OffsetRange, TopicPartition
from spark_kafka_eos.options import source_options
from spark_kafka_eos.verify.follower import witness


def test_a_login_that_librdkafkas_wheel_does_not_support_is_an_error_that_says_so():
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}
    given |= {"kafka.sasl.kerberos.service.name": "kafka", "kafka.bootstrap.servers": "any:1", "subscribe": "t"}
    with pytest.raises(ToolFailed, match="librdkafka cannot be used .*No provider for SASL mechanism GSSAPI"):
        witness(source_options(given).client, [OffsetRange(partition=TopicPartition("t", 0), start=0, end=1)])
