"""Checks before the first batch: finds in the facts read from the cluster what would lose data or fail later. Pure.

Errors, if no batch could succeed or another process uses the group or the ledger:
- an output topic does not exist, or an ACL that the query itself needs is missing;
- the ledger topic does not exist, and brokers would refuse to create it;
- kafka.transaction.timeout.ms above the brokers' transaction.max.timeout.ms;
- min.insync.replicas above the replication factor;
- a group to which the sink commits offsets has active members, or offsets committed by another sink's transactions;
- the ledger topic has a retention, compacted or not: its entries would be deleted;
- an output topic or the ledger topic is diskless.

Warnings, if committed data could be lost:
- a single replica, min.insync.replicas of 1, unclean leader election, too few in-sync replicas at the moment; for
  output topics, the ledger topic, and Kafka's internal topics with the offsets and the outcome of transactions;
- the transactional.id, or that of a bucket, has an open transaction: that of a crashed predecessor looks like that of
  a live producer;
- the protocol before KIP-890; offsets that expire within days, transactional ids that expire within an hour;
- a topic that stores record batches in another compression; a ledger topic that is never compacted;
- facts that could not be read because of a missing ACL that the query itself does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.protocol.facts import (
    TWO_PHASE_COMMIT,
    TWO_PHASE_COMMIT_NEEDS,
    GroupFacts,
    Settings,
    TopicFacts,
    TransactionFacts,
    Unavailable,
)
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.resolve import states
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import groups, internal_topics, ledger_topics, written_topics
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.rights import of_buckets
from spark_kafka_eos.preflight.services import DISKLESS_SETTINGS

# The settings that findings depend on.
BROKER_SETTINGS = ("transaction.max.timeout.ms", "offsets.retention.minutes")
TOPIC_SETTINGS = ("max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "cleanup.policy")
# Those that not every release, or not every service, has.
_TWO_PHASE_COMMIT = "transaction.two.phase.commit.enable"
OPTIONAL_BROKER_SETTINGS = ("transactional.id.expiration.ms", _TWO_PHASE_COMMIT)
_RETENTION_SETTINGS = ("retention.ms", "retention.bytes")
OPTIONAL_TOPIC_SETTINGS = ("compression.type", *_RETENTION_SETTINGS, *DISKLESS_SETTINGS)

_SHORT_RETENTION_MINUTES = 3 * 24 * 60  # lag tools should still know a query that was stopped over a weekend
_SHORT_EXPIRATION_MS = 60 * 60_000
# Types of groups that are no consumer groups, and what would come of a sink's offsets there.
_OTHER_TYPES = {
    "share": (
        "KIP-932",
        "It has no offsets of consumers: brokers refuse those of a transaction, so every batch would fail",
    ),
    "streams": ("KIP-1071", "Its Kafka Streams application would go on from the offsets that this query commits"),
}
_OTHER_GROUP = "Set a different kafka.group.id for this query (default: the transactional.id)"
_LIVELESS = frozenset({"", "Empty", "Dead"})
_NAMED = 3  # members named in a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read from the cluster: `settings` are the transaction coordinator's; topics and groups by name.

    `refusals` are the errors with which brokers would refuse to create a ledger topic that does not exist.
    `buckets` are the transactional.ids of those of a query in real time.
    `two_phase_commit` is whether the brokers offer it. None means that it does not exist. Without a transactional.id,
    `transaction` is None, and `settings` are those of one of the brokers, if they were needed.
    """

    brokers: int
    transaction_version: int
    settings: Settings | Unavailable
    transaction: TransactionFacts | Unavailable | None
    groups: Mapping[str, GroupFacts | Unavailable]
    topics: Mapping[str, TopicFacts | Unavailable | None]
    refusals: Mapping[str, KafkaEosError] = field(default_factory=dict)
    buckets: Mapping[str, TransactionFacts | Unavailable | None] = field(default_factory=dict)
    two_phase_commit: bool = False


def findings(facts: Facts, options: SinkOptions) -> list[Finding]:
    """The findings of all checks, including those without a problem; the same finding on several topics is combined."""
    results = [_cluster(facts)]
    if options.transactional_id:
        results += [_transaction_version(facts), *_settings(facts, options), _transaction(facts, options)]
        results += _buckets(facts, options)
        results += [_two_phase_commit(facts)] if options.two_phase_commit else []
    results += [_group(name, facts.groups[name], options.resolve) for name in groups(options)]
    judged: dict[_Judgement, list[str]] = {}
    for name, judgement in _topics(facts, options):
        judged.setdefault(judgement, []).append(name)
    results += [judgement.of(names) for judgement, names in judged.items()]
    return results


def source_findings(topics: Mapping[str, TopicFacts | Unavailable | None]) -> list[Finding]:
    """The findings on the topics that a query reads: each must exist, and this principal must be allowed to read it."""
    judged: dict[_Judgement, list[str]] = {}
    for name, topic in topics.items():
        wrong = list(_access(topic, [("Read", "reading from")], missing="Every batch would fail"))
        for judgement in wrong or [_readable(topic)]:
            judged.setdefault(judgement, []).append(name)
    return [judgement.of(names, "source topic") for judgement, names in judged.items()]


def _readable(topic: TopicFacts | Unavailable | None) -> _Judgement:
    count = topic.partitions if isinstance(topic, TopicFacts) else 0
    return _Judgement(Severity.OK, f"{count} partition{'' if count == 1 else 's'}")


class _Judgement(NamedTuple):
    """A finding on a topic, without its name."""

    severity: Severity
    observation: str
    meaning: str = ""
    action: str = ""

    def of(self, names: list[str], kind: str = "topic") -> Finding:
        subject = f"{kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"
        return Finding(
            severity=self.severity, subject=subject, found=self.observation, meaning=self.meaning, action=self.action
        )


def _cluster(facts: Facts) -> Finding:
    brokers = f"{facts.brokers} broker{'' if facts.brokers == 1 else 's'}"
    return Finding(severity=Severity.OK, subject="cluster", found=f"reachable, {brokers}")


def _transaction_version(facts: Facts) -> Finding:
    subject, version = "transaction.version", facts.transaction_version
    if version >= 2:
        return Finding(severity=Severity.OK, subject=subject, found=f"{version} (KIP-890)")
    return Finding(
        severity=Severity.WARNING,
        subject=subject,
        found=f"{version}, the protocol before KIP-890",
        meaning="Each batch needs one more request. Whether a request that is delayed by a whole batch can block "
        "readers depends on the brokers' transaction.partition.verification.enable (Kafka 3.6)",
        action="On Kafka 4.0 or later: kafka-features.sh --bootstrap-server … upgrade --feature transaction.version=2",
    )


def _settings(facts: Facts, options: SinkOptions) -> Iterator[Finding]:
    settings = facts.settings
    if isinstance(settings, Unavailable):
        yield Finding(
            severity=Severity.WARNING,
            subject="kafka.transaction.timeout.ms",
            found=f"{' and '.join(BROKER_SETTINGS)} could not be checked: {settings.reason}",
            action=_grant(settings),
        )
        return
    largest, timeout = int(settings["transaction.max.timeout.ms"]), options.timeout_ms
    subject = "kafka.transaction.timeout.ms"
    if timeout is None:
        yield Finding(severity=Severity.OK, subject=subject, found="none, with twoPhaseCommit")
    elif timeout > largest:
        yield Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"{timeout} is above the brokers' transaction.max.timeout.ms, {largest}",
            meaning="No transaction can start: the coordinator returns INVALID_TRANSACTION_TIMEOUT",
            action=f"Set it to {largest} or less, or increase the brokers' limit",
        )
    else:
        yield Finding(severity=Severity.OK, subject=subject, found=f"{timeout} (the brokers allow {largest})")
    yield from _expiration(settings)
    retention = int(settings["offsets.retention.minutes"])
    short = retention < _SHORT_RETENTION_MINUTES
    yield Finding(
        severity=Severity.WARNING if short else Severity.OK,
        subject="offsets.retention.minutes",
        found=f"{retention} ({duration(retention * 60_000)})",
        meaning="If a query has no batch for this time, its offsets expire: lag tools lose it, and "
        "startingOffsets=committed needs sink.kafka.transactional.id. The ledger does not expire"
        if short
        else "",
        action="Increase it on the brokers; Kafka's default is 10080 (7 days)" if short else "",
    )


def _expiration(settings: Settings) -> Iterator[Finding]:
    expiration = int(settings.get("transactional.id.expiration.ms", _SHORT_EXPIRATION_MS))
    if expiration < _SHORT_EXPIRATION_MS:
        yield Finding(
            severity=Severity.WARNING,
            subject="transactional.id.expiration.ms",
            found=f"{expiration} ({duration(expiration)})",
            meaning="The brokers forget a transactional id that has no batch for this time. The next batch gets a new "
            "producer id, and its first attempt may be aborted and written again",
            action="Increase it on the brokers; Kafka's default is 604800000 (7 days)",
        )


def _two_phase_commit(facts: Facts) -> Finding:
    enabled = None if isinstance(facts.settings, Unavailable) else facts.settings.get(_TWO_PHASE_COMMIT)
    if facts.two_phase_commit and enabled in ("true", None):
        return Finding(severity=Severity.OK, subject="twoPhaseCommit", found="offered by the brokers")
    return Finding(
        severity=Severity.ERROR,
        subject="twoPhaseCommit",
        found=f"{_TWO_PHASE_COMMIT} is {enabled} on the brokers"
        if facts.two_phase_commit
        else f"the brokers do not offer version {TWO_PHASE_COMMIT} of InitProducerId",
        meaning="No transaction can start",
        action=TWO_PHASE_COMMIT_NEEDS.removesuffix("."),
    )


def _transaction(facts: Facts, options: SinkOptions) -> Finding:
    subject = f"transactional id {options.transactional_id}"
    match facts.transaction:
        case None:
            return Finding(severity=Severity.OK, subject=subject, found="not in use")
        case Unavailable() as unavailable:
            return _unauthorised(subject, unavailable.reason, "Write on it")
        case TransactionFacts(state="Ongoing") as ongoing:
            return _ongoing(
                subject,
                ongoing,
                "This query's last run ended during a batch, or another process uses this transactional.id. Starting "
                "the query aborts that transaction and fences its producer",
                "Make sure that no other query and no other driver uses this transactional.id",
            )
        case TransactionFacts(state=state, producer=producer):
            ending = state.startswith("Prepare")
            what = "its last transaction is ending" if ending else "no open transaction"
            return Finding(severity=Severity.OK, subject=subject, found=f"{what} ({producer}, {state})")


def _ongoing(subject: str, facts: TransactionFacts, meaning: str, action: str) -> Finding:
    since = "" if facts.age_ms is None else f" for {duration(facts.age_ms)}"
    return Finding(
        severity=Severity.WARNING,
        subject=subject,
        found=f"{facts.producer}, has had an open transaction{since} (its timeout is {facts.timeout})",
        meaning=meaning,
        action=action,
    )


def _buckets(facts: Facts, options: SinkOptions) -> Iterator[Finding]:
    """A finding for the buckets of which there is nothing to say, and one for each other."""
    right = of_buckets(options)
    quiet = 0
    for name, transaction in facts.buckets.items():
        subject = f"transactional id {name}"
        match transaction:
            case Unavailable() as unavailable:
                yield _unauthorised(subject, unavailable.reason, f"{right}, for all buckets")
                return
            case TransactionFacts(state="Ongoing") as ongoing:
                yield _ongoing(
                    subject,
                    ongoing,
                    "A task of this query runs, or was lost. Starting the query aborts that transaction and fences the "
                    "task",
                    "Make sure that no other driver runs this query",
                )
            case _:
                quiet += 1
    if quiet:
        subject = f"buckets of {options.transactional_id}"
        yield Finding(severity=Severity.OK, subject=subject, found=f"no open transaction in {quiet}")


def _group(name: str, facts: GroupFacts | Unavailable, resolve: str | None) -> Finding:
    subject = f"group {name}"
    if isinstance(facts, Unavailable) and not facts.grant:
        return Finding(severity=Severity.WARNING, subject=subject, found=f"could not be checked: {facts.reason}")
    if isinstance(facts, Unavailable):
        return _unauthorised(subject, facts.reason, "Read on it")
    if facts.operations is not None and "Read" not in facts.operations:
        return _unauthorised(subject, "committing offsets to it is not allowed", "Read on it")
    others = ",".join(facts.sinks)
    if others and not states(resolve, f"take-group:{others}"):
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"its offsets are committed by the transactions of {others}",
            meaning="Two sinks that share a group overwrite each other's offsets: each would resume where the other is",
            action="Set a different kafka.group.id for this query (default: the transactional.id). If the other sink "
            f"is gone for good and this one continues in its group, set resolve=take-group:{others}",
        )
    return used_by_others(subject, facts) or Finding(severity=Severity.OK, subject=subject, found="no members")


def used_by_others(subject: str, facts: GroupFacts) -> Finding | None:
    """The finding that a group is not one to which a sink may commit offsets; None if it is."""
    if facts.type in _OTHER_TYPES:
        source, meaning = _OTHER_TYPES[facts.type]
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"is a {facts.type} group ({source}), not a consumer group",
            meaning=meaning,
            action=_OTHER_GROUP,
        )
    if not facts.members and facts.state in _LIVELESS:
        return None
    return Finding(
        severity=Severity.ERROR,
        subject=subject,
        found=f"has active members{_members(facts)}",
        meaning="They commit offsets to the same group as this query. Brokers do not stop the one or the other: each "
        "would overwrite what the other one has committed, and after a restart repeat or skip records",
        action=f"{_OTHER_GROUP}, or stop the members and wait until their sessions expire",
    )


def _members(facts: GroupFacts) -> str:
    """Who they are, or else which state and type show that there are some."""
    if facts.members:
        return f": {_some(facts.members)}"
    return f" ({facts.state}{facts.type and f', type {facts.type}'})"


def _topics(facts: Facts, options: SinkOptions) -> Iterator[tuple[str, _Judgement]]:
    written, internal = written_topics(options), internal_topics(options)
    for name in written:
        yield from ((name, judgement) for judgement in _access(facts.topics[name], [("Write", "writing to")]))
    for name in ledger_topics(options):
        yield from ((name, judgement) for judgement in _ledger(facts.topics[name], facts.refusals.get(name)))
    for name in written:
        if isinstance(topic := facts.topics[name], TopicFacts):
            yield from (
                (name, judgement)
                for judgement in (
                    *_size(topic, options),
                    *_storage(topic, options),
                    *_durability(topic),
                    *(_letters(topic) if name == options.dead_letter_topic else ()),
                )
            )
    for name in ledger_topics(options):
        if isinstance(topic := facts.topics[name], TopicFacts):
            yield from ((name, judgement) for judgement in (*_diskless(topic), *_durability(topic)))
    for name in internal:
        match facts.topics[name]:
            case None:
                yield name, _Judgement(Severity.OK, "does not exist yet; created when it is first needed")
            case Unavailable() as unavailable:
                yield name, _unchecked_topic(unavailable)
            case TopicFacts() as topic:
                yield from ((name, judgement) for judgement in _durability(topic))


def _access(
    topic: TopicFacts | Unavailable | None,
    needed: Sequence[tuple[str, str]],
    missing: str = "Every batch would fail. The sink does not create output topics",
) -> Iterator[_Judgement]:
    if topic is None:
        yield _Judgement(
            Severity.ERROR,
            "does not exist",
            missing,
            "Create it, or correct its name",
        )
    elif isinstance(topic, Unavailable):
        rights = " and ".join(right for right, _ in needed)
        yield _Judgement(Severity.ERROR, topic.reason, "Every batch would fail", f"Grant this principal {rights} on it")
    elif topic.operations is not None:
        for right, use in needed:
            if right not in topic.operations:
                yield _Judgement(
                    Severity.ERROR,
                    f"{use} it is not allowed",
                    "Every batch would fail",
                    f"Grant this principal {right} on it",
                )


def _ledger(topic: TopicFacts | Unavailable | None, refusal: KafkaEosError | None) -> Iterator[_Judgement]:
    if refusal is not None:
        yield _Judgement(
            Severity.ERROR,
            f"does not exist, and would not be created: {refusal.what}",
            "The first batch would fail after its tasks have run",
            refusal.action.removesuffix(".") or "Create it, or set another ledgerTopic",
        )
        return
    if topic is None:
        yield _Judgement(Severity.OK, "does not exist yet; created when it is first needed")
        return
    yield from _access(topic, [("Write", "writing to"), ("Read", "reading the ledger from")])
    if not isinstance(topic, TopicFacts):
        return
    if not isinstance(topic.settings, Unavailable):
        yield from _cleanup(topic.settings)


def _cleanup(settings: Settings) -> Iterator[_Judgement]:
    """Whether the brokers delete ledger entries. Compaction keeps the last record of each transactional.id, whatever
    the other settings are: delete.retention.ms is only about tombstones and transaction markers, the compaction lags
    about when. With `delete` as well, retention removes whole segments, the last records in them included. With
    neither (as of Kafka 4.2), nothing is deleted. Source: Kafka's topic settings.
    """
    policy = settings["cleanup.policy"]
    policies = {policy_name.strip() for policy_name in policy.split(",")}
    limits = {name: settings.get(name, "unknown") for name in _RETENTION_SETTINGS}
    if "delete" in policies and any(limit != "-1" for limit in limits.values()):
        listing = ", ".join(f"{name} {limit}" for name, limit in limits.items())
        yield _Judgement(
            Severity.ERROR,
            f"cleanup.policy is {policy} ({listing})",
            "Retention would delete ledger entries. A query that was stopped for a long time would then be refused, or "
            "write a batch again",
            "Set cleanup.policy=compact if only the ledger uses this topic; else set another ledgerTopic",
        )
    elif "compact" not in policies:
        yield _Judgement(
            Severity.WARNING,
            f"cleanup.policy is {policy or 'empty'}",
            "The topic grows with each commit of each query, and a start may have to read all of it",
            "Set cleanup.policy=compact",
        )


def _size(topic: TopicFacts, options: SinkOptions) -> Iterator[_Judgement]:
    if isinstance(topic.settings, Unavailable):
        return
    largest = int(topic.settings["max.message.bytes"])
    if largest < options.max_request_size:
        yield _Judgement(
            Severity.OK,
            f"max.message.bytes is {largest}, less than kafka.max.request.size: record batches are limited to it",
        )


def _letters(topic: TopicFacts) -> Iterator[_Judgement]:
    """Whether the dead-letter topic keeps what comes, as far as its cleaner goes."""
    if isinstance(topic.settings, Unavailable):
        return
    if "compact" in (policy := topic.settings["cleanup.policy"]):
        yield _Judgement(
            Severity.WARNING,
            f"cleanup.policy is {policy}",
            "The brokers delete every dead letter of a key but the last one, and refuse one without a key, which then "
            "fails its batch",
            "Set cleanup.policy=delete",
        )


def _storage(topic: TopicFacts, options: SinkOptions) -> Iterator[_Judgement]:
    """Whether the topic stores record batches as they are sent, and can take part in a transaction."""
    yield from _diskless(topic)
    settings = topic.settings
    if isinstance(settings, Unavailable):
        return
    stored = settings.get("compression.type", "producer")
    ours = "none" if stored == "uncompressed" else stored
    if ours not in ("producer", options.compression_type):
        yield _Judgement(
            Severity.WARNING,
            f"compression.type is {stored}, but the sink sends {options.compression_type}",
            "The broker decompresses each record batch and compresses it again, which costs it CPU",
            f"Set the topic's compression.type=producer, or kafka.compression.type={ours}",
        )


def _diskless(topic: TopicFacts) -> Iterator[_Judgement]:
    settings = topic.settings
    for name in DISKLESS_SETTINGS:
        if not isinstance(settings, Unavailable) and settings.get(name) == "true":
            yield _Judgement(
                Severity.ERROR,
                f"{name} is true",
                "Diskless topics cannot take part in transactions: every batch would fail",
                "Use a classic topic",
            )


def _durability(topic: TopicFacts) -> Iterator[_Judgement]:
    """Whether acknowledged records survive the loss of a broker."""
    settings = topic.settings
    if topic.replicas == 1:
        yield _Judgement(
            Severity.WARNING,
            "replication factor 1",
            "The loss of one disk loses committed transactions, and nothing can be written while that broker is down",
            "Use 3 replicas and min.insync.replicas=2, except on a test cluster",
        )
    if isinstance(settings, Unavailable):
        yield _unchecked_topic(settings)
        return
    required = int(settings["min.insync.replicas"])
    unclean = settings["unclean.leader.election.enable"] == "true"
    if required > topic.replicas:
        yield _Judgement(
            Severity.ERROR,
            f"min.insync.replicas is {required}, but the replication factor is {topic.replicas}",
            "Nothing can be appended: the brokers always return NOT_ENOUGH_REPLICAS",
            "Reduce min.insync.replicas, or add replicas",
        )
    elif required > topic.in_sync:
        yield _Judgement(
            Severity.WARNING,
            f"{topic.in_sync} of {topic.replicas} replicas are in sync, but min.insync.replicas is {required}",
            "Appends wait until the missing brokers are back, for at most kafka.delivery.timeout.ms",
            "Restart the missing brokers",
        )
    elif topic.replicas > 1 and required == 1:
        yield _Judgement(
            Severity.WARNING,
            "min.insync.replicas is 1",
            "If the other replicas lag, a single broker acknowledges, and its loss loses committed transactions",
            f"Set min.insync.replicas to {max(2, topic.replicas - 1)}",
        )
    elif topic.replicas > 1 and not unclean:
        yield _Judgement(Severity.OK, f"replication factor {topic.replicas}, min.insync.replicas {required}")
    if unclean and topic.replicas > 1:
        yield _Judgement(
            Severity.WARNING,
            "unclean.leader.election.enable is true",
            "A replica without all committed transactions may become the leader: they are then lost silently",
            "Set unclean.leader.election.enable to false",
        )


def _unauthorised(subject: str, reason: str, grant: str) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        subject=subject,
        found=reason,
        meaning="Every batch would fail",
        action=f"Grant this principal {grant}",
    )


def _unchecked_topic(unavailable: Unavailable) -> _Judgement:
    return _Judgement(
        Severity.WARNING,
        f"{', '.join(TOPIC_SETTINGS)} could not be checked: {unavailable.reason}",
        action=_grant(unavailable),
    )


def _grant(unavailable: Unavailable) -> str:
    return f"Grant this principal {unavailable.grant}" if unavailable.grant else ""


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
