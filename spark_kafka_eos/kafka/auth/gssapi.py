"""SASL GSSAPI (RFC 4752) with the system's Kerberos library: the client proves its identity with a service ticket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_kafka_eos.kafka.auth.kerberos import Kerberos
from spark_kafka_eos.kafka.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError

_NO_SECURITY_LAYER = 1
_KDC_UNREACHABLE = 0x100000000 - 1_765_328_228  # KRB5_KDC_UNREACH


def exchange_tickets(kerberos: Kerberos, address: str, exchange: Callable[[bytes], bytes]) -> None:
    """Authenticate. `exchange` as in `sasl_exchange`; `address` is the broker's host:port.

    Raises ConfigurationError without the package gssapi, BrokerUnreachable if no KDC answers, AuthenticationFailed if
    there is no valid ticket, if the KDC or the broker rejects it, or if the broker is not the one that it claims to be.
    """
    try:
        import gssapi
    except ImportError as error:  # also without the system's library
        raise ConfigurationError(
            "kafka.sasl.mechanism",
            f"GSSAPI requires the package gssapi: {error}",
            action="Install spark-kafka-eos[kerberos] on the driver and the executors.",
        ) from None
    host, _, _ = address.rpartition(":")
    try:
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"{kerberos.service}@{host}", gssapi.NameType.hostbased_service),
            creds=_credentials(kerberos),
            mech=gssapi.MechType.kerberos,
            usage="initiate",
        )
        token = context.step()
        while not context.complete:
            token = context.step(exchange(token or b""))
        layers = context.unwrap(exchange(token or b"")).message
        if len(layers) != 4 or not layers[0] & _NO_SECURITY_LAYER:
            raise AuthenticationFailed(f"{address} requires a SASL security layer, which Kafka does not have")
        # TLS protects the records. The principal of the ticket is the one that is authorised.
        exchange(context.wrap(bytes([_NO_SECURITY_LAYER, 0, 0, 0]), False).message)
    except gssapi.exceptions.GSSError as error:
        raise _failure(kerberos, address, error) from None


def _credentials(kerberos: Kerberos) -> Any:
    """The Kerberos library obtains tickets from the keytab when they are needed, and keeps them in memory."""
    import gssapi

    name = gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal) if kerberos.principal else None
    store = {}
    if kerberos.keytab is not None:
        store = {"client_keytab": kerberos.keytab, "ccache": f"MEMORY:{kerberos.keytab}/{kerberos.principal}"}
    elif kerberos.ticket_cache is not None:
        store = {"ccache": kerberos.ticket_cache}
    return gssapi.Credentials(name=name, usage="initiate", store=store or None)


def _failure(kerberos: Kerberos, address: str, error: Any) -> AuthenticationFailed | BrokerUnreachable:
    """The library's messages name principals, files and realms, and no keys."""
    reasons = error.get_all_statuses(error.min_code, False) or error.get_all_statuses(error.maj_code, True)
    what = f"Kerberos login at {address} failed: {'; '.join(reasons)}"
    if error.min_code & 0xFFFFFFFF == _KDC_UNREACHABLE:
        return BrokerUnreachable(what)
    if kerberos.keytab is not None:
        action = f"Check principal, keytab {kerberos.keytab}, kafka.sasl.kerberos.service.name and krb5.conf."
        return AuthenticationFailed(what, action=action)
    return AuthenticationFailed(
        what,
        action=f"Renew the ticket in {kerberos.ticket_cache or 'the default ticket cache'} (kinit), on the driver and "
        "each executor's machine, or set a keytab, from which tickets are renewed automatically.",
    )
