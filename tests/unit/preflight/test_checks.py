"""From facts to findings, one scenario a test: a healthy cluster, and what one thing wrong makes of it."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.error_codes import failure
from spark_kafka_eos.kafka.protocol.facts import GroupFacts, TopicFacts, TransactionFacts, Unavailable
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.sink import groups, internal_topics, ledger_topics, written_topics
from spark_kafka_eos.preflight.checks import Facts, findings, source_findings
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.loop import loop
from spark_kafka_eos.preflight.sources import refuse_loop
from spark_kafka_eos.source_offset import Origin
from tests.model_kafka import KafkaModel

EVERYTHING = frozenset({"Read", "Write", "Describe", "DescribeConfigs"})
SETTINGS = {
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
}
TOPIC = TopicFacts(partitions=4, replicas=3, in_sync=3, operations=EVERYTHING, settings=SETTINGS)
LEDGER = replace(TOPIC, settings=SETTINGS | {"cleanup.policy": "compact"})
BROKER = {"transaction.max.timeout.ms": "900000", "offsets.retention.minutes": "10080"}
GROUP = GroupFacts(state="Empty", members=(), operations=EVERYTHING)
HEALTHY = Facts(
    brokers=3,
    transaction_version=2,
    settings=BROKER,
    transaction=None,
    groups={"copy": GROUP, "copy.ledger": GROUP},
    topics={"orders": TOPIC, "kafka-eos-ledger": LEDGER, "__consumer_offsets": TOPIC, "__transaction_state": TOPIC},
)


def sink(**changed):
    options = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "copy", "topic": "orders"} | changed
    return sink_options({name: value for name, value in options.items() if value is not None})


def with_topic(name="orders", **changed):
    return replace(HEALTHY, topics={**HEALTHY.topics, name: replace(TOPIC, **changed)})


def with_group(facts, name="copy"):
    return replace(HEALTHY, groups={**HEALTHY.groups, name: facts})


def wrong(facts, options=None):
    """The findings that are not ok."""
    found = findings(facts, sink() if options is None else options)
    return [finding for finding in found if finding.severity is not Severity.OK]


def only(facts, options=None):
    (found,) = wrong(facts, options)
    return found.severity, found.subject, found


def test_a_healthy_cluster_has_a_finding_for_every_check_and_all_are_ok():
    found = findings(HEALTHY, sink())
    assert wrong(HEALTHY) == []
    assert [finding.subject for finding in found] == [
        "cluster",
        "transaction.version",
        "kafka.transaction.timeout.ms",
        "offsets.retention.minutes",
        "transactional id copy",
        "group copy",
        "group copy.ledger",
        "topics orders, kafka-eos-ledger, __consumer_offsets, __transaction_state",
    ]
    assert all(finding.found and not finding.meaning and not finding.action for finding in found)


def test_what_goes_wrong_is_explained_and_has_a_remedy():
    facts = with_topic(settings=SETTINGS | {"min.insync.replicas": "4"})
    (found,) = wrong(facts)
    assert found.meaning and found.action
    assert str(found) == f"topic orders: {found.found}. {found.meaning}. {found.action}"
    assert not str(found).endswith(".")  # an error's text puts it there


# -- transactions


@pytest.mark.parametrize("version", [0, 1])
def test_the_older_transaction_protocol_is_a_warning(version):
    severity, subject, found = only(replace(HEALTHY, transaction_version=version))
    assert (severity, subject) == (Severity.WARNING, "transaction.version")
    assert found.found.startswith(str(version))


def test_a_timeout_above_the_brokers_maximum_is_an_error_that_names_both():
    severity, subject, found = only(HEALTHY, sink(**{"kafka.transaction.timeout.ms": "900001"}))
    assert (severity, subject) == (Severity.ERROR, "kafka.transaction.timeout.ms")
    assert "900001" in found.found and "900000" in found.found


def test_a_timeout_at_the_brokers_maximum_is_allowed():
    assert wrong(HEALTHY, sink(**{"kafka.transaction.timeout.ms": "900000"})) == []


ENABLED = replace(HEALTHY, two_phase_commit=True, settings=BROKER | {"transaction.two.phase.commit.enable": "true"})


def test_two_phase_commit_needs_no_timeout_where_the_brokers_have_it():
    assert wrong(ENABLED, sink(twoPhaseCommit="true", **{"kafka.transaction.timeout.ms": "900001"})) == []


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (replace(ENABLED, two_phase_commit=False), "do not offer version 6 of InitProducerId"),
        (
            replace(ENABLED, settings=BROKER | {"transaction.two.phase.commit.enable": "false"}),
            "transaction.two.phase.commit.enable is false",
        ),
    ],
)
def test_two_phase_commit_that_the_brokers_lack_is_an_error(facts, found):
    severity, subject, finding = only(facts, sink(twoPhaseCommit="true"))
    assert (severity, subject) == (Severity.ERROR, "twoPhaseCommit")
    assert found in finding.found and "unstable.api.versions.enable=true" in finding.action
    assert wrong(facts) == []


def test_offsets_that_expire_over_a_weekend_are_a_warning():
    facts = replace(HEALTHY, settings=BROKER | {"offsets.retention.minutes": "1440"})
    severity, subject, found = only(facts)
    assert (severity, subject) == (Severity.WARNING, "offsets.retention.minutes")
    assert "24 h" in found.found
    assert found.meaning.endswith("The ledger does not expire")


def test_broker_settings_that_may_not_be_read_are_one_warning_that_names_the_acl():
    facts = replace(
        HEALTHY, settings=Unavailable(reason="CLUSTER_AUTHORIZATION_FAILED", grant="DescribeConfigs on Cluster")
    )
    severity, _, found = only(facts)
    assert severity is Severity.WARNING
    assert "could not be checked: CLUSTER_AUTHORIZATION_FAILED" in found.found
    assert found.action == "Grant this principal DescribeConfigs on Cluster"


def transaction(state, age_ms=None):
    return replace(
        HEALTHY,
        transaction=TransactionFacts(
            state=state,
            producer_id=9,
            epoch=4,
            timeout_ms=60_000,
            started_ms=None if age_ms is None else 0,
            described_ms=age_ms or 0,
        ),
    )


def test_an_open_transaction_is_a_warning_since_a_crashed_predecessors_looks_like_a_live_owners():
    severity, subject, found = only(transaction("Ongoing", age_ms=45_000))
    assert (severity, subject) == (Severity.WARNING, "transactional id copy")
    assert found.found == ("producer 9, epoch 4, has had an open transaction for 45 s (its timeout is 60 s)")
    assert "fences its producer" in found.meaning


@pytest.mark.parametrize("state", ["Empty", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"])
def test_a_transactional_id_without_an_open_transaction_is_free_to_take(state):
    assert wrong(transaction(state)) == []


def test_a_transactional_id_that_may_not_be_used_is_an_error():
    severity, subject, found = only(
        replace(HEALTHY, transaction=Unavailable(reason="TRANSACTIONAL_ID_AUTHORIZATION_FAILED", grant=""))
    )
    assert (severity, subject) == (Severity.ERROR, "transactional id copy")
    assert found.action == "Grant this principal Write on it"


# -- groups


@pytest.mark.parametrize("name", ["copy", "copy.ledger"])
def test_a_group_with_live_members_is_an_error_that_names_them(name):
    facts = with_group(GroupFacts(state="Stable", members=("app at 10.0.0.1",), operations=EVERYTHING), name)
    severity, subject, found = only(facts)
    assert (severity, subject) == (Severity.ERROR, f"group {name}")
    assert found.found == "has active members: app at 10.0.0.1"


def test_of_many_members_three_are_named():
    members = tuple(f"app-{number} at 10.0.0.{number}" for number in range(5))
    _, _, found = only(with_group(GroupFacts(state="Stable", members=members, operations=None)))
    assert found.found.endswith("app-2 at 10.0.0.2 and 2 more")


def test_a_live_group_of_the_newer_protocol_is_known_by_its_state():
    severity, _, found = only(with_group(GroupFacts(state="Reconciling", members=(), operations=None)))
    assert severity is Severity.ERROR
    assert found.found == "has active members (Reconciling)"


@pytest.mark.parametrize("state", ["", "Dead", "Empty"])
def test_a_group_that_is_empty_or_does_not_exist_is_ours(state):
    assert wrong(with_group(GroupFacts(state=state, members=(), operations=EVERYTHING))) == []


@pytest.mark.parametrize(
    "facts",
    [
        Unavailable(reason="GROUP_AUTHORIZATION_FAILED", grant="Read on Group"),
        GroupFacts(state="Empty", members=(), operations=frozenset({"Describe"})),
    ],
)
def test_a_group_whose_offsets_may_not_be_committed_is_an_error(facts):
    severity, subject, found = only(with_group(facts))
    assert (severity, subject, found.action) == (Severity.ERROR, "group copy", "Grant this principal Read on it")


# -- topics


def test_an_unknown_topic_is_an_error():
    severity, subject, found = only(replace(HEALTHY, topics={**HEALTHY.topics, "orders": None}))
    assert (severity, subject, found.found) == (Severity.ERROR, "topic orders", "does not exist")


def test_all_unknown_topics_share_an_error():
    options = sink(topic=None, outputTopics="even,odd")
    facts = replace(HEALTHY, topics={**HEALTHY.topics, "even": None, "odd": None})
    assert only(facts, options)[:2] == (Severity.ERROR, "topics even, odd")


def test_a_ledger_topic_that_is_not_there_yet_is_fine_since_the_first_batch_creates_it():
    options = sink(ledgerTopic="books")
    assert wrong(replace(HEALTHY, topics={**HEALTHY.topics, "books": None}), options) == []


@pytest.mark.parametrize(
    ("refused", "action"),
    [
        (failure("CreateTopics", 29, "books").replaced(action="Run it yourself."), "Run it yourself"),
        (failure("CreateTopics", 44, "books"), "Create it, or set another ledgerTopic"),
    ],
)
def test_a_ledger_topic_that_is_not_there_and_cannot_be_created_would_fail_the_first_batch(refused, action):
    facts = replace(HEALTHY, topics={**HEALTHY.topics, "books": None}, refusals={"books": refused})
    severity, subject, found = only(facts, sink(ledgerTopic="books"))
    assert (severity, subject) == (Severity.ERROR, "topic books")
    assert found.found == f"does not exist, and would not be created: {refused.what}"
    assert found.action == action


@pytest.mark.parametrize(
    ("policy", "settings", "severity"),
    [
        ("compact", {}, None),
        ("compact", {"retention.ms": "1", "retention.bytes": "1", "delete.retention.ms": "0"}, None),
        ("compact", {"max.compaction.lag.ms": "1", "min.compaction.lag.ms": "0"}, None),
        ("compact,delete", {"retention.ms": "-1", "retention.bytes": "-1"}, None),
        ("delete, compact", {"retention.ms": "-1", "retention.bytes": "-1"}, None),
        ("compact,delete", {"retention.ms": "604800000", "retention.bytes": "-1"}, Severity.ERROR),
        ("delete,compact", {"retention.ms": "-1", "retention.bytes": "1000000"}, Severity.ERROR),
        ("compact,delete", {"retention.ms": "-1"}, Severity.ERROR),
        ("compact,delete", {}, Severity.ERROR),
        ("delete", {"retention.ms": "604800000", "retention.bytes": "-1"}, Severity.ERROR),
        ("delete", {"retention.ms": "-1", "retention.bytes": "-1"}, Severity.WARNING),
        ("", {}, Severity.WARNING),
        ("none", {}, Severity.WARNING),
    ],
)
def test_a_ledger_topic_must_not_delete_entries_and_should_be_compacted(policy, settings, severity):
    found = wrong(with_topic("kafka-eos-ledger", settings=SETTINGS | {"cleanup.policy": policy} | settings))
    assert [(each.severity, each.subject) for each in found] == [(severity, "topic kafka-eos-ledger")] * bool(severity)
    assert all(f"cleanup.policy is {policy or 'empty'}" in each.found for each in found)


def test_the_limits_that_delete_ledger_entries_are_named():
    settings = SETTINGS | {"cleanup.policy": "compact,delete", "retention.ms": "86400000", "retention.bytes": "-1"}
    _, _, found = only(with_topic("kafka-eos-ledger", settings=settings))
    assert found.found == "cleanup.policy is compact,delete (retention.ms 86400000, retention.bytes -1)"


def test_a_ledger_topic_with_one_replica_is_a_warning():
    alone = SETTINGS | {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    severity, subject, _ = only(with_topic("kafka-eos-ledger", replicas=1, in_sync=1, settings=alone))
    assert (severity, subject) == (Severity.WARNING, "topic kafka-eos-ledger")


def test_a_group_that_another_sinks_transactions_commit_to_is_an_error_unless_the_operator_takes_it():
    shared = with_group(replace(GROUP, sinks=("billing",)))
    severity, subject, found = only(shared)
    assert (severity, subject) == (Severity.ERROR, "group copy")
    assert "resolve=take-group:billing" in found.action
    assert wrong(shared, sink(resolve="take-group:billing")) == []
    assert wrong(shared, sink(resolve="take-group:audit")) != []


def test_a_topic_that_may_not_be_described_is_an_error_that_names_what_the_query_needs():
    facts = replace(HEALTHY, topics={**HEALTHY.topics, "orders": Unavailable(reason="TOPIC_AUTHORIZATION_FAILED")})
    severity, _, found = only(facts)
    assert (severity, found.found) == (Severity.ERROR, "TOPIC_AUTHORIZATION_FAILED")
    assert found.action == "Grant this principal Write on it"


@pytest.mark.parametrize(
    ("topic", "missing", "found"),
    [
        ("orders", "Write", "writing to it is not allowed"),
        ("kafka-eos-ledger", "Write", "writing to it is not allowed"),
        ("kafka-eos-ledger", "Read", "reading the ledger from it is not allowed"),
    ],
)
def test_a_right_the_query_lacks_on_a_topic_is_an_error(topic, missing, found):
    there = {"orders": TOPIC, "kafka-eos-ledger": LEDGER}[topic]
    facts = replace(there, operations=EVERYTHING - {missing})
    severity, _, finding = only(replace(HEALTHY, topics={**HEALTHY.topics, topic: facts}))
    assert severity is Severity.ERROR
    assert finding.found == found
    assert finding.action == f"Grant this principal {missing} on it"


def test_only_the_ledgers_topic_needs_read():
    options = sink(topic=None, outputTopics="even,odd")
    writable = replace(TOPIC, operations=frozenset({"Write", "Describe"}))
    facts = replace(HEALTHY, topics={**HEALTHY.topics, "even": TOPIC, "odd": writable})
    assert wrong(facts, options) == []


def test_a_broker_that_does_not_say_what_is_allowed_is_believed():
    assert wrong(with_topic(operations=None)) == []


def test_a_topic_that_takes_smaller_record_batches_gets_smaller_ones():
    facts = with_topic(settings=SETTINGS | {"max.message.bytes": "100000"})
    assert wrong(facts) == []
    said = [finding.found for finding in findings(facts, sink()) if "max.message.bytes" in finding.found]
    assert said == ["max.message.bytes is 100000, less than kafka.max.request.size: record batches are limited to it"]


def test_record_batches_as_large_as_the_topic_takes_are_allowed():
    options = sink(**{"kafka.max.request.size": "1048588"})
    assert wrong(HEALTHY, options) == []


@pytest.mark.parametrize("name", ["orders", "__consumer_offsets", "__transaction_state"])
class TestDurability:
    """Of an output topic and of Kafka's own."""

    def test_min_insync_replicas_above_the_replication_factor_is_an_error(self, name):
        severity, subject, found = only(with_topic(name, settings=SETTINGS | {"min.insync.replicas": "4"}))
        assert (severity, subject) == (Severity.ERROR, f"topic {name}")
        assert found.found == "min.insync.replicas is 4, but the replication factor is 3"

    def test_a_single_replica_is_a_warning(self, name):
        facts = with_topic(name, replicas=1, in_sync=1, settings=SETTINGS | {"min.insync.replicas": "1"})
        assert only(facts)[2].found == "replication factor 1"
        assert only(facts)[0] is Severity.WARNING

    def test_an_acknowledgement_by_one_of_several_replicas_is_a_warning(self, name):
        severity, _, found = only(with_topic(name, settings=SETTINGS | {"min.insync.replicas": "1"}))
        assert (severity, found.found) == (Severity.WARNING, "min.insync.replicas is 1")
        assert found.action == "Set min.insync.replicas to 2"

    def test_unclean_leader_election_is_a_warning(self, name):
        severity, _, found = only(with_topic(name, settings=SETTINGS | {"unclean.leader.election.enable": "true"}))
        assert (severity, found.found) == (Severity.WARNING, "unclean.leader.election.enable is true")

    def test_too_few_replicas_in_sync_is_a_warning_since_brokers_come_back(self, name):
        severity, _, found = only(with_topic(name, in_sync=1))
        assert (severity, found.found) == (
            Severity.WARNING,
            "1 of 3 replicas are in sync, but min.insync.replicas is 2",
        )

    def test_settings_that_may_not_be_read_are_a_warning_that_names_the_acl(self, name):
        unread = Unavailable(reason="TOPIC_AUTHORIZATION_FAILED", grant="DescribeConfigs on Topic")
        severity, subject, found = only(with_topic(name, settings=unread))
        assert (severity, subject) == (Severity.WARNING, f"topic {name}")
        assert "min.insync.replicas" in found.found and "could not be checked" in found.found
        assert found.action == "Grant this principal DescribeConfigs on Topic"


def test_settings_that_the_broker_hides_have_no_acl_to_ask_for():
    found = only(with_topic(settings=Unavailable(reason="the broker does not return min.insync.replicas")))[2]
    assert found.action == ""
    assert str(found).endswith("could not be checked: the broker does not return min.insync.replicas")


def test_an_internal_topic_that_may_not_be_described_is_a_warning():
    unread = Unavailable(reason="TOPIC_AUTHORIZATION_FAILED", grant="Describe and DescribeConfigs on Topic")
    names = ("__consumer_offsets", "__transaction_state")
    facts = replace(HEALTHY, topics={**HEALTHY.topics, **dict.fromkeys(names, unread)})
    assert only(facts)[:2] == (Severity.WARNING, "topics __consumer_offsets, __transaction_state")


def test_an_internal_topic_that_is_not_there_yet_is_no_trouble():
    assert wrong(replace(HEALTHY, topics={**HEALTHY.topics, "__transaction_state": None})) == []


def test_several_things_may_be_wrong_at_once():
    facts = replace(
        with_topic(settings=SETTINGS | {"min.insync.replicas": "4"}, operations=EVERYTHING - {"Write"}),
        transaction_version=1,
        groups={**HEALTHY.groups, "copy": GroupFacts(state="Stable", members=("a at b",), operations=None)},
    )
    assert sorted(finding.severity for finding in wrong(facts)) == ["error", "error", "error", "warning"]


# -- the requests of the preflight


def test_at_least_once_asks_nothing_of_transactions():
    options = sink(**{"kafka.transactional.id": None}, deliveryGuarantee="at-least-once")
    assert (ledger_topics(options), groups(options), internal_topics(options)) == ([], [], [])
    facts = Facts(brokers=3, transaction_version=0, settings={}, transaction=None, groups={}, topics={"orders": TOPIC})
    assert [finding.subject for finding in findings(facts, options)] == ["cluster", "topic orders"]


def test_at_least_once_still_commits_to_the_group_it_is_given():
    options = sink(**{"kafka.transactional.id": None, "kafka.group.id": "g"}, deliveryGuarantee="at-least-once")
    assert (groups(options), internal_topics(options)) == (["g"], ["__consumer_offsets"])


def test_rows_that_name_their_own_topics_leave_only_the_ledgers_to_look_at():
    options = sink(topic=None, ledgerTopic="books")
    assert (written_topics(options), ledger_topics(options)) == ([], ["books"])


def test_a_finding_is_a_value():
    finding = Finding(severity=Severity.OK, subject="cluster", found="reachable")
    assert finding == replace(finding)
    assert str(finding) == "cluster: reachable"


def test_the_topics_that_a_query_reads_must_exist_and_be_readable():
    def read(**more):
        return replace(TOPIC, **{"operations": frozenset({"Read"}), **more})

    found = source_findings(
        {
            "a": read(),
            "b": read(partitions=1, operations=None),
            "c": read(operations=frozenset({"Describe"})),
            "d": None,
            "e": None,
            "f": Unavailable(reason="TOPIC_AUTHORIZATION_FAILED (29)"),
        }
    )
    assert [(each.severity, each.subject, each.found, each.action) for each in found] == [
        (Severity.OK, "source topic a", "4 partitions", ""),
        (Severity.OK, "source topic b", "1 partition", ""),
        (Severity.ERROR, "source topic c", "reading from it is not allowed", "Grant this principal Read on it"),
        (Severity.ERROR, "source topics d, e", "does not exist", "Create it, or correct its name"),
        (Severity.ERROR, "source topic f", "TOPIC_AUTHORIZATION_FAILED (29)", "Grant this principal Read on it"),
    ]
    assert not any("output" in each.meaning for each in found)


@pytest.mark.parametrize(("kind", "kip"), [("share", "KIP-932"), ("streams", "KIP-1071")])
@pytest.mark.parametrize("state", ["Empty", "Stable"])
def test_a_group_of_another_type_is_an_error_that_names_its_type(kind, kip, state):
    facts = with_group(GroupFacts(state=state, members=(), operations=EVERYTHING, type=kind))
    severity, subject, found = only(facts)
    named = f"is a {kind} group ({kip})"
    assert (severity, subject, found.found[: len(named)]) == (Severity.ERROR, "group copy", named)


@pytest.mark.parametrize("kind", ["classic", "consumer", ""])
def test_a_consumer_group_of_either_protocol_is_fine_without_members(kind):
    assert wrong(with_group(GroupFacts(state="Empty", members=(), operations=EVERYTHING, type=kind))) == []


# -- how topics store what is sent


@pytest.mark.parametrize(
    ("stored", "sent", "action"),
    [
        ("producer", "zstd", None),
        ("zstd", "zstd", None),
        ("uncompressed", "none", None),
        ("gzip", "none", "kafka.compression.type=gzip"),
        ("uncompressed", "lz4", "kafka.compression.type=none"),
    ],
)
def test_a_topic_that_compresses_again_is_a_warning(stored, sent, action):
    facts = with_topic(settings=SETTINGS | {"compression.type": stored})
    found = wrong(facts, sink(**{"kafka.compression.type": sent}))
    assert [finding.action.endswith(action) for finding in found] == [True] * (action is not None)


@pytest.mark.parametrize("name", ["orders", "kafka-eos-ledger"])
@pytest.mark.parametrize("setting", ["diskless.enable", "inkless.enable"])
def test_a_diskless_topic_is_an_error(name, setting):
    settings = SETTINGS | {"cleanup.policy": "compact", setting: "true"}
    severity, subject, _ = only(with_topic(name, settings=settings))
    assert (severity, subject) == (Severity.ERROR, f"topic {name}")


def test_transactional_ids_that_expire_within_an_hour_are_a_warning():
    severity, subject, _ = only(replace(HEALTHY, settings=BROKER | {"transactional.id.expiration.ms": "600000"}))
    assert (severity, subject) == (Severity.WARNING, "transactional.id.expiration.ms")
    assert wrong(replace(HEALTHY, settings=BROKER | {"transactional.id.expiration.ms": "604800000"})) == []


def test_a_group_that_brokers_cannot_describe_stops_nothing():
    severity, subject, found = only(with_group(Unavailable(reason="the brokers lack DescribeGroups")))
    assert (severity, subject) == (Severity.WARNING, "group copy")
    assert "lack DescribeGroups" in found.found


# -- dead letters


def test_the_topic_of_dead_letters_is_an_output():
    options = sink(deadLetterTopic="dead")
    assert written_topics(options) == ["dead", "orders"]
    facts = replace(HEALTHY, topics={**HEALTHY.topics, "dead": None})
    assert only(facts, options)[:2] == (Severity.ERROR, "topic dead")


@pytest.mark.parametrize(("policy", "keeps"), [("delete", True), ("compact", False), ("compact,delete", False)])
def test_a_compacted_topic_does_not_keep_dead_letters(policy, keeps):
    of_letters = replace(TOPIC, settings=SETTINGS | {"cleanup.policy": policy})
    facts = replace(HEALTHY, topics={**HEALTHY.topics, "dead": of_letters, "orders": LEDGER})
    found = [(each.subject, each.severity) for each in wrong(facts, sink(deadLetterTopic="dead"))]
    assert found == ([] if keeps else [("topic dead", Severity.WARNING)])


def test_a_query_may_not_read_its_own_dead_letters():
    found = loop(["in", "dead"], sink(deadLetterTopic="dead"))
    assert found is not None
    assert (found.severity, found.subject) == (Severity.ERROR, "topic dead")
    assert loop(["in"], sink(deadLetterTopic="dead")) is None
    assert loop(["in", "dead"], sink()) is None


@pytest.mark.parametrize(
    ("topic", "options", "found"),
    [
        ("orders", {}, "the query reads this topic, which it writes"),
        ("b", {"topic": None, "outputTopics": "a,b"}, "the query reads this topic, which it writes"),
        ("kafka-eos-ledger", {}, "which is a ledger topic"),
        ("kafka-eos-ledger", {"ledgerTopic": "books"}, "which is a ledger topic"),
        ("kafka-eos-ledger", {"deliveryGuarantee": "at-least-once"}, "which is a ledger topic"),
        ("books", {"ledgerTopic": "books"}, "which is a ledger topic"),
        ("__consumer_offsets", {}, "this topic of Kafka's own"),
        ("__transaction_state", {}, "this topic of Kafka's own"),
    ],
)
def test_a_query_may_not_read_what_it_writes_unless_it_is_meant(topic, options, found):
    finding = loop({"in", topic}, sink(**options))
    assert finding is not None and found in finding.found
    assert (finding.severity, finding.subject) == (Severity.ERROR, f"topic {topic}")
    assert "set allowLoop=true" in finding.action
    assert loop({"in", topic}, sink(**options, allowLoop="true")) is None
    assert loop({"in"}, sink(**options)) is None


def test_a_query_may_not_read_a_topic_that_its_rows_name():
    options = sink(topic=None)
    assert loop({"in", "x"}, options) is None
    finding = loop({"in", "x"}, options, written=["y", "x"])
    assert finding is not None and finding.subject == "topic x"


def test_a_topic_that_a_gateway_gives_two_names_is_the_same():
    cluster = KafkaModel(1, {"orders": 1, "alias": 1, "kafka-eos-ledger": 1}).cluster()
    origin = Origin(cluster="model", topic_ids={"alias": cluster.topic("alias").id})
    source = SourceRange(start={}, end={TopicPartition("alias", 0): 1}, origin=origin)
    batch = MicroBatch(query_id="q", batch_id=5, digest="d", sources=(source,))
    refuse_loop(cluster, sink(), batch)
    cluster._topics["orders"] = cluster._topics["alias"]
    with pytest.raises(ConfigurationError, match="topic orders: the query reads this topic, which it writes"):
        refuse_loop(cluster, sink(), batch)
    refuse_loop(cluster, sink(allowLoop="true"), batch)


def test_the_first_query_on_a_cluster_does_not_wait_for_the_ledger_topic_that_its_commit_creates():
    kafka = KafkaModel(2, {"in": 1, "orders": 1})
    source = SourceRange(start={}, end={TopicPartition("in", 0): 1})
    began = kafka.clock()
    refuse_loop(
        kafka.cluster(), sink(), MicroBatch(query_id="q", batch_id=0, digest="d", sources=(source,)), {"orders"}
    )
    assert kafka.clock() - began < 1
    assert [api for api, _ in kafka.requests].count("Metadata") <= 2


@pytest.mark.parametrize(
    ("clusters", "refused"), [("", True), ("elsewhere", False), ("elsewhere,", True), (",elsewhere", False)]
)
def test_a_topic_of_that_name_on_another_cluster_is_another_topic(clusters, refused):
    dead, other = {TopicPartition("dead", 0): 1}, {TopicPartition("in", 0): 1}
    sources = (SourceRange(start={}, end=other), SourceRange(start={}, end=dead))
    batch = MicroBatch(query_id="q", batch_id=0, digest="d", sources=sources)
    options = sink(deadLetterTopic="dead", sourceClusters=clusters or None)
    cluster = KafkaModel(1, {"in": 1, "dead": 1}).cluster()
    if not refused:
        refuse_loop(cluster, options, batch)
        return
    with pytest.raises(ConfigurationError, match="the query reads its deadLetterTopic"):
        refuse_loop(cluster, options, batch)


@pytest.mark.parametrize(
    ("cluster_id", "same_topic", "refused"), [("model", True, True), ("there", True, False), ("model", False, False)]
)
def test_a_source_says_itself_that_its_topic_of_that_name_is_another_one(cluster_id, same_topic, refused):
    """On another cluster, or on one that was cloned and has the same id."""
    cluster = KafkaModel(1, {"dead": 1}).cluster()
    topic_id = cluster.topic("dead").id if same_topic else uuid.uuid4()
    origin = Origin(cluster=cluster_id, topic_ids={"dead": topic_id})
    source = SourceRange(start={}, end={TopicPartition("dead", 0): 1}, origin=origin)
    batch = MicroBatch(query_id="q", batch_id=0, digest="d", sources=(source,))
    with pytest.raises(ConfigurationError, match="deadLetterTopic") if refused else nullcontext():
        refuse_loop(cluster, sink(deadLetterTopic="dead"), batch)


def test_an_open_transaction_of_a_bucket_is_a_warning_and_one_that_may_not_be_seen_an_error_of_all():
    ongoing = TransactionFacts(
        state="Ongoing", producer_id=7, epoch=3, timeout_ms=10_000, started_ms=1_000, described_ms=4_000
    )
    idle = replace(ongoing, state="CompleteCommit")
    buckets = {"copy.bucket-0": idle, "copy.bucket-1": ongoing, "copy.bucket-2": None}
    found = {each.subject: each for each in findings(replace(HEALTHY, buckets=buckets), sink())}
    assert found["transactional id copy.bucket-1"].severity is Severity.WARNING
    assert "has had an open transaction for 3 s" in found["transactional id copy.bucket-1"].found
    assert found["buckets of copy"].found == "no open transaction in 2"
    denied = {name: Unavailable(reason="DENIED") for name in buckets}
    (error,) = (each for each in findings(replace(HEALTHY, buckets=denied), sink()) if each.severity is Severity.ERROR)
    prefix = "Write on prefixed transactional id 'copy.bucket-'"
    assert error.action == f"Grant this principal {prefix}, for all buckets"
