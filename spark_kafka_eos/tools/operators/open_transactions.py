"""Lists and describes transactions (KIP-664): DescribeProducers, ListTransactions, DescribeTransactions.

The leader knows producer ids and where their open transactions start. Only the transaction coordinator knows to which
transactional.id a producer id belongs, and it is unknown which broker that is, so all brokers are asked.

A survey is for operators, whose cluster may be ill: a broker or a partition that does not answer is a result, not an
error. The other functions raise UnknownTopic, AuthorizationFailed, BrokerError, BrokerUnreachable.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest

from spark_kafka_eos.errors import AuthorizationFailed, KafkaEosError, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe, offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import LogEnds, ProducerState, TransactionFacts, Unavailable, is_open, open_in
from spark_kafka_eos.kafka.protocol.producers import producers
from spark_kafka_eos.kafka.protocol.topics import by_leader, leaderless, undescribed
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from spark_kafka_eos.observe.lag import OpenTransaction
from spark_kafka_eos.tools.operators.survey import Survey, TransactionListing

_ANYBODY = f"kafka-eos-{uuid.uuid4()}"  # a transactional.id, and a topic, that nobody has
_AT_ONCE = 500  # entries of one request, as Kafka's own tool asks for
_NOT_SHOWN = (  # since it was listed
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)


def oldest_open(
    cluster: Cluster, partitions: Collection[TopicPartition], *, now_ms: int
) -> dict[TopicPartition, OpenTransaction]:
    """The oldest open transaction of each partition that has one; `now_ms` since 1970.

    Needs Read on the topics, and Describe on a transactional.id for its name and state.
    """
    by_partition = {tp: open_in(remembered) for tp, remembered in producers(cluster, partitions).items()}
    holders = {tp: ordered[0] for tp, ordered in by_partition.items() if ordered}
    listings = listed(cluster, producer_ids={producer.producer_id for producer in holders.values()}) if holders else []
    names = {listing.producer_id: listing.transactional_id for listing in listings}
    facts = described(cluster, listings, now_ms=now_ms)
    return {tp: _held(producer, names.get(producer.producer_id), facts) for tp, producer in holders.items()}


def listed(cluster: Cluster, *, producer_ids: Collection[int] = ()) -> list[TransactionListing]:
    """The transactional.ids that this principal may describe, by name; only those of `producer_ids`, if given."""
    listings = [listing for node in cluster.nodes() for listing in _listed_by(cluster, node, sorted(producer_ids))]
    return sorted(listings, key=lambda listing: listing.transactional_id)


def described(cluster: Cluster, listings: Iterable[TransactionListing], *, now_ms: int) -> dict[str, TransactionFacts]:
    """What the coordinators say of these ids, by id; without those that have expired, or that it may not describe."""
    by_node: dict[int, list[str]] = {}
    for listing in listings:
        by_node.setdefault(listing.coordinator, []).append(listing.transactional_id)
    facts: dict[str, TransactionFacts] = {}
    for node, names in by_node.items():
        for at in range(0, len(names), _AT_ONCE):
            facts |= _described_by(cluster, node, names[at : at + _AT_ONCE], now_ms=now_ms)
    return facts


def survey(
    cluster: Cluster,
    partitions: Collection[TopicPartition] | None = None,
    *,
    now_ms: int,
    all_ids: bool = False,
    open_too: bool = False,
) -> Survey:
    """The transactions of the cluster, and what the leaders of `partitions` have open; `now_ms` since 1970.

    `partitions` are by default those of the open transactions; with `open_too`, these as well. Only ids with an open
    transaction, and those of producers in `partitions`, are described, unless `all_ids`. Each broker and partition has
    delivery.timeout.ms to answer: choose a short one. Needs Describe on the transactional.ids, Read on the topics, and
    for a judgement of what hangs Describe on every transactional.id and on the topic __transaction_state. Raises
    BrokerUnreachable if no broker answers.
    """
    looked = _look(cluster, partitions)  # before the coordinators: what is open here was added to a transaction there
    coordinators = _list_all(cluster)
    active = {producer.producer_id for remembered in looked.producers.values() for producer in open_in(remembered)}
    listings = [
        listing
        for listing in coordinators.listings
        if all_ids or is_open(listing.state) or listing.producer_id in active
    ]
    facts, undescribed = _describe_all(cluster, listings, now_ms=now_ms)
    if partitions is None or open_too:
        affected = {tp for transaction in facts.values() if transaction.is_open for tp in transaction.partitions}
        looked = looked.and_also(_look(cluster, affected.difference(partitions or ())))
    silent = coordinators.silent | undescribed
    first = Survey(
        taken_ms=now_ms,
        listings=tuple(coordinators.listings),
        transactions=facts,
        producers=looked.producers,
        log_ends=looked.log_ends,
        unavailable=looked.unavailable,
        silent=silent,
        complete=True,  # for now, to find suspects
        transaction_version=cluster.transaction_version(),
    )
    return _confirmed(cluster, first) if first.hanging else replace(first, complete=not silent)


def partitions_of(cluster: Cluster, topics: Iterable[str] | None = None) -> list[TopicPartition]:
    """Every partition of these topics, by default of all that this principal may describe. Raises UnknownTopic."""
    names = cluster.topic_names(internal=True) if topics is None else sorted(set(topics))
    cluster.refresh(names)
    return [TopicPartition(name, number) for name in names for number in sorted(cluster.topic(name).partitions)]


def topics_left_out(cluster: Cluster) -> tuple[str, ...]:
    """Why `partitions_of` all topics may lack some: brokers leave out, without an error, what this principal may not
    describe. A topic that is named has the error, also one that nobody has.
    """
    denied = undescribed(cluster, [_ANYBODY, OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
    if _ANYBODY in denied:
        return ("brokers leave out topics that this principal may not describe, and it may not describe every topic",)
    return tuple(f"this principal lacks Describe on topic {name}" for name in denied)


class _Listed(NamedTuple):
    listings: list[TransactionListing]
    silent: dict[int, str]


class _Looked(NamedTuple):
    producers: dict[TopicPartition, tuple[ProducerState, ...]]
    log_ends: dict[TopicPartition, LogEnds]
    unavailable: dict[TopicPartition, str]

    def and_also(self, other: _Looked) -> _Looked:
        return _Looked(
            self.producers | other.producers, self.log_ends | other.log_ends, self.unavailable | other.unavailable
        )


def _confirmed(cluster: Cluster, first: Survey) -> Survey:
    """`first` with its suspects looked up again: in the meantime they may have ended, or begun.

    What a leader has open before and after no coordinator lists it hangs, if every coordinator was there all the time.
    """
    suspects = first.hanging
    ids = {part.producer.producer_id for part in suspects}
    coordinators = _coordinators(cluster)
    again = _list_all(cluster, producer_ids=ids)
    facts, undescribed = _describe_all(cluster, again.listings, now_ms=first.taken_ms)
    complete = (
        not (again.silent or undescribed)
        and bool(coordinators)
        and coordinators == _coordinators(cluster)
        and _sees_every_id(cluster)
    )
    looked = _look(cluster, {part.partition for part in suspects})
    still_open = {
        transaction
        for remembered in looked.producers.values()
        for transaction in map(_transaction, open_in(remembered))
    }
    listings = {listing.transactional_id: listing for listing in (*first.listings, *again.listings)}
    return replace(
        first,
        listings=tuple(listings[name] for name in sorted(listings)),
        transactions={**first.transactions, **facts},
        producers={
            tp: tuple(
                producer
                for producer in remembered
                if producer.start_offset is None or _transaction(producer) in still_open
            )
            if tp in looked.producers
            else remembered
            for tp, remembered in first.producers.items()
        },
        silent={**first.silent, **again.silent, **undescribed},
        complete=complete and not looked.unavailable,
    )


def _transaction(producer: ProducerState) -> tuple[TopicPartition, int, int, int | None]:
    return producer.partition, producer.producer_id, producer.epoch, producer.start_offset


def _coordinators(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """The leader of each partition of the transactions' own topic, and its epoch; empty if one has none."""
    try:
        cluster.refresh([TRANSACTIONS_TOPIC], patience_ms=0)
    except KafkaEosError:  # not allowed to describe it, for example
        return {}
    partitions = cluster.topic(TRANSACTIONS_TOPIC).partitions
    leaders = {number: (partition.leader, partition.leader_epoch) for number, partition in partitions.items()}
    return leaders if all(leader >= 0 for leader, _ in leaders.values()) else {}


def _sees_every_id(cluster: Cluster) -> bool:
    """Whether this principal may describe any transactional.id: ListTransactions leaves out the others without an
    error."""
    try:
        return not isinstance(describe.transaction(cluster, _ANYBODY, now_ms=0), Unavailable)
    except KafkaEosError:
        return False


def _list_all(cluster: Cluster, *, producer_ids: Collection[int] = ()) -> _Listed:
    listings: list[TransactionListing] = []
    silent: dict[int, str] = {}
    for node in cluster.nodes():
        try:
            listings += _listed_by(cluster, node, sorted(producer_ids))
        except KafkaEosError as error:
            silent[node] = error.what
    silent = {**leaderless(cluster, TRANSACTIONS_TOPIC), **silent}
    return _Listed(listings=sorted(listings, key=lambda listing: listing.transactional_id), silent=silent)


def _describe_all(
    cluster: Cluster, listings: Iterable[TransactionListing], *, now_ms: int
) -> tuple[dict[str, TransactionFacts], dict[int, str]]:
    """As `described`, with the coordinators that did not answer."""
    by_node: dict[int, list[TransactionListing]] = {}
    for listing in listings:
        by_node.setdefault(listing.coordinator, []).append(listing)
    facts: dict[str, TransactionFacts] = {}
    silent: dict[int, str] = {}
    for node, theirs in by_node.items():
        try:
            facts |= described(cluster, theirs, now_ms=now_ms)
        except KafkaEosError as error:
            silent[node] = error.what
    return facts, silent


def _look(cluster: Cluster, partitions: Collection[TopicPartition] | None) -> _Looked:
    """Producers and log ends of these partitions, from their leaders one by one."""
    led, unled = by_leader(cluster, partitions or ())
    looked = _Looked({}, {}, unled)
    for theirs in led.values():
        for at in range(0, len(theirs), _AT_ONCE):
            _ask_leader(cluster, theirs[at : at + _AT_ONCE], looked)
    return looked


def _ask_leader(cluster: Cluster, partitions: Sequence[TopicPartition], looked: _Looked) -> None:
    """Add the answer for partitions of one leader; those of a topic that cannot be read do not affect the others."""
    try:
        looked.producers.update(producers(cluster, partitions))
        looked.log_ends.update(offsets.log_ends(cluster, partitions))
    except (AuthorizationFailed, UnknownTopic) as error:
        topics = {tp.topic for tp in partitions}
        if len(topics) == 1:
            looked.unavailable.update(dict.fromkeys(partitions, error.what))
            return
        for topic in sorted(topics):
            _ask_leader(cluster, [tp for tp in partitions if tp.topic == topic], looked)
    except KafkaEosError as error:
        looked.unavailable.update(dict.fromkeys(partitions, error.what))


def _listed_by(cluster: Cluster, node: int, producer_ids: Sequence[int]) -> list[TransactionListing]:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
    response = cluster.call_node(node, request, lambda response: [(f"broker {node}", response.error_code)])
    return [
        TransactionListing(
            transactional_id=state.transactional_id,
            producer_id=state.producer_id,
            state=state.transaction_state,
            coordinator=node,
        )
        for state in response.transaction_states
    ]


def _described_by(cluster: Cluster, node: int, names: Sequence[str], *, now_ms: int) -> dict[str, TransactionFacts]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    states = cluster.call_node(node, request, lambda _: ()).transaction_states
    by_id: dict[str, TransactionFacts] = {}
    for state in states:
        if state.error_code in _NOT_SHOWN:
            continue
        facts = (
            describe.transaction(cluster, state.transactional_id, now_ms=now_ms)  # its coordinator has moved
            if state.error_code
            else describe.transaction_facts(state, node, now_ms=now_ms)
        )
        if isinstance(facts, TransactionFacts):
            by_id[state.transactional_id] = facts
    return by_id


def _held(producer: ProducerState, name: str | None, facts: Mapping[str, TransactionFacts]) -> OpenTransaction:
    transaction = facts.get(name or "")
    return OpenTransaction(
        partition=producer.partition,
        start_offset=producer.start_offset or 0,
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        transactional_id=name,
        # None if it ended in the meantime, or if this principal may not describe it
        state=transaction.state if transaction else None,
        open_ms=transaction.age_ms if transaction else None,
    )
