"""A password is in no log and no error of a connection, however it ends."""

from __future__ import annotations

import logging
import pickle
import traceback

import pytest

from spark_kafka_eos.errors import AuthenticationFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.preflight.rights import Right
from tests.principals import add_user

pytestmark = pytest.mark.broker

USER, PASSWORD = "quiet", "hunter2"


@pytest.fixture(scope="module")
def bootstrap(secured):
    add_user(secured.kafka.bootstrap, USER, PASSWORD, [Right("Describe", "topic", "*")])
    return secured.kafka.bootstrap_of("SASL_PLAINTEXT")


@pytest.mark.parametrize(
    ("mechanism", "password", "logs_in"),
    [("SCRAM-SHA-256", PASSWORD, True), ("SCRAM-SHA-256", PASSWORD * 2, False), ("PLAIN", PASSWORD, False)],
)
def test_a_password_is_in_no_log_error_or_value(bootstrap, caplog, mechanism, password, logs_in):
    caplog.set_level(logging.DEBUG)
    module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    options = source_options(
        {
            "subscribe": "any",
            "kafka.bootstrap.servers": bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="{USER}" '
            f'password="{password}";',
        }
    )
    shown = [repr(options), str(pickle.loads(pickle.dumps(options)))]
    with Cluster(options.client) as cluster:
        if logs_in:
            cluster.topic_names()
        else:
            with pytest.raises(AuthenticationFailed, match=f"rejected user '{USER}'") as caught:
                cluster.topic_names()
            shown += traceback.format_exception(caught.value)
        shown += [repr(cluster), str(vars(cluster))]
    assert PASSWORD not in "".join(shown)
    assert PASSWORD not in caplog.text
