"""What `--print-metrics` prints: the requests of a run by API, in the layout of Kafka's tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spark_kafka_eos.kafka.protocol.trace import Trace


class RequestMetrics:
    """The requests of many traces."""

    def __init__(self) -> None:
        self._milliseconds: dict[str, list[float]] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self._waited: Counter[str] = Counter()

    def add(self, trace: Trace) -> None:
        for request in trace.requests:
            self._milliseconds.setdefault(request.api, []).append(request.milliseconds)
            if request.error:
                self._errors[request.api, request.error] += 1
        self._waited.update(trace.waited)

    def count(self, api: str) -> int:
        """How many requests there were, retries included."""
        return len(self._milliseconds.get(api, ()))

    def waited(self, error: str) -> float:
        """The milliseconds that retries after this error took."""
        return self._waited[error]

    def lines(self) -> Iterator[str]:
        """A line per metric, sorted by name, as `ToolsUtils.printMetrics` prints them."""
        named: dict[str, float] = {}
        for api, took in self._milliseconds.items():
            tags = f"{{api={api}}}"
            named[f"requests:request-total:{tags}"] = len(took)
            named[f"requests:request-latency-avg:{tags}"] = sum(took) / len(took)
            named[f"requests:request-latency-max:{tags}"] = max(took)
        for (api, error), count in self._errors.items():
            named[f"requests:request-error-total:{{api={api}, error={error}}}"] = count
        for error, milliseconds in self._waited.items():
            named[f"requests:retry-time-ms-total:{{error={error}}}"] = milliseconds
        width = max(map(len, named), default=0)
        yield f"{'Metric Name':<{width}}   Value"
        yield from (f"{name:<{width}} : {named[name]:.3f}" for name in sorted(named))
