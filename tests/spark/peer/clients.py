"""Options of the clients, and that options are found in any case (KafkaSourceProviderSuite), and the rows of the page
that no case of the peer's shows.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from spark_kafka_eos.options import source_options
from spark_kafka_eos.options.kafka_properties import WITHOUT_EFFECT
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import Connector, numbers, values
from tests.spark.peer.offsets import case_insensitive, java

PROVIDER, STREAM, OWN = "KafkaSourceProviderSuite", "KafkaMicroBatchSourceSuite", "of this project"
FIELDS = {
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", lambda stream: stream.maxOffsetsPerTrigger().get()),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", lambda stream: stream.minOffsetPerTrigger().get()),
    "maxTriggerDelay": ("max_trigger_delay", lambda stream: stream.maxTriggerDelayMs()),
    "kafkaConsumer.pollTimeoutMs": ("", lambda stream: stream.pollTimeoutMs()),
    "fetchOffset.numRetries": ("", lambda stream: stream.kafkaOffsetReader().maxOffsetFetchAttempts()),
    "fetchOffset.retryIntervalMs": ("", lambda stream: stream.kafkaOffsetReader().offsetFetchAttemptIntervalMs()),
}


def any_case(option: str) -> None:
    field, of = FIELDS[option]
    no_effect = None if field else Documented("Options", f"`{option}` | no effect")

    @case(
        PROVIDER,
        1111,
        option,
        here=1111 if field else None,
        documented=no_effect,
        sentence=f"{option}_is_found_in_upper_and_lower_case",
    )
    def run(connector: Connector) -> object:
        contents = [content_of(connector, name) for name in (option.upper(), option.lower())]
        assert contents[0] == contents[1]
        return contents[0]

    def content_of(connector: Connector, name: str) -> Any:
        given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", name: "1111"}
        if not connector.is_built_in:
            parsed = source_options(given)
            assert field or option in WITHOUT_EFFECT
            return getattr(parsed, field) if field else None
        options = case_insensitive(connector, given)
        scan = java(connector, "KafkaSourceProvider")().getTable(options).newScanBuilder(options).build()
        return of(scan.toMicroBatchStream(str(connector.folder)))


for option in FIELDS:
    any_case(option)


@case(STREAM, [*range(5)], "startingOffsets", "endingOffsets")
def words_for_offsets_are_taken_in_any_case(connector: Connector) -> object:
    topic = connector.topic(values(5))
    return numbers(connector.read(topic, startingOffsets="earLiEst", ENDINGOFFSETS="laTest"))


@case(STREAM, [3, 4], "startingOffsets")
def a_topic_in_json_keeps_its_case(connector: Connector) -> object:
    topic = connector.topic(values(5), name=connector.name("Topic-A"))
    return numbers(connector.read(topic, STARTINGOFFSETS=f'{{"{topic}": {{"0": 3}}}}'))


for option in ("groupIdPrefix", "kafka.group.id"):

    @case(STREAM, [[*range(30)]], option, sentence=f"{option}_changes_nothing_of_what_is_read")
    def group(connector: Connector, option: str = option) -> object:
        setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"  # offsets are read by a member of the group
        connector.spark.conf.set(setting, "true")
        try:
            return connector.query(connector.stream(connector.topic(values(30)), **{option: "peer-group"})).run()
        finally:
            connector.spark.conf.unset(setting)


@case(
    OWN,
    [0],
    here=Refusal("unknown option. Did you mean startingOffsets"),
    documented=Documented("Options", "Some options that the built-in source ignores are errors here"),
)
def an_option_that_is_misspelt_is_ignored(connector: Connector) -> object:
    topic = connector.topic([b"0"])
    return numbers(connector.read(topic, startingOffset=f'{{"{topic}": {{"0": 1}}}}'))


# -- brokers


@case(OWN, [0, 1, 2], "kafka.bootstrap.servers")
def a_server_that_does_not_answer_is_left_for_the_next_one(connector: Connector) -> object:
    topic = connector.topic(values(2))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        servers = {"kafka.bootstrap.servers": f"127.0.0.1:{unused.getsockname()[1]},{connector.kafka.bootstrap}"}
        connector.write(connector.spark.createDataFrame([("2",)], "value string"), topic=topic, **servers)
        return numbers(connector.read(topic, **servers))


@case(OWN, ["1", "2"], "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.ssl.truststore.location")
def tls_and_a_login_are_given_as_to_the_java_client(connector: Connector) -> object:
    secured = connector.secured()
    user, password = secured.allowed
    login = {
        "kafka.bootstrap.servers": secured.kafka.bootstrap_of("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.certificates.ca),
    }
    topic = secured.kafka.create_topic(connector.name(), 1)
    connector.write(connector.spark.createDataFrame([("1",), ("2",)], "value string"), topic=topic, **login)
    rows = connector.read(topic, **login).selectExpr("CAST(value AS STRING) AS value").collect()
    return sorted(row.value for row in rows)


@case(OWN, 1, "kafka.compression.type")
def record_batches_are_compressed_as_the_option_says(connector: Connector) -> object:
    topic = connector.topic([])
    frame = connector.spark.createDataFrame([("x" * 10_000,)], "value string")
    connector.write(frame, topic=topic, **{"kafka.compression.type": "gzip"})
    [log] = connector.kafka.directory.rglob(f"{topic}-0/00000000000000000000.log")
    return log.read_bytes()[22] & 7  # the codec in the attributes of the first record batch: 1 is gzip


@case(
    OWN,
    Refusal("larger than 10000"),
    "kafka.max.request.size",
    here=Refusal("the limit is 10,000 .kafka.max.request.size"),
)
def a_record_above_the_maximum_of_a_request_is_refused(connector: Connector) -> object:
    frame = connector.spark.createDataFrame([("x" * 20_000,)], "value string")
    connector.write(frame, topic=connector.topic([]), **{"kafka.max.request.size": "10000"})
    return "written"


@case(
    OWN,
    Refusal("Expiring 1 record"),
    "kafka.delivery.timeout.ms",
    "kafka.request.timeout.ms",
    here=Refusal("errors.BrokerUnreachable: .*Nothing was committed"),
)
def a_write_to_a_broker_that_hangs_fails_after_the_timeouts(connector: Connector) -> object:
    timeouts = {"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "1000", "kafka.max.block.ms": "30000"}
    frame = connector.spark.createDataFrame([("1",)], "value string")
    with EmbeddedKafka(connector.kafka.version) as kafka:
        topic = kafka.create_topic("hangs")
        servers = {"kafka.bootstrap.servers": kafka.bootstrap}
        connector.write(frame, topic=topic, **servers, **timeouts)
        kafka.pause()
        began = time.monotonic()
        try:
            connector.write(frame, topic=topic, **servers, **timeouts)
        finally:
            assert time.monotonic() - began < 60, "a timeout of two minutes would be the default"
            kafka.resume()
    return "written"
