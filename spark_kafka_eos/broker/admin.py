"""Create, delete and inspect topics: confluent-kafka's AdminClient, with our errors and in bounded time.

What the data path asks (partitions, offsets, groups) goes over our own connections: see `cluster`, `offsets`, `groups`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from spark_kafka_eos.broker.retry import retry
from spark_kafka_eos.core.backoff import Budget
from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable, KafkaEosError
from spark_kafka_eos.options import ClientOptions

K = TypeVar("K")

_UNTRUSTED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - librdkafka's own names
_PATIENCE_MS = 5_000  # on top of librdkafka's own: a new topic is unknown to some brokers for a moment


class Admin:
    """Questions to the cluster, each answered or failed within about request.timeout.ms.

    Raises UnknownTopic, BrokerUnreachable (naming the bootstrap servers), AuthenticationFailed, AuthorizationFailed,
    BrokerError. Holds background threads until it is garbage; make one and keep it.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._trouble: KafkaError | None = None
        config: dict[str, Any] = {
            **options.librdkafka(),
            "error_cb": self._remember,
            "log_level": 2,  # what is not critical arrives as errors of ours
        }
        self._client: Any = AdminClient(config)

    def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        config: Mapping[str, str] | None = None,
        replication_factor: int = -1,
    ) -> None:
        """Create topics with so many partitions each; -1 replicas is the broker's default."""
        new = [
            NewTopic(name, num_partitions=count, replication_factor=replication_factor, config=dict(config or {}))
            for name, count in topics.items()
        ]
        self._ask("CreateTopics", lambda: self._client.create_topics(new), lambda name: f"topic {name!r}")

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics and all they hold."""
        names = list(topics)
        self._ask("DeleteTopics", lambda: self._client.delete_topics(names), lambda name: f"topic {name!r}")

    def topic_config(self, topic: str) -> dict[str, str]:
        """The topic's effective configuration, e.g. `max.message.bytes`."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self._ask(
            "DescribeConfigs",
            lambda: self._client.describe_configs([resource], request_timeout=self._timeout),
            lambda _: f"topic {topic!r}",
        )
        return {name: entry.value for name, entry in found[resource].items()}

    @property
    def _timeout(self) -> float:
        return self._options.request_timeout_ms / 1000

    def _ask(
        self,
        api: str,
        start: Callable[[], Mapping[K, Future[Any]]],
        context: Callable[[K], str],
    ) -> dict[K, Any]:
        """All the futures' results, tried again as `core.reactions` says."""

        def attempt() -> dict[K, Any]:
            self._trouble = None
            results: dict[K, Any] = {}
            for key, future in start().items():
                try:
                    results[key] = future.result()
                except KafkaException as error:
                    if error.args[0].code() < 0:
                        raise self._local(error.args[0]) from error
                    results[key] = error
            return results

        def errors(results: dict[K, Any]) -> Iterable[tuple[str, int]]:
            for key, result in results.items():
                yield context(key), result.args[0].code() if isinstance(result, KafkaException) else 0

        budget = Budget(
            milliseconds=min(self._options.request_timeout_ms, _PATIENCE_MS),
            backoff_ms=self._options.retry_backoff_ms,
            backoff_max_ms=self._options.retry_backoff_max_ms,
            clock=time.monotonic,
            jitter=random.random,
        )
        found: dict[K, Any] = retry(api, attempt, errors, lambda _: None, budget=budget, sleep=time.sleep)
        return found

    def _remember(self, error: KafkaError) -> None:
        self._trouble = error

    def _local(self, error: KafkaError) -> KafkaEosError:
        """librdkafka's own errors (negative codes): it could not reach the cluster, or was not let in."""
        self._client.poll(0)  # serves the callback that knows why
        why = self._trouble or error
        servers = ",".join(f"{host}:{port}" for host, port in self._options.bootstrap_servers)
        if why.code() in _UNTRUSTED:
            return AuthenticationFailed(f"kafka.bootstrap.servers={servers} did not let us in: {why.str()}")
        return BrokerUnreachable(
            f"none of the brokers could be asked (kafka.bootstrap.servers={servers}): {why.str()}",
            action="Check the addresses and the listeners' advertised names.",
        )
