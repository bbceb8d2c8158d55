"""Reads and commits a consumer group's offsets, in a transaction (KIP-98, KIP-447) or without one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest

from spark_kafka_eos.kafka.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import failure
from spark_kafka_eos.kafka.protocol.responses import incomplete
from spark_kafka_eos.kafka.protocol.topics import leaderless
from spark_kafka_eos.kafka.protocol.versions import transactional
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC

# The coordinator stores a commit as one record batch of its internal topic, with a record for each partition. One above
# `message.max.bytes`, 1 MB by default, is refused (INVALID_COMMIT_OFFSET_SIZE); half of that leaves room.
_STORED_COMMIT_BYTES = 500_000
_STORED_OFFSET_BYTES = 80  # of such a record, without the names of group and topic and the metadata
_NO_MEMBER = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}


class GroupCoordinator:
    """The coordinator of one consumer group that has no members, so that only we commit its offsets.

    Whether it has none is for the caller to look at (`describe.group`): only `commit_offsets` raises BrokerError if
    another client is a member. In a transaction, brokers take offsets that name no member whatever members there are,
    of groups with either protocol (seen with 4.4).
    Every method is retried within delivery.timeout.ms and raises BrokerError, ProducerFenced, TransactionAborted,
    AuthorizationFailed, BrokerUnreachable.
    """

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster

    def fetch_offsets(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool = True, patience_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, None if there is none.

        `require_stable` waits for offsets that an open transaction is about to commit (KIP-447), for `patience_ms`, by
        default delivery.timeout.ms.
        """
        return self.fetch_offsets_ahead(partitions, require_stable=require_stable, patience_ms=patience_ms)()

    def fetch_offsets_ahead(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool = True, patience_ms: int | None = None
    ) -> Callable[[], dict[TopicPartition, OffsetAndMetadata | None]]:
        """As `fetch_offsets`, whose response the function that is returned waits for; the request is sent now."""
        topic_class: Any = OffsetFetchRequest.OffsetFetchRequestTopic
        requested = dict.fromkeys(partitions)
        topics = [
            topic_class(name=topic, partition_indexes=[tp.partition for tp in members])
            for topic, members in _by_topic(requested).items()
        ]
        fetched = self._fetch_ahead(topics, requested, require_stable, patience_ms)
        return lambda: {**requested, **fetched()}

    def fetch_all(
        self, *, require_stable: bool = True, patience_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """All offsets of the group, for topics that this principal may describe; see `fetch_offsets`."""
        return self._fetch_ahead(None, None, require_stable, patience_ms)()

    def _fetch_ahead(
        self,
        topics: Sequence[Any] | None,
        asked: Iterable[TopicPartition] | None,
        require_stable: bool,
        patience_ms: int | None,
    ) -> Callable[[], dict[TopicPartition, OffsetAndMetadata]]:
        patience = self._cluster.budget(patience_ms)
        request = OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=require_stable)

        def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
            yield ResourceRef(group=self.group_id), response.error_code
            if not response.error_code:  # some brokers return an error for an unknown group, which has no offsets
                for resource, code in self._errors(response, "OffsetFetch", asked):
                    if code == ErrorCode.UNSTABLE_OFFSET_COMMIT and patience.spent:
                        raise failure("OffsetFetch", code, resource)
                    yield resource, code

        response = self._cluster.call_coordinator_ahead("group", self.group_id, request, errors)
        return lambda: {
            TopicPartition(topic.name, p.partition_index): OffsetAndMetadata(
                offset=p.committed_offset, metadata=p.metadata or ""
            )
            for topic in response().topics
            for p in topic.partitions
            if p.committed_offset >= 0
        }

    def commit_in_transaction(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        transaction_version: int,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        """TxnOffsetCommit: the offsets take effect when the transaction commits. `again` is called before a request is
        sent once more although it may have been applied.

        In TV1, the group must be added to the transaction first (`TransactionCoordinator.add_offsets`).
        """
        newest = transactional("TxnOffsetCommit", transaction_version)
        for part in self._storable(offsets):
            request = TxnOffsetCommitRequest(
                transactional_id=identity.transactional_id,
                group_id=self.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=_topics(TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, part),
            )
            errors = functools.partial(
                self._errors, api="TxnOffsetCommit", asked=part, transactional_id=identity.transactional_id
            )
            self._cluster.call_coordinator("group", self.group_id, request, errors, newest=newest, again=again)

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """OffsetCommit: the offsets take effect immediately."""
        for part in self._storable(offsets):
            topics = _topics(OffsetCommitRequest.OffsetCommitRequestTopic, part)
            request = OffsetCommitRequest(group_id=self.group_id, topics=topics, **_NO_MEMBER)
            errors = functools.partial(self._errors, api="OffsetCommit", asked=part)
            self._cluster.call_coordinator("group", self.group_id, request, errors)

    def _storable(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
        """The offsets in parts that a coordinator accepts, sorted; usually one."""
        part: dict[TopicPartition, OffsetAndMetadata] = {}
        entry_bytes, size = _STORED_OFFSET_BYTES + len(self.group_id.encode()), 0
        for tp in sorted(offsets):
            added = entry_bytes + len(tp.topic) + len(offsets[tp].metadata.encode())
            if part and size + added > _STORED_COMMIT_BYTES:
                yield part
                part, size = {}, 0
            part[tp], size = offsets[tp], size + added
        if part:
            yield part

    def _errors(
        self, response: Any, api: str, asked: Iterable[TopicPartition] | None, transactional_id: str = ""
    ) -> Iterable[tuple[ResourceRef, int]]:
        answered = {
            TopicPartition(topic.name, p.partition_index): p.error_code
            for topic in response.topics
            for p in topic.partitions
        }
        for tp, code in answered.items():
            yield ResourceRef(partition=tp, group=self.group_id, transactional_id=transactional_id), code
        if asked is not None and (error := incomplete(api, asked, answered)):
            raise error


class PlainCommits:
    """The commits of this process to a group, without a transaction. Nothing fences them, so a process that comes back
    late would move the group back to where it was itself.

    A first commit may go anywhere, as that of a query that starts again with an older checkpoint. Before each later one
    the group is looked at: a partition in which somebody else has moved it on meanwhile, beyond what is to be
    committed, is left alone. Between the look and the commit, nobody can know.
    """

    def __init__(self, group: GroupCoordinator) -> None:
        self._group = group
        self._last: dict[TopicPartition, int] = {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commit these, and return the offsets of the partitions that are left alone."""
        seen = self._group.fetch_offsets(self._last.keys() & offsets.keys(), require_stable=False) if self._last else {}
        there = {tp: committed.offset for tp, committed in seen.items() if committed is not None}
        ahead = {tp: offset for tp, offset in there.items() if offset > max(self._last[tp], offsets[tp])}
        due = {tp: offset for tp, offset in offsets.items() if tp not in ahead}
        self._group.commit_offsets({tp: OffsetAndMetadata(offset=offset) for tp, offset in due.items()})
        self._last |= due
        return ahead


def stored_in(group_id: str, partitions: int) -> int:
    """The partition, of this many of Kafka's internal topic, in which a group's offsets are: by Java's hash code."""
    units, code = group_id.encode("utf-16-be"), 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def group_ids(cluster: Cluster) -> tuple[list[str], dict[int, str]]:
    """All groups that this principal may describe, sorted; and the nodes whose groups are missing, with the reason:
    those that did not answer, and, as far as this principal may describe the offsets' own topic, those that are down.
    Raises BrokerUnreachable if no broker answers.
    """
    found: set[str] = set()
    silent: dict[int, str] = {}
    for node in cluster.nodes():
        try:
            found.update(_group_ids(cluster, node))
        except KafkaEosError as error:
            silent[node] = error.what
    return sorted(found), {**leaderless(cluster, OFFSETS_TOPIC), **silent}


def _group_ids(cluster: Cluster, node: int) -> list[str]:
    """The groups that this node coordinates."""
    from kafka.protocol.admin.groups import ListGroupsRequest  # for operators alone

    request = ListGroupsRequest(states_filter=[], types_filter=[])
    response = cluster.call_node(node, request, lambda response: [(f"broker {node}", response.error_code)])
    return [listed.group_id for listed in response.groups]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp)
    return by_topic


def _topics(topic_class: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Any]:
    """The `topics` of OffsetCommit and TxnOffsetCommit, whose partition classes differ only in their names."""
    partition_class = topic_class.fields["partitions"].data_class
    return [
        topic_class(
            name=topic,
            partitions=[
                partition_class(
                    partition_index=tp.partition,
                    committed_offset=offsets[tp].offset,
                    committed_leader_epoch=-1,
                    committed_metadata=offsets[tp].metadata,
                )
                for tp in members
            ],
        )
        for topic, members in _by_topic(offsets).items()
    ]
