"""The table knows every option once, and answers for those it does not know."""

import ast
import logging
import pickle
from dataclasses import fields
from pathlib import Path

import pytest

import spark_kafka_eos
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.options import ClientOptions, SinkOptions, SourceOptions, table
from spark_kafka_eos.options.kafka_properties import OF_LIBRDKAFKA, REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.table import BOTH, OPTIONS, SINK, SOURCE, is_known, parse_options

PACKAGE = Path(spark_kafka_eos.__file__).parent


def test_every_name_occurs_only_once():
    used = [name.lower() for row in OPTIONS for name in (row.name, *row.also)]
    everywhere = [*used, *(name.lower() for name in (*REFUSED, *WITHOUT_EFFECT))]
    assert len(everywhere) == len(set(everywhere))


SECURITY = ("security_", "sasl_", "ssl_", "https_")  # one value together
POSITIONS = {  # they end up in starting_offsets and ending_offsets
    *("starting_timestamp", "starting_offsets_by_timestamp", "starting_offsets_by_timestamp_strategy"),
    *("ending_timestamp", "ending_offsets_by_timestamp"),
}
SINK_LEDGER = {"sink_kafka_transactional_id"}  # the field `sink`, with others under `sink.`
LEDGER_TOPICS = {"include_ledger_topics"}  # the field `ledger_topics`, those that are not included
# What a sink does anyway.
CONSTANT = {"acks", "retries", "max_in_flight_requests_per_connection", "include_headers"}


@pytest.mark.parametrize(
    ("kind", "side", "otherwise"),
    [(SourceOptions, SOURCE, POSITIONS | SINK_LEDGER | LEDGER_TOPICS), (SinkOptions, SINK, CONSTANT)],
)
def test_every_option_has_a_field_of_its_name(kind, side, otherwise):
    options = {row.field for row in OPTIONS if row.side in (side, BOTH) and not row.field.startswith(SECURITY)}
    assert options - otherwise <= {field.name for each in (kind, ClientOptions) for field in fields(each)}


@pytest.mark.parametrize(
    ("kind", "sides", "otherwise"),
    [
        (ClientOptions, {BOTH}, {"security", "tcp_timeout_ms"}),
        (SourceOptions, {SOURCE, BOTH}, {"client", "sink", "ledger_topics", "columns", "required"}),
        (SinkOptions, {SINK, BOTH}, {"client"}),
    ],
)
def test_every_field_has_an_option_of_its_name(kind, sides, otherwise):
    assert {field.name for field in fields(kind)} - otherwise <= {row.field for row in OPTIONS if row.side in sides}


def test_every_field_is_read_outside_of_the_options():
    read = {
        node.attr
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "options"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    kinds = (ClientOptions, SourceOptions, SinkOptions)
    assert {field.name for kind in kinds for field in fields(kind)} - read == set()


def test_every_row_has_a_field_of_its_own_and_a_help_that_is_a_sentence():
    assert len({row.field for row in OPTIONS}) == len(OPTIONS)
    for row in OPTIONS:
        assert row.help.endswith("."), row.name


def test_names_are_compared_without_case_since_spark_lower_cases_them():
    assert parse_options({"startingoffsets": "earliest", "KAFKA.GROUP.ID": "g"}, SOURCE) == {
        "starting_offsets": "earliest",
        "group_id": "g",
    }


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("subscribes", "subscribe"),
        ("startingoffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.fetch.max.byte", "kafka.fetch.max.bytes"),
        ("fetch.max.bytes", "kafka.fetch.max.bytes"),
        ("linger.ms", "kafka.linger.ms"),
        ("Auto.Offset.Reset", "kafka.auto.offset.reset"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(typo, meant):
    with pytest.raises(ConfigurationError, match=rf"option '{typo}': unknown option\..*Did you mean {meant}\?"):
        parse_options({typo: "x"}, SOURCE)


@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_a_name_of_librdkafkas_is_answered_with_javas_and_whether_that_has_an_effect(prefix):
    with pytest.raises(ConfigurationError, match="unknown option") as raised:
        parse_options({f"{prefix}queue.buffering.max.ms": "5"}, SINK)
    assert raised.value.action == (
        "It is librdkafka's name of kafka.linger.ms, which has no effect: each task encodes its rows as complete "
        "record batches."
    )
    with pytest.raises(ConfigurationError) as raised:
        parse_options({f"{prefix}socket.timeout.ms": "5"}, SINK)
    assert raised.value.action == "It is librdkafka's name of kafka.request.timeout.ms."


def test_every_name_of_librdkafkas_is_unknown_and_stands_for_a_known_one():
    for name, of_java in OF_LIBRDKAFKA.items():
        assert not is_known(f"kafka.{name}"), name
        assert is_known(f"kafka.{of_java}"), of_java


def test_acks_without_its_prefix_is_answered_with_the_prefix():
    with pytest.raises(ConfigurationError, match=r"Did you mean kafka\.acks\?"):
        parse_options({"acks": "all"}, SINK)


def test_an_unknown_option_like_no_other_is_refused_without_a_guess():
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"zzz": "x"}, SINK)
    assert "Did you mean" not in str(caught.value)


def test_the_nearest_name_is_one_that_this_side_takes():
    with pytest.raises(ConfigurationError, match=r"Did you mean topic\?"):
        parse_options({"topics": "x"}, SINK)


@pytest.mark.parametrize(("name", "side", "other"), [("topic", SOURCE, "sink"), ("subscribe", SINK, "source")])
def test_an_option_of_the_other_side_is_refused_as_such(name, side, other):
    with pytest.raises(ConfigurationError, match=f"is an option of the {other}, not of the {side.value}"):
        parse_options({name: "x"}, side)


def test_a_kafka_property_of_the_other_side_has_no_effect_so_that_one_file_serves_both(caplog):
    table.say_without_effect.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert parse_options({"kafka.acks": "1"}, SOURCE) == {}
    assert "kafka.acks has no effect: it applies to the sink only" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("kafka.auto.offset.reset", "earliest", "startingOffsets"),
        ("kafka.key.deserializer", "x", "always bytes"),
        ("kafka.value.serializer", "x", "always bytes"),
        ("kafka.enable.auto.commit", "true", "no periodic commit"),
        ("kafka.interceptor.classes", "x", "interceptor"),
        ("kafka.ssl.cipher.suites", "x", "OpenSSL"),
        ("kafka.enable.ssl.certificate.verification", "false", "always verified"),
        ("kafka.sasl.oauthbearer.assertion.file", "x", r"token\.provider"),
    ],
)
def test_a_kafka_property_that_cannot_be_honoured_is_refused_with_the_reason(name, value, reason):
    for side in (SOURCE, SINK):
        with pytest.raises(ConfigurationError, match=f"option '{name}': .*{reason}"):
            parse_options({name: value}, side)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("kafka.acks", "1", "only all"),
        ("kafka.acks", "0", "only all"),
        ("kafka.request.required.acks", "1", "only all"),
        ("kafka.retries", "0", "0 is not between 1"),
        ("kafka.max.in.flight.requests.per.connection", "6", "6 is not between 1 and 5"),
    ],
)
def test_a_property_that_would_weaken_the_guarantee_is_refused(name, value, reason):
    with pytest.raises(ConfigurationError, match=f"option 'kafka.[a-z.]+': {reason}"):
        parse_options({name: value}, SINK)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.enable.auto.commit", "False"),
        ("kafka.interceptor.classes", ""),
        ("kafka.ssl.cipher.suites", " "),
        ("kafka.key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"),
        ("kafka.value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer"),
    ],
)
def test_a_refused_property_is_accepted_with_a_value_that_says_what_holds_anyway(name, value):
    for side in (SOURCE, SINK):
        assert parse_options({name: value}, side) == {}


def test_a_property_that_says_what_holds_anyway_is_accepted():
    parse_options({"kafka.acks": "all", "kafka.enable.idempotence": "true"}, SINK)
    parse_options(
        {"kafka.acks": "-1", "kafka.retries": "2147483647", "kafka.max.in.flight.requests.per.connection": "1"}, SINK
    )


def test_a_property_without_effect_is_accepted_and_named_once_in_the_log(caplog):
    table.say_without_effect.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert parse_options({"kafka.linger.ms": "5", "kafka.batch.size": "1"}, SINK) == {}
    assert sorted(record.args[0] for record in caplog.records) == ["kafka.batch.size", "kafka.linger.ms"]


def test_a_warning_spells_an_option_as_its_documentation_does_since_spark_lower_cases_it(caplog):
    table.say_without_effect.cache_clear()
    with caplog.at_level(logging.WARNING):
        parse_options({"groupidprefix": "g", "fetchoffset.numretries": "3", "KAFKA.ACKS": "1"}, SOURCE)
    assert [record.args[0] for record in caplog.records] == ["groupIdPrefix", "fetchOffset.numRetries", "kafka.acks"]


def test_two_spellings_of_one_option_exclude_each_other():
    with pytest.raises(ConfigurationError, match="option 'TOPIC': cannot be combined with 'topic'"):
        parse_options({"topic": "a", "TOPIC": "b"}, SINK)


def test_what_spark_adds_by_itself_is_passed_over():
    added = {
        "path": "/x",
        "paths": '["/x"]',
        "queryname": "q",
        "owner": "me",
        "provider": "kafka-eos",
        "option.topic": "t",
    }
    assert parse_options(added, SINK) == {}


def test_values_may_be_what_python_has_since_not_every_option_passes_through_spark():
    given = {"failOnDataLoss": False, "minPartitions": 4, "subscribe": None, "kafka.sasl.password": Secret("s")}
    assert parse_options(given, SOURCE) == {
        "fail_on_data_loss": False,
        "min_partitions": 4,
        "sasl_password": Secret("s"),
    }


def test_two_names_of_one_option_exclude_each_other():
    with pytest.raises(ConfigurationError, match=r"cannot be combined with 'kafka\.sasl\.mechanism'"):
        parse_options({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.mechanisms": "PLAIN"}, SINK)


def test_librdkafkas_names_are_accepted_where_they_mean_the_same():
    given = {"kafka.metadata.broker.list": "a:1", "kafka.fetch.wait.max.ms": "10", "kafka.fetch.message.max.bytes": "5"}
    assert parse_options(given, SOURCE) == {
        "bootstrap_servers": (("a", 1),),
        "fetch_max_wait_ms": 10,
        "max_partition_fetch_bytes": 5,
    }


def test_a_value_that_does_not_parse_names_its_option_as_documented():
    with pytest.raises(
        ConfigurationError, match="option 'maxOffsetsPerTrigger': 'many' is not a whole number"
    ) as caught:
        parse_options({"maxoffsetspertrigger": "many"}, SOURCE)
    assert caught.value.option == "maxOffsetsPerTrigger"
    with pytest.raises(ConfigurationError, match="option 'kafka.max.request.size': 'many' is not a whole number"):
        parse_options({"kafka.message.max.bytes": "many"}, SINK)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


OF_JAVA = ["sasl.jaas.config", "sasl.oauthbearer.client.credentials.client.secret", "ssl.truststore.password",
           "ssl.keystore.password", "ssl.keystore.key", "ssl.key.password"]  # fmt: skip


@pytest.mark.parametrize("name", OF_JAVA)
def test_a_password_of_java_has_no_blanks_around_it_as_in_javas_clients(name: str) -> None:
    given = {f"kafka.{name}": " \tchange it\N{NO-BREAK SPACE} \r"}
    (value,) = parse_options(given, SOURCE).values()
    assert value == Secret("change it\N{NO-BREAK SPACE}")


@pytest.mark.parametrize("name", ["sasl.password", "sasl.oauthbearer.config"])
def test_a_password_of_librdkafka_keeps_its_blanks(name: str) -> None:
    (value,) = parse_options({f"kafka.{name}": " s "}, SOURCE).values()
    assert value == Secret(" s ")
