"""Kerberos without its package; tests/broker/test_kerberos.py has a KDC."""

import sys

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import sasl_exchange
from spark_kafka_eos.kafka.auth.kerberos import Kerberos
from spark_kafka_eos.options import Security


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    security = Security(protocol="SASL_SSL", mechanism="GSSAPI", kerberos=Kerberos(service="kafka"))
    with pytest.raises(
        ConfigurationError, match=r"Install spark-kafka-eos\[kerberos\] on the driver and the executors"
    ):
        sasl_exchange(security, "broker:9092", lambda _: b"")
