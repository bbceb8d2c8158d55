"""Services that speak Kafka's protocol but lack some of it, as their documentation says. Pure.

`docs/brokers.md` has the same table. No such service was available for tests, so the table explains what a broker
answers and never decides: the preflight refuses brokers only for what they or their topics say of themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Topics that are stored without leaders cannot take part in transactions: Aiven's names, the second one until 2025.
DISKLESS_SETTINGS = ("diskless.enable", "inkless.enable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service: how it is recognised, what of Kafka it supports, and where and when (year and month) that was read.

    `hosts` are ends of its brokers' names, `cluster_id` is the beginning of its clusters' ids; empty if nothing
    distinguishes the service from Kafka. `support` has no full stop at its end.
    """

    name: str
    support: str
    source: str
    read: str
    hosts: tuple[str, ...] = ()
    cluster_id: str = ""


SERVICES = (
    Service(
        name="Azure Event Hubs",
        support="Basic has no Kafka endpoint, and Standard no transactions. Premium and Dedicated have them as a "
        "preview: check them with kafka-eos preflight --probe",
        source="https://learn.microsoft.com/azure/event-hubs/apache-kafka-transactions",
        read="2026-11",
        hosts=(".servicebus.windows.net",),
    ),
    Service(
        name="Redpanda",
        support="It has transactions in the protocol before KIP-890. Releases that offer Fetch only up to version 11 "
        "cannot be read",
        source="https://docs.redpanda.com/streaming/current/develop/kafka-clients/",
        read="2026-11",
        cluster_id="redpanda.",
    ),
    Service(
        name="WarpStream",
        support="It has transactions, but not DescribeProducers: monitoring cannot name the owner of an open "
        "transaction",
        source="https://docs.warpstream.com/warpstream/kafka/reference/protocol-and-feature-support",
        read="2026-11",
        hosts=(".warpstream.com",),
    ),
    Service(
        name="StreamNative",
        support="Its Classic Engine has transactions, its Ursa Engine has neither transactions nor compacted topics",
        source="https://docs.streamnative.io/cloud/build/kafka-clients/compatibility/kafka-protocol-and-features",
        read="2026-11",
        hosts=(".streamnative.cloud",),
    ),
    Service(
        name="Aiven diskless topics (Inkless)",
        support="Diskless topics have neither transactions nor compaction. Use classic topics for the output and the "
        "ledger; a diskless topic can be read",
        source="https://aiven.io/docs/products/kafka/diskless/concepts/limitations",
        read="2026-11",
    ),
    Service(
        name="AutoMQ",
        support="It is a fork of Apache Kafka that changes the storage, and has Kafka's transactions",
        source="https://github.com/AutoMQ/automq",
        read="2026-11",
    ),
)


def recognised(hosts: Iterable[str], cluster_id: str) -> Service | None:
    """The service behind these brokers, if their names or the cluster's id show it."""
    hosts = tuple(hosts)
    for service in SERVICES:
        if service.hosts and any(host.lower().endswith(service.hosts) for host in hosts):
            return service
        if service.cluster_id and cluster_id.startswith(service.cluster_id):
            return service
    return None
