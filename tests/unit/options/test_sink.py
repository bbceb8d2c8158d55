"""The sink's options, and what must hold between several of them."""

import pickle

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.options.outputs import OutputTopic, outputs_to_text
from spark_kafka_eos.options.sink_parser import output_topics_of

BROKER = {"kafka.bootstrap.servers": "a:1"}
ID = {"kafka.transactional.id": "orders"}


def sink(**options: object) -> SinkOptions:
    return sink_options(BROKER | ID | options)


def refused(options: dict[str, str], option: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        sink_options(BROKER | options)
    assert caught.value.option == option


def test_a_topic_and_a_transactional_id_are_all_that_exactly_once_needs():
    options = sink(topic="t")
    assert (options.delivery_guarantee, options.append_mode, options.compression_type) == (
        "exactly-once",
        "auto",
        "none",
    )
    assert (options.group_id, options.ledger_topic, options.ledger_group) == (
        "orders",
        "kafka-eos-ledger",
        "orders.ledger",
    )
    assert (options.max_request_size, options.transaction_timeout_ms, options.max_attempts) == (1_048_576, 60_000, 3)


def test_exactly_once_needs_a_transactional_id():
    refused({"topic": "t"}, "kafka.transactional.id", "is required for exactly-once")


def test_a_batch_write_is_named_by_its_id_else_by_txn_app_id_else_by_the_default():
    def named(**options: object) -> str:
        return sink_options(BROKER | {"topic": "t"} | options, default_transactional_id="random").transactional_id

    versioned = {"txnAppId": "nightly", "txnVersion": 1}
    assert named() == "random"
    assert named(**versioned) == "nightly"
    assert named(**versioned, **ID) == "orders"
    assert named(deliveryGuarantee="at-least-once") == ""


def test_txn_app_id_names_no_streaming_query():
    refused({"topic": "t", "txnAppId": "nightly", "txnVersion": "1"}, "kafka.transactional.id", "is required")


@pytest.mark.parametrize("options", [{"topic": "t"}, {"outputTopics": "b,a"}, {"outputTopics": "a,b"}, {}])
def test_the_ledger_has_its_own_topic_whatever_is_written_and_in_whatever_order(options):
    assert sink(**options).ledger_topic == "kafka-eos-ledger"
    assert sink(**options, ledgerTopic="books").ledger_topic == "books"


@pytest.mark.parametrize(
    ("writers", "given", "declared"),
    [
        ("", None, ""),
        ("a,b", None, "a, b"),
        ("", ["b", "a"], "b, a"),
        ("a,b", "b", "b"),
        ("a,b:0-7", ["a:3", "b:0-1,b:7"], "a:3, b:0-1,b:7"),
    ],
)
def test_a_transaction_may_declare_its_own_topics_among_the_writers(writers, given, declared):
    options = sink_options(BROKER | ID | {"outputTopics": writers or None})
    assert outputs_to_text(output_topics_of(options, given)) == declared


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["a", "c"], "declares c, but the writer only a, b"),
        ([], "empty"),
        ("a,kafka-eos-ledger", "the writer only a, b"),
        ("b:3-9", "declares b:3-9, but the writer only a, b:0-7"),
        ("b", "declares b, but the writer only a, b:0-7"),
    ],
)
def test_a_transaction_may_not_write_what_the_writer_may_not(given, why):
    writers = "a,b:0-7" if "b:" in why else "a,b"
    with pytest.raises(ConfigurationError, match=f"outputTopics.*{why}"):
        output_topics_of(sink_options(BROKER | ID | {"outputTopics": writers}), given)


def test_no_part_of_the_dead_letter_topic_is_declared():
    aside = ID | {"deadLetterTopic": "dead"}
    refused(
        aside | {"outputTopics": "a,dead:0"}, "outputTopics", r"some partitions of the dead-letter topic \(dead:0\)"
    )
    with pytest.raises(ConfigurationError, match="some partitions of the dead-letter topic"):
        output_topics_of(sink_options(BROKER | aside), ["dead:1"])
    assert sink(topic="a", deadLetterTopic="dead", outputTopics="a:0,dead").dead_letter_topic == "dead"


def test_a_transaction_may_not_write_to_the_ledger():
    with pytest.raises(ConfigurationError, match="the ledger needs a compacted topic of its own"):
        output_topics_of(sink_options(BROKER | ID), ["kafka-eos-ledger"])


@pytest.mark.parametrize("options", [{"topic": "t"}, {"outputTopics": "a,t"}])
def test_the_ledger_is_not_kept_in_a_topic_that_the_query_writes(options):
    refused(ID | options | {"ledgerTopic": "t"}, "ledgerTopic", "a compacted topic of its own")


def test_a_batch_write_keeps_a_ledger_only_if_it_can_be_asked_for_again():
    def ledger(**options: object) -> str:
        return sink_options(BROKER | {"topic": "t"} | options, default_transactional_id="random").ledger_topic

    assert (ledger(), ledger(**ID), ledger(txnAppId="nightly", txnVersion=1)) == ("", "", "kafka-eos-ledger")


def test_the_clusters_of_the_sources_are_named_in_their_order_and_an_empty_one_is_the_sinks():
    assert sink(topic="t").source_clusters == ()
    assert sink(topic="t", sourceClusters="A").source_clusters == ("A",)
    assert sink(topic="t", sourceClusters="A,,B").source_clusters == ("A", "", "B")


def test_at_least_once_needs_neither_transactional_id_nor_topic():
    options = sink_options(BROKER | {"deliveryGuarantee": "at-least-once"})
    assert (options.transactional_id, options.ledger_topic, options.group_id, options.topic) == ("", "", "", None)


def test_the_topic_must_be_among_the_allowed_ones():
    refused(ID | {"topic": "c", "outputTopics": "a,b"}, "topic", r"c is not in outputTopics \(a, b\)")


def test_the_ledgers_group_cannot_hold_the_source_offsets():
    refused(ID | {"topic": "t", "kafka.group.id": "orders.ledger"}, "kafka.group.id", "reserved for the ledger")


@pytest.mark.parametrize(("given", "missing"), [("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")])
def test_the_two_names_of_a_batch_write_belong_together(given, missing):
    refused(ID | {"topic": "t", given: "1"}, given, f"requires {missing}")
    assert sink(topic="t", txnAppId="nightly", txnVersion="7").txn_version == 7


def test_the_options_of_a_java_producer_are_read():
    kafka = {
        "kafka.compression.type": "zstd",
        "kafka.max.request.size": "2000000",
        "kafka.transaction.timeout.ms": "900000",
    }
    options = sink(topic="t", **kafka)
    assert (options.compression_type, options.max_request_size, options.transaction_timeout_ms) == (
        "zstd",
        2_000_000,
        900_000,
    )


def test_spark_hands_over_lower_case_names_and_its_own():
    spark = {"checkpointlocation": "/c", "queryname": "q", "path": "/p", "outputtopics": "t", "stagingdir": "/s"}
    options = sink_options(BROKER | ID | spark)
    assert (options.checkpoint_location, options.output_topics, options.staging_dir) == (
        "/c",
        (OutputTopic(topic="t"),),
        "/s",
    )


def test_headers_may_be_asked_for_though_a_sink_writes_them_anyway():
    assert sink(topic="t", includeHeaders="true") == sink(topic="t")


def test_values_pickle_since_they_travel_to_the_executors():
    assert pickle.loads(pickle.dumps(sink(topic="t"))) == sink(topic="t")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("murmur2", "murmur2"),
        ("Consistent", "consistent"),
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "roundrobin"),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "murmur2"),
    ],
)
@pytest.mark.parametrize("name", ["partitioner", "kafka.partitioner.class"])
def test_a_partitioner_is_chosen_by_name_or_by_the_java_class_that_does_the_same(name, given, meant):
    assert sink(topic="t", **{name: given}).partitioner == meant


def test_a_partitioner_class_that_is_not_known_is_refused():
    refused(ID | {"topic": "t", "kafka.partitioner.class": "com.example.Mine"}, "partitioner", "is not one of murmur2")


def test_dead_letters_have_a_topic_of_their_own():
    refused(ID | {"topic": "t", "deadLetterTopic": "t"}, "deadLetterTopic", "t is the query's output topic")
    refused(ID | {"topic": "t", "deadLetterTopic": "kafka-eos-ledger"}, "ledgerTopic", "a compacted topic of its own")
    options = sink(topic="t", outputTopics="t", deadLetterTopic="dead", maxDeadLetters="10,1%")
    assert (options.dead_letter_topic, str(options.max_dead_letters)) == ("dead", "10,1%")


def test_a_limit_of_dead_letters_needs_their_topic():
    refused(ID | {"topic": "t", "maxDeadLetters": "1%"}, "maxDeadLetters", "requires deadLetterTopic")
