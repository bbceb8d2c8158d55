"""From parsed options to those of every connection to Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.security import Security
from spark_kafka_eos.kafka.client_options import ClientOptions


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
    from spark_kafka_eos.kafka.auth.properties import security  # a fifth of what a source's planning would import

    return security(values)


def select(values: Mapping[str, object], kind: type) -> dict[str, Any]:
    """The parsed values that are fields of the dataclass `kind`."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}
