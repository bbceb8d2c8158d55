"""Whom the driver asks in a transaction: the coordinators, the ledger's topic, and what the brokers tell of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.ledger_topic import LedgerTopic
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core.preflight import TransactionFacts, Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The real ones; tests put models in their place."""

    coordinator: Callable[[Cluster, str, int], TransactionCoordinator] = TransactionCoordinator
    group: Callable[[Cluster, str], GroupCoordinator] = GroupCoordinator
    ledger_topic: Callable[[Cluster, str, str], LedgerTopic] = LedgerTopic
    transaction: Callable[..., TransactionFacts | Unread | None] = describe.transaction
    coordinator_settings: Callable[..., Mapping[str, str] | Unread] = describe.coordinator_settings


REAL = Brokers()
