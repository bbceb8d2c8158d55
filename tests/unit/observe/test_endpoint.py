"""The endpoint as Prometheus sees it: over HTTP, in its text format."""

from __future__ import annotations

import sys
import urllib.request

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.observe.endpoint import Endpoint
from spark_kafka_eos.observe.metrics import BUCKETS, Metric, Series

DONE = Metric("kafka_eos_done_total", "counter", ("query",), "What is done.")
LEFT = Metric("kafka_eos_left", "gauge", (), "What is left.")
TOOK = Metric("kafka_eos_took_seconds", "histogram", ("query", "step"), "How long it took.")


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics") as response:
        return response.read().decode()


@pytest.fixture
def series():
    return Series()


@pytest.fixture
def endpoint(series):
    opened = Endpoint([DONE, LEFT, TOOK], lambda: series, host="127.0.0.1", port=0)
    yield opened
    opened.close()


def test_a_scrape_has_every_metric_with_its_current_value(endpoint, series):
    assert "kafka_eos_left " not in scrape(endpoint.address).replace("# HELP kafka_eos_left ", "").replace(
        "# TYPE kafka_eos_left ", ""
    )
    series.add(DONE, 'a "quoted" name', amount=3)
    series.set(LEFT, value=0.5)
    series.observe(TOOK, "q", "end", seconds=0.02)
    families = {family.name: family for family in text_string_to_metric_families(scrape(endpoint.address))}
    assert {name: family.type for name, family in families.items()} == {
        "kafka_eos_done": "counter",
        "kafka_eos_left": "gauge",
        "kafka_eos_took_seconds": "histogram",
    }
    assert [(s.labels, s.value) for s in families["kafka_eos_done"].samples] == [({"query": 'a "quoted" name'}, 3)]
    assert [s.value for s in families["kafka_eos_left"].samples] == [0.5]
    took = {s.labels.get("le", s.name): s.value for s in families["kafka_eos_took_seconds"].samples}
    assert took == {str(bound): float(bound >= 0.02) for bound in BUCKETS} | {
        "+Inf": 1,
        "kafka_eos_took_seconds_count": 1,
        "kafka_eos_took_seconds_sum": 0.02,
    }


def test_the_applications_own_registry_is_not_touched(endpoint):
    assert not any(metric.name.startswith("kafka_eos") for metric in REGISTRY.collect())
    assert "python_info" not in scrape(endpoint.address)


def test_a_port_in_use_is_an_error_that_names_the_option(endpoint):
    port = int(endpoint.address.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match=rf"metricsPort.*port {port} of 127\.0\.0\.1 \(Address already in use"):
        Endpoint([], Series, host="127.0.0.1", port=port)


def test_a_host_without_an_address_is_an_error_that_names_it():
    with pytest.raises(ConfigurationError, match=r"metricsPort.*of no\.such\.host\.invalid"):
        Endpoint([], Series, host="no.such.host.invalid", port=0)


def test_a_missing_package_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r'pip install "spark-kafka-eos\[metrics\]"'):
        Endpoint([], Series, host="127.0.0.1", port=0)


def test_a_closed_endpoint_frees_its_port():
    first = Endpoint([], Series, host="127.0.0.1", port=0)
    port = int(first.address.rpartition(":")[2])
    first.close()
    second = Endpoint([], Series, host="127.0.0.1", port=port)
    second.close()
    assert first.address == second.address


def test_an_address_of_ip_6_can_be_scraped_as_it_is_shown():
    endpoint = Endpoint([LEFT], Series, host="::1", port=0)
    try:
        assert "kafka_eos_left" in scrape(endpoint.address)
    finally:
        endpoint.close()
