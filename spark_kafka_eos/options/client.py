"""Options of every connection to Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spark_kafka_eos.auth.security import Security
from spark_kafka_eos.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Brokers, identity and timeouts. Times are in milliseconds.

    `request_timeout_ms` limits the wait for one response, `socket_connection_setup_timeout_ms` for a connection,
    `delivery_timeout_ms` for a request including its retries. The retry backoff doubles from `retry_backoff_ms` to
    `retry_backoff_max_ms`.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "spark-kafka-eos"
    security: Security = field(default_factory=Security)
    request_timeout_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def answering_within(self, milliseconds: int) -> ClientOptions:
        """The same with timeouts of at most this, for those who would rather have no answer."""
        return replace(
            self,
            request_timeout_ms=min(self.request_timeout_ms, milliseconds),
            socket_connection_setup_timeout_ms=min(self.socket_connection_setup_timeout_ms, milliseconds),
            delivery_timeout_ms=min(self.delivery_timeout_ms, milliseconds),
        )

    @property
    def servers(self) -> str:
        """`bootstrap_servers` as the property has them: `b1:9092,[::1]:9093`."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """Configuration of a confluent-kafka client. It contains secrets in plain text: never log it."""
        config = self.security.librdkafka()
        config |= {
            "bootstrap.servers": self.servers,
            "client.id": self.client_id,
            "socket.timeout.ms": self.request_timeout_ms,
            "socket.connection.setup.timeout.ms": self.socket_connection_setup_timeout_ms,
            "retry.backoff.ms": self.retry_backoff_ms,
            "retry.backoff.max.ms": max(self.retry_backoff_ms, self.retry_backoff_max_ms),
        }
        return config


def client_options(values: Mapping[str, object]) -> ClientOptions:
    """Build from the option table's fields. Raises ConfigurationError without brokers or on conflicting options."""
    if "bootstrap_servers" not in values:
        raise ConfigurationError(
            "kafka.bootstrap.servers", "is required", action="Set it to a comma-separated list of brokers, host:port."
        )
    return ClientOptions(**select(values, ClientOptions), security=_security(values))


def _security(values: Mapping[str, object]) -> Security:
    plain = values.get("security_protocol", "PLAINTEXT") == "PLAINTEXT"
    if plain and not any(field.startswith(("sasl_", "ssl_", "https_")) for field in values):
        return Security()
    from spark_kafka_eos.auth.properties import security  # a fifth of what a source's planning would import

    return security(values)


def select(values: Mapping[str, object], kind: type) -> dict[str, Any]:
    """The parsed values that are fields of the dataclass `kind`."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}
