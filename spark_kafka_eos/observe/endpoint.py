"""An HTTP endpoint with metrics for Prometheus, of the extra `metrics` (prometheus-client).

It shows what `observe.metrics` has, at each scrape, and nothing else: not the default registry of prometheus-client,
which is the application's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.observe.metrics import Metric, Series

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logger(__name__)


class Endpoint:
    """Serves `http://<host>:<port>/metrics` until `close`. Port 0 is a free one; `address` is the one in use.

    `metrics` is the table of what `series`, called at each scrape, may have. There is neither encryption nor a login.
    Raises ConfigurationError if it cannot listen there, or if prometheus-client is missing.
    """

    def __init__(self, metrics: Sequence[Metric], series: Callable[[], Series], *, host: str, port: int) -> None:
        registry = registry_of(metrics, series)
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigurationError(
                "metricsPort",
                f"cannot listen on port {port} of {host} ({error.strerror or error})",
                action="Set another port, or 0 for a free one, which is logged.",
            ) from error
        self.address = f"{f'[{host}]' if ':' in host else host}:{self._server.server_port}"
        log.info("metrics for Prometheus: http://%s/metrics", self.address)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def registry_of(metrics: Sequence[Metric], series: Callable[[], Series]) -> CollectorRegistry:
    """A registry that shows these metrics. Raises ConfigurationError if prometheus-client is missing."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "metricsPort",
            "requires the package prometheus-client",
            action='Run: pip install "spark-kafka-eos[metrics]"',
        ) from error
    registry = CollectorRegistry()
    registry.register(_Scrape(metrics, series))
    return registry


class _Scrape:
    """A collector of prometheus-client."""

    def __init__(self, metrics: Sequence[Metric], series: Callable[[], Series]) -> None:
        self._metrics, self._series = metrics, series

    def describe(self) -> Iterable[Any]:
        """Nothing: otherwise a registry collects once when it is made."""
        return ()

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        series = self._series()
        for metric in self._metrics:
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                for labels, durations in series.durations(metric).items():
                    histogram.add_metric(labels, list(durations.cumulated()), durations.total)
                yield histogram
            else:
                family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                samples = family(metric.name, metric.help, labels=metric.labels)
                for labels, value in series.values(metric).items():
                    samples.add_metric(labels, value)
                yield samples
