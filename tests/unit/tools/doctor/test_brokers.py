"""A broker's limits as a finding; tests/broker/test_doctor.py reads real ones."""

from __future__ import annotations

from spark_kafka_eos.kafka.protocol.facts import Unavailable
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.doctor.brokers import limit_finding


def test_limits_are_shown_by_name():
    found = limit_finding({"transaction.max.timeout.ms": "900000", "message.max.bytes": "1048588"})
    assert found.severity is Severity.OK
    assert found.found == "message.max.bytes=1048588, transaction.max.timeout.ms=900000"


def test_limits_that_could_not_be_read_are_a_warning_with_the_right_to_grant():
    found = limit_finding(Unavailable(reason="CLUSTER_AUTHORIZATION_FAILED", grant="DescribeConfigs on Cluster"))
    assert (found.severity, found.found) == (
        Severity.WARNING,
        "could not be read: CLUSTER_AUTHORIZATION_FAILED",
    )
    assert found.action == "Grant DescribeConfigs on Cluster to this principal"
    assert limit_finding(Unavailable(reason="UNKNOWN_SERVER_ERROR")).action == ""
