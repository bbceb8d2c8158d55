"""What a connection to Kafka needs to know: brokers, identity, credentials and timeouts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spark_kafka_eos.kafka.auth.security import Security


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Brokers, identity and timeouts. Times are in milliseconds.

    `request_timeout_ms` limits the wait for one response, `socket_connection_setup_timeout_ms` for a connection with
    its TLS handshake, and `tcp_timeout_ms`, if it is less, until the host accepts it; `delivery_timeout_ms` limits a
    request including its retries. The retry backoff doubles from `retry_backoff_ms` to `retry_backoff_max_ms`.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "spark-kafka-eos"
    security: Security = field(default_factory=Security)
    request_timeout_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    tcp_timeout_ms: int | None = None
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
