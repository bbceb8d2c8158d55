"""The probe: a scratch transaction with every request of a batch except Produce, which is then aborted.

Its transactional.id and its group are `<transactional id>.probe`, so it never fences the query. It adds partition 0 of
each output topic and commits an offset to its group; the abort leaves one marker in each of those partitions, and no
record and no offset anywhere. Where KIP-890's protocol is finalized, it runs once in each of the two protocols, because
in the newer one only Produce adds partitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from spark_kafka_eos.errors import AuthorizationFailed, KafkaEosError
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import transactions
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import ledger_topics, written_topics
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.rights import probe_id
from spark_kafka_eos.preflight.services import Service

_Result = TypeVar("_Result")

_PATIENCE_MS = 15_000  # of each request: a broker that lacks transactions may answer nothing, or a retriable error
_TIMEOUT_MS = 10_000  # after which the coordinator aborts by itself
_SUBJECT = "scratch transaction"


def probe(options: SinkOptions, sources: Sequence[str] = (), service: Service | None = None) -> Finding:
    """Begin and abort the scratch transaction; `sources` are topics on the sink's cluster that the query reads.

    Raises BrokerUnreachable or AuthenticationFailed if the cluster cannot be reached at all.
    """
    patience = min(_PATIENCE_MS, options.client.delivery_timeout_ms)
    with Cluster(replace(options.client, delivery_timeout_ms=patience)) as cluster:
        newest = cluster.transaction_version()
        accepted: list[str] = []
        try:
            for version in sorted({min(newest, 1), newest}):
                _Attempt(cluster, options, version, accepted).run(sources)
        except _Failed as failed:
            return _finding(failed, accepted, options, service)
    protocols = "both protocols" if newest >= 2 else "the protocol before KIP-890"
    steps = ", ".join(dict.fromkeys(accepted))
    observation = f"begun and aborted as {probe_id(options.transactional_id)}, in {protocols}; accepted: {steps}"
    return Finding(severity=Severity.OK, subject=_SUBJECT, found=observation)


class _Failed(Exception):
    """The step that failed, with the error."""

    def __init__(self, step: str, error: KafkaEosError) -> None:
        super().__init__(step)
        self.step, self.error = step, error


class _Attempt:
    """One scratch transaction in one protocol; `accepted` gets the steps that brokers accepted."""

    def __init__(self, cluster: Cluster, options: SinkOptions, version: int, accepted: list[str]) -> None:
        self._cluster, self._options, self._version, self._accepted = cluster, options, version, accepted

    def run(self, sources: Sequence[str]) -> None:
        identity = self._step("InitProducerId", self._initialise)
        try:
            self._fill(identity, sources)
        except _Failed:
            with contextlib.suppress(KafkaEosError):  # otherwise the coordinator aborts it after the timeout
                transactions.end_transaction(self._cluster, identity, commit=False)
            raise
        following = self._step("EndTxn", lambda: transactions.end_transaction(self._cluster, identity, commit=False))
        # Refused until every partition has its marker.
        self._step("InitProducerId after the abort", lambda: self._initialise(following))

    def _initialise(self, previous: ProducerIdentity | None = None) -> ProducerIdentity:
        return transactions.init_producer_id(
            self._cluster,
            probe_id(self._options.transactional_id),
            _TIMEOUT_MS,
            previous,
            transaction_version=self._version,
        )

    def _fill(self, identity: ProducerIdentity, sources: Sequence[str]) -> None:
        ledger = [name for name in ledger_topics(self._options) if self._cluster.exists(name, patience_ms=0)]
        written = [*written_topics(self._options), *ledger]
        group = GroupCoordinator(self._cluster, probe_id(self._options.transactional_id))
        if self._version < 2:
            partitions = [TopicPartition(name, 0) for name in written]
            self._step("AddPartitionsToTxn", lambda: transactions.add_partitions(self._cluster, identity, partitions))
            self._step("AddOffsetsToTxn", lambda: transactions.add_offsets(self._cluster, identity, group.group_id))
        # To commit an offset of a topic needs Read on it, as the query has on its sources and on the ledger.
        if (topic := next(iter([*sources, *ledger, *written]), None)) is not None:
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset=0)}
            self._step(
                "TxnOffsetCommit",
                lambda: group.commit_in_transaction(identity, offsets, transaction_version=self._version),
            )

    def _step(self, name: str, send: Callable[[], _Result]) -> _Result:
        try:
            result = send()
        except KafkaEosError as error:
            raise _Failed(name, error) from error
        self._accepted.append(name)
        return result


def _finding(failed: _Failed, accepted: Sequence[str], options: SinkOptions, service: Service | None) -> Finding:
    error, support = failed.error, "" if service is None else f"{service.name}: {service.support}"
    name = probe_id(options.transactional_id)
    before = f"accepted before: {', '.join(dict.fromkeys(accepted))}" if accepted else "nothing was accepted"
    if isinstance(error, AuthorizationFailed):
        return Finding(
            severity=Severity.WARNING,
            subject=_SUBJECT,
            found=f"not allowed: {error.what}; {before}",
            meaning="The query itself does not need this",
            action=f"Grant this principal Write on the transactional id {name} and Read on the group {name}",
        )
    return Finding(
        severity=Severity.ERROR,
        subject=_SUBJECT,
        found=f"{failed.step} failed: {error.what}; {before}",
        meaning="A batch sends the same request and would fail in the same way. The scratch transaction is aborted, at "
        f"the latest after {_TIMEOUT_MS // 1000} s",
        action=support or error.action.removesuffix("."),
    )
