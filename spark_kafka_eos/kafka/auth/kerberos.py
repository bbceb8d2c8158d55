"""Kerberos: the options of Java's Krb5LoginModule, and librdkafka's names for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.auth.stores import readable
from spark_kafka_eos.kafka.errors import ConfigurationError

MODULE = "Krb5LoginModule"

_JAAS = "kafka.sasl.jaas.config"
_SERVICE = "kafka.sasl.kerberos.service.name"
_HONOURED = {"useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName"}
# They tune Java: where it keeps the key, whether it asks on the terminal, what it logs, when it renews.
_WITHOUT_EFFECT = {"storeKey", "doNotPrompt", "debug", "renewTGT", "refreshKrb5Config", "isInitiator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kerberos:
    """Authenticates to `<service>/<broker's host>` as `principal`, by default that of the keytab or ticket cache.

    `keytab` is a file, from which the Kerberos library obtains and renews tickets. Without it, `ticket_cache` is used
    (`FILE:/tmp/krb5cc_0`), by default that of the process, which somebody else must renew.
    """

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None

    def librdkafka(self) -> dict[str, str | None]:
        """The librdkafka configuration; it has no name for the ticket cache."""
        return {
            "sasl.kerberos.service.name": self.service,
            "sasl.kerberos.principal": self.principal,
            "sasl.kerberos.keytab": self.keytab,
        }


def kerberos(properties: Mapping[str, object], login: Mapping[str, Secret]) -> Kerberos:
    """From the option table's fields and the login module's options. Raises ConfigurationError."""
    inside = {name: value.reveal() for name, value in login.items()}
    unknown = sorted(inside.keys() - _HONOURED - _WITHOUT_EFFECT)
    if unknown:
        raise ConfigurationError(_JAAS, f"{unknown[0]} of {MODULE} is not supported")
    service = properties.get("sasl_kerberos_service_name", inside.get("serviceName"))
    if not service:
        raise ConfigurationError(
            _SERVICE, "is required with GSSAPI", action="Set it to the brokers' service name, usually kafka."
        )
    if inside.get("serviceName", service) != service:
        raise ConfigurationError(_SERVICE, f"contradicts serviceName in {_JAAS}")
    keytab = _keytab(properties, inside)
    cache = inside.get("ticketCache") if _is_set(inside, "useTicketCache") else None
    if keytab is None and inside and not _is_set(inside, "useTicketCache"):
        raise ConfigurationError(_JAAS, f"{MODULE} needs useKeyTab=true with a keyTab, or useTicketCache=true")
    principal = properties.get("sasl_kerberos_principal", inside.get("principal"))
    return Kerberos(
        service=str(service),
        principal=None if principal is None else str(principal),
        keytab=keytab,
        ticket_cache=None if keytab else cache,
    )


def _keytab(properties: Mapping[str, object], inside: Mapping[str, str]) -> str | None:
    if "sasl_kerberos_keytab" in properties:
        return readable("kafka.sasl.kerberos.keytab", properties["sasl_kerberos_keytab"])
    if not _is_set(inside, "useKeyTab"):
        return None
    if "keyTab" not in inside:
        raise ConfigurationError(_JAAS, "useKeyTab=true requires keyTab")
    return readable(_JAAS, inside["keyTab"].removeprefix("FILE:"))


def _is_set(inside: Mapping[str, str], name: str) -> bool:
    return inside.get(name, "false").lower() == "true"
