"""Describes the cluster: topics and their replicas, settings, a transactional.id, a group's members.

It is for the preflight, so a missing ACL is a result (`Unavailable`), not an error. Raises BrokerUnreachable and
BrokerError.

Requests of the admin API are imported where they are made: a process of Spark makes one or two of them, and each of
kafka-python's modules makes the classes of many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from spark_kafka_eos.kafka.errors import AuthorizationFailed, BrokerError, BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.cluster import UNKNOWN_TOPIC_PATIENCE_MS, Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import name_of
from spark_kafka_eos.kafka.protocol.facts import (
    TWO_PHASE_COMMIT,
    Abilities,
    GroupFacts,
    Settings,
    TopicFacts,
    TopicLimits,
    TransactionFacts,
    Unavailable,
)
from spark_kafka_eos.kafka.protocol.responses import incomplete

_OPERATIONS = {3: "Read", 4: "Write", 8: "Describe", 10: "DescribeConfigs"}  # org.apache.kafka.common.acl
MOST_LOOKS = 5  # at a transactional.id whose owner, ledger or table changes in between
_NO_LIMIT = (1 << 63) - 1
_LIMITS = (
    "max.message.bytes",
    "cleanup.policy",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
    "retention.ms",
)
_TOPIC, _BROKER = 2, 4  # org.apache.kafka.common.config.ConfigResource.Type


def abilities(cluster: Cluster) -> Abilities:
    """What one of the brokers says of itself."""
    broker = cluster.some_broker()
    return Abilities(
        lacking=broker.lacking,
        metadata_version=broker.supported_features.get("metadata.version"),
        two_phase_commit=broker.offers("InitProducerId", TWO_PHASE_COMMIT),
    )


def topics(
    cluster: Cluster,
    names: Sequence[str],
    settings: Sequence[str],
    *,
    optional: Sequence[str] = (),
    awaited: Iterable[str] = (),
) -> tuple[int, dict[str, TopicFacts | Unavailable | None]]:
    """The number of brokers, and each topic with these settings, None if it does not exist.

    `optional` are settings that not every broker has. Topics in `awaited` have a few seconds to appear.
    """
    metadata = _metadata(cluster, names, frozenset(awaited))
    described = {topic.name: topic for topic in metadata.topics if not topic.error_code}
    configured = _topic_settings(cluster, sorted(described), settings, optional)
    facts: dict[str, TopicFacts | Unavailable | None] = {}
    for topic in metadata.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            facts[topic.name] = None
        elif topic.error_code:
            grant = "Describe and DescribeConfigs on Topic"
            facts[topic.name] = Unavailable(reason=name_of(topic.error_code), grant=grant)
        else:
            facts[topic.name] = TopicFacts(
                partitions=len(topic.partitions),
                replicas=min((len(p.replica_nodes) for p in topic.partitions), default=0),
                in_sync=min((len(p.isr_nodes) for p in topic.partitions), default=0),
                operations=_operations(topic),
                settings=configured[topic.name],
            )
    return len(metadata.brokers), facts


def topic_limits(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicLimits]:
    """What each topic takes; nothing is known of one that this principal may not describe.

    Cached for five minutes. The topics must exist; a broker may not know one for a moment. Raises UnknownTopic,
    BrokerUnreachable, BrokerError.
    """

    def unknown(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        for result in response.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                yield ResourceRef(topic=result.resource_name), result.error_code

    def look_up(due: Sequence[str]) -> dict[str, TopicLimits]:
        request = _describe_configs(_TOPIC, due, _LIMITS)
        response = cluster.call_any(request, unknown, patience_ms=UNKNOWN_TOPIC_PATIENCE_MS)
        settings = _read_settings(response, due, (), "")
        return {
            topic: TopicLimits() if isinstance(values, Unavailable) else limits_of(values)
            for topic, values in settings.items()
        }

    return cluster.kept("limits", topics, look_up)


def limits_of(settings: Settings) -> TopicLimits:
    """A topic's limits in its settings, of which brokers may not have or return all. Pure.

    Brokers 3.6 to 3.9 have the limits of timestamps and the one for both that came before; a limit that is none leaves
    it to that one. Source: Kafka's LogConfig.
    """
    largest, both = settings.get("max.message.bytes"), _limit(settings, "message.timestamp.difference.max.ms")
    own_time = settings.get("message.timestamp.type") == "CreateTime"  # else the broker sets it
    policy, retention = settings.get("cleanup.policy", ""), settings.get("retention.ms")
    before, after = (_limit(settings, f"message.timestamp.{side}.max.ms") for side in ("before", "after"))
    return TopicLimits(
        max_message_bytes=None if largest is None else int(largest),
        needs_keys="compact" in policy,
        before_ms=(both if before is None else before) if own_time else None,
        after_ms=(both if after is None else after) if own_time else None,
        retention_ms=int(retention) if "delete" in policy and retention not in (None, "-1") else None,
    )


def _limit(settings: Settings, name: str) -> int | None:
    value = settings.get(name)
    return None if value is None or int(value) == _NO_LIMIT else int(value)


def broker_settings(cluster: Cluster, node: int, optional: Sequence[str]) -> Settings | Unavailable:
    """Those of the named settings that this broker has."""
    request = _describe_configs(_BROKER, [str(node)], optional)
    response = cluster.call_node(node, request, lambda _: ())
    return _read_settings(response, [str(node)], (), "DescribeConfigs on Cluster")[str(node)]


def coordinator_settings(
    cluster: Cluster, transactional_id: str, names: Sequence[str], *, optional: Sequence[str] = ()
) -> Settings | Unavailable:
    """The named settings of the broker that coordinates `transactional_id`; not every broker has the `optional`
    ones.
    """
    try:
        node = str(cluster.coordinator("transaction", transactional_id))
        # A broker only returns its own settings; if the coordinator has moved, the response is INVALID_REQUEST.
        request = _describe_configs(_BROKER, [node], [*names, *optional])
        response = cluster.call_coordinator("transaction", transactional_id, request, lambda _: ())
    except AuthorizationFailed as error:
        return Unavailable(reason=error.name, grant="Write on TransactionalId")
    return _read_settings(response, [node], names, "DescribeConfigs on Cluster")[node]


def transaction(cluster: Cluster, transactional_id: str, *, now_ms: int) -> TransactionFacts | Unavailable | None:
    """The state of a transactional.id (KIP-664); None if the coordinator does not know it. `now_ms` since 1970."""

    def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        for state in response.transaction_states:
            if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                yield ResourceRef(transactional_id=transactional_id), state.error_code
        described = [state.transactional_id for state in response.transaction_states]
        if error := incomplete("DescribeTransactions", [transactional_id], described):
            raise error

    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    try:
        response = cluster.call_coordinator("transaction", transactional_id, request, errors)
    except AuthorizationFailed as error:
        return Unavailable(reason=error.name, grant="Write on TransactionalId")
    state = response.transaction_states[0]
    if state.error_code:
        return None
    return transaction_facts(state, cluster.coordinator("transaction", transactional_id), now_ms=now_ms)


def settled(
    cluster: Cluster, ask: Callable[[], TransactionFacts | Unavailable | None]
) -> TransactionFacts | Unavailable | None:
    """What `ask` finds of a transactional.id, after the end of a transaction that is already decided: only then the
    ledger shows it. InitProducerId would wait for that, too. Raises BrokerUnreachable if it does not come.
    """
    budget = cluster.budget()
    while isinstance(facts := ask(), TransactionFacts) and facts.is_prepared:
        delay = budget.delay(soon=True)
        if delay is None:
            raise BrokerUnreachable(
                f"the last transaction of {facts.transactional_id!r} has been in state {facts.state} for "
                f"{budget.milliseconds} ms: its coordinator cannot write the markers",
                action="Check the leaders of its partitions (`kafka-eos transactions describe`).",
            )
        cluster.sleep(delay)
    return facts


def transaction_facts(state: Any, coordinator: int, *, now_ms: int) -> TransactionFacts:
    """One entry of a response to DescribeTransactions, without an error, from this node."""
    started = state.transaction_start_time_ms
    return TransactionFacts(
        transactional_id=state.transactional_id,
        coordinator=coordinator,
        state=state.transaction_state,
        producer_id=state.producer_id,
        epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=started if started >= 0 else None,
        described_ms=now_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions)
        ),
    )


def group(cluster: Cluster, group_id: str) -> GroupFacts | Unavailable:
    """A group's type, state and members; a group that does not exist is "Dead" and has none."""

    def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        for described in response.groups:
            yield ResourceRef(group=group_id), described.error_code
        if error := incomplete("DescribeGroups", [group_id], [described.group_id for described in response.groups]):
            raise error

    from kafka.protocol.admin.groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True)
    try:
        described = cluster.call_coordinator("group", group_id, request, errors).groups[0]
    except AuthorizationFailed as error:
        return Unavailable(reason=error.name, grant="Read on Group")
    except BrokerError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return Unavailable(reason="the brokers lack DescribeGroups")
    state, kind = described.group_state, "classic"
    if state == "Dead":  # that is what this API says of a group of another type, too
        state, kind = _listed(cluster, group_id)
    return GroupFacts(
        state=state,
        type=kind,
        members=tuple(f"{member.client_id} at {member.client_host.lstrip('/')}" for member in described.members),
        operations=_operations(described),
    )


def _listed(cluster: Cluster, group_id: str) -> tuple[str, str]:
    """State and type of a group in its coordinator's list, which has groups of all types."""
    from kafka.protocol.admin.groups import ListGroupsRequest

    response = cluster.call_coordinator(
        "group",
        group_id,
        ListGroupsRequest(states_filter=[], types_filter=[]),
        lambda response: [(ResourceRef(group=group_id), response.error_code)],
    )
    for listed in response.groups:
        if listed.group_id == group_id:
            return listed.group_state, (listed.group_type or "").lower()
    return "Dead", ""


def _metadata(cluster: Cluster, names: Sequence[str], awaited: frozenset[str]) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )

    def complete(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        if error := incomplete("Metadata", names, [topic.name for topic in response.topics]):
            raise error
        return ()

    def unknown(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        for topic in response.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name in awaited:
                yield ResourceRef(topic=topic.name), topic.error_code
        yield from complete(response)

    try:
        return cluster.call_any(request, unknown, patience_ms=UNKNOWN_TOPIC_PATIENCE_MS)
    except UnknownTopic:
        return cluster.call_any(request, complete)


def _topic_settings(
    cluster: Cluster, topics: Sequence[str], names: Sequence[str], optional: Sequence[str]
) -> dict[str, Settings | Unavailable]:
    if not topics:
        return {}
    response = cluster.call_any(_describe_configs(_TOPIC, topics, [*names, *optional]), lambda _: ())
    return _read_settings(response, topics, names, "DescribeConfigs on Topic")


def _describe_configs(kind: int, resources: Sequence[str], names: Sequence[str]) -> Any:
    from kafka.protocol.admin.configs import DescribeConfigsRequest

    resource_class: Any = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource_class(resource_type=kind, resource_name=name, configuration_keys=list(names)) for name in resources
        ]
    )


def _read_settings(
    response: Any, resources: Iterable[str], names: Sequence[str], grant: str
) -> dict[str, Settings | Unavailable]:
    settings: dict[str, Settings | Unavailable] = {}
    for result in response.results:
        values: Mapping[str, str] = {entry.name: entry.value for entry in result.configs if entry.value is not None}
        hidden = [name for name in names if name not in values]
        if result.error_code:
            settings[result.resource_name] = Unavailable(reason=name_of(result.error_code), grant=grant)
        elif hidden:  # some managed services only return some settings
            settings[result.resource_name] = Unavailable(reason=f"the broker does not return {', '.join(hidden)}")
        else:
            settings[result.resource_name] = values
    if error := incomplete("DescribeConfigs", resources, settings):
        raise error
    return settings


def _operations(described: Any) -> frozenset[str] | None:
    codes = described.authorized_operations
    return None if codes is None else frozenset(_OPERATIONS[code] for code in codes if code in _OPERATIONS)
