"""Kafka's `security.*`, `sasl.*` and `ssl.*` properties as one value."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.kafka.auth import sasl, tls
from spark_kafka_eos.kafka.auth.security import Security
from spark_kafka_eos.kafka.errors import ConfigurationError


def security(properties: Mapping[str, object]) -> Security:
    """Build from the properties (field of the option table -> parsed value).

    Raises ConfigurationError if they conflict or are incomplete. Credentials or certificates that the protocol would
    not use count as a conflict, because the connection would be less secure than the user believes.
    """
    protocol = properties.get("security_protocol", "PLAINTEXT")
    who, certificates = sasl.sasl(properties), tls.trust(properties) | tls.identity(properties)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl.require(who, protocol)
    elif who.keys() & {"password", "token_source", "kerberos"}:
        raise ConfigurationError(
            "kafka.security.protocol", f"credentials are set, but {protocol} does not authenticate"
        )
    if certificates and protocol not in ("SSL", "SASL_SSL"):
        raise ConfigurationError("kafka.security.protocol", f"certificates are set, but {protocol} does not use TLS")
    check = properties.get("ssl_endpoint_identification_algorithm", "https") == "https"
    versions = tls.versions(properties)
    return Security(protocol=protocol, check_hostname=check, **who, **certificates, **versions)  # type: ignore[arg-type]
