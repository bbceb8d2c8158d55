"""Whether brokers offer the APIs that a query needs: their own answer (KIP-35), before anything else is asked. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_eos.kafka.protocol.facts import Abilities
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.services import Service

SOURCE_APIS = ("Metadata", "ListOffsets", "Fetch")
PRODUCER_APIS = ("Metadata", "DescribeConfigs", "InitProducerId", "Produce")
TRANSACTION_APIS = (
    *PRODUCER_APIS,
    *("FindCoordinator", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    "DescribeTransactions",  # after a commit whose response was lost
    *("OffsetFetch", "ListOffsets", "Fetch"),  # the ledger
)
_WITHOUT = {
    "DescribeGroups": "Whether a group has active members cannot be checked",
    "DescribeProducers": "Monitoring cannot name the owner of an open transaction",
    "ListTransactions": "Monitoring cannot name the owner of an open transaction",
    "CreateTopics": "The sink cannot create the ledger topic: create it yourself",
}


def sink_findings(abilities: Abilities, service: Service | None, *, transactions: bool) -> Iterator[Finding]:
    """An error if no batch could be written, warnings for what works less well, and what is known of the service."""
    needed = TRANSACTION_APIS if transactions else PRODUCER_APIS
    support = "" if service is None else f"{service.name}: {service.support}"
    missing = [api for api in needed if api in abilities.lacking]
    if missing:
        without = "transactions" if transactions else "idempotent producers"
        yield Finding(
            severity=Severity.ERROR,
            subject="APIs",
            found=f"the brokers lack {_listed(abilities, missing)}",
            meaning=f"Without them there are no {without} as the sink needs them: every batch would fail. "
            "Nothing else was checked",
            action=support
            or "Upgrade to Kafka 3.3 or later, with an inter.broker.protocol.version of 0.11.0 or later, or "
            "use a service that offers these APIs",
        )
        return
    if service is not None:
        yield Finding(severity=Severity.WARNING, subject="service", found=service.name, meaning=service.support)
    for meaning in dict.fromkeys(_WITHOUT.values()):
        apis = [api for api, what in _WITHOUT.items() if what == meaning and api in abilities.lacking]
        if apis and transactions:
            yield Finding(
                severity=Severity.WARNING,
                subject="APIs",
                found=f"the brokers lack {_listed(abilities, apis)}",
                meaning=meaning,
            )


def source_findings(abilities: Abilities) -> Iterator[Finding]:
    """An error if the brokers lack what the source needs."""
    if missing := [api for api in SOURCE_APIS if api in abilities.lacking]:
        yield Finding(
            severity=Severity.ERROR,
            subject="APIs of the source's cluster",
            found=f"the brokers lack {_listed(abilities, missing)}",
            meaning="Nothing can be read from them. Nothing else was checked",
            action="Upgrade to Kafka 3.3 or later, or use a service that offers these APIs",
        )


def _listed(abilities: Abilities, apis: list[str]) -> str:
    """`EndTxn, Fetch (versions 4 to 11 offered, 13 to 16 needed)`."""
    reasons = ((api, abilities.lacking[api]) for api in apis)
    return ", ".join(api if reason == "not offered" else f"{api} ({reason})" for api, reason in reasons)
