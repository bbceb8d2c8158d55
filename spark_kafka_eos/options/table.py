"""Every option there is, in one table: parsing, validation, the nearest-name hint and the README's table come from it.

Names are the built-in Kafka source's and sink's, and behind `kafka.` the Java clients'. A property that librdkafka
names otherwise is known under both names. Keys are compared without case: Spark lower-cases them on the way to Python.
"""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import parsers as p
from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.sasl import MECHANISMS
from spark_kafka_eos.options.secret import Secret
from spark_kafka_eos.options.security import PROTOCOLS

_log = logging.getLogger(__name__)


class Side(Enum):
    """Who takes an option: `readStream`/`read`, `writeStream`/`write`/`TransactionalWriter`, or both."""

    SOURCE = "source"
    SINK = "sink"
    BOTH = "both"


class Option(NamedTuple):
    """A row of the table. `field` is where the parsed value goes; its default is that field's, in the dataclasses."""

    name: str
    side: Side
    field: str
    parse: Callable[[str], object]
    help: str
    also: tuple[str, ...] = ()  # other names for the same thing


SOURCE, SINK, BOTH = Side.SOURCE, Side.SINK, Side.BOTH
_STORE_TYPES = ("PEM", "PKCS12", "JKS")
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_OAUTH_HANDLERS = tuple(f"{_OAUTH}.{place}OAuthBearerLoginCallbackHandler".lower() for place in ("", "secured."))

# A row is a line of facts and a line of help, which the formatter would tear apart.
# fmt: off
OPTIONS: tuple[Option, ...] = (
    # -- what to read
    Option("subscribe", SOURCE, "subscribe", p.topics,
           "Topics to read, with commas between them. One of subscribe, subscribePattern, assign is required."),
    Option("subscribePattern", SOURCE, "subscribe_pattern", p.pattern,
           "Regular expression that a topic's whole name must match."),
    Option("assign", SOURCE, "assign", p.assign,
           'Partitions to read: `{"orders": [0, 1]}`.'),
    Option("startingOffsets", SOURCE, "starting_offsets", p.starting_offsets,
           "Where a new query starts: `earliest`, `latest`, `committed` (where `kafka.group.id` stands, or the sink "
           "named by `sink.kafka.transactional.id`; an error where nothing is committed), `committed-or-earliest`, "
           '`committed-or-latest`, or `{"orders": {"0": 23, "1": -2}}` (-2 earliest, -1 latest). A batch read starts '
           "at `earliest` by default."),
    Option("startingTimestamp", SOURCE, "starting_timestamp", p.number(0, p.LONG_MAX),
           "Start at the first record from this time on (milliseconds since 1970), in every partition."),
    Option("startingOffsetsByTimestamp", SOURCE, "starting_timestamps", p.timestamps,
           'The same, for each partition: `{"orders": {"0": 1700000000000}}`.'),
    Option("startingOffsetsByTimestampStrategy", SOURCE, "starting_strategy", p.one_of("error", "latest"),
           "What to do where no record is that young: `error` (default) or `latest`."),
    Option("endingOffsets", SOURCE, "ending_offsets", p.ending_offsets,
           'Where a batch read ends: `latest` or `{"orders": {"0": 50, "1": -1}}` (-1 latest).'),
    Option("endingTimestamp", SOURCE, "ending_timestamp", p.number(0, p.LONG_MAX),
           "End a batch read before the first record from this time on."),
    Option("endingOffsetsByTimestamp", SOURCE, "ending_timestamps", p.timestamps,
           "The same, for each partition."),
    Option("pushDownFilters", SOURCE, "push_down_filters", p.flag,
           "A batch read fetches only what filters on topic, partition, offset and timestamp can leave; see the "
           "examples for what it needs."),
    Option("maxTimestampDelay", SOURCE, "max_timestamp_delay_ms", p.duration_ms,
           "Your word that no record is older than one before it in its partition by more than this, such as `1h`: "
           "then `timestamp < …` ends the read, too."),
    Option("includeHeaders", BOTH, "include_headers", p.flag,
           "Add the column `headers`. A sink writes that column whenever it is there."),
    Option("failOnDataLoss", BOTH, "fail_on_data_loss", p.flag,
           "Fail when offsets still to be read are gone from Kafka; `false` goes on with a warning. A sink with "
           "`false` leaves out the offsets of source topics that are gone."),
    Option("sink.kafka.transactional.id", SOURCE, "sink", p.text,
           "With startingOffsets=committed: go on where the transactions of this `kafka-eos` sink ended, as its ledger "
           "has it, which never expires. With `sink.kafka.bootstrap.servers`, and what else it takes to log in, where "
           "the sink is on another cluster; and `sink.ledgerTopic`, if that is not the default."),
    Option("commitOffsets", SOURCE, "commit_offsets", p.flag,
           "Commit what Spark says is done to `kafka.group.id`, for lag tools, where the sink is not `kafka-eos`."),
    # -- how much at a time
    Option("maxOffsetsPerTrigger", SOURCE, "max_offsets_per_trigger", p.number(1, p.LONG_MAX),
           "At most so many offsets in a micro-batch, shared out by how much each partition has."),
    Option("maxBytesPerTrigger", SOURCE, "max_bytes_per_trigger", p.size_bytes,
           "About so many bytes at most in a micro-batch, such as `64m`, as Kafka keeps them; estimated from samples. "
           "With maxOffsetsPerTrigger the smaller of the two holds."),
    Option("minOffsetsPerTrigger", SOURCE, "min_offsets_per_trigger", p.number(1, p.LONG_MAX),
           "Wait until so many offsets are there, or until maxTriggerDelay is over."),
    Option("maxTriggerDelay", SOURCE, "max_trigger_delay_ms", p.duration_ms,
           "The longest wait for minOffsetsPerTrigger, such as `15m`; a bare number is milliseconds."),
    Option("minPartitions", SOURCE, "min_partitions", p.number(1),
           "Split Kafka partitions until there are at least so many Spark tasks."),
    Option("maxRecordsPerPartition", SOURCE, "max_records_per_partition", p.number(1, p.LONG_MAX),
           "At most so many offsets in one Spark task."),
    # -- what to write
    Option("topic", SINK, "topic", p.topic,
           "Topic of every row; wins over the column `topic`."),
    Option("outputTopics", SINK, "output_topics", p.topics,
           "The only topics that may be written; a row for another fails the batch before anything is sent (KIP-609)."),
    Option("ledgerTopic", SINK, "ledger_topic", p.topic,
           "Compacted topic that keeps the ledger, shared by all queries: `kafka-eos-ledger` by default. It is created "
           "when it is first needed."),
    Option("kafka.transactional.id", SINK, "transactional_id", p.text,
           "Stable name of the query's transactions; required for exactly-once, but for a batch write: there it is "
           "txnAppId by default, else random. A new owner fences the old one."),
    Option("deliveryGuarantee", SINK, "delivery_guarantee", p.one_of("exactly-once", "at-least-once"),
           "`at-least-once` writes idempotently, without transaction and ledger."),
    Option("appendMode", SINK, "append_mode", p.one_of("auto", "driver", "executors"),
           "Who sends to Kafka. `auto`: on a classic cluster without speculation the executors, but for small batches "
           "(reckoned to make 1 MB at most); else the driver."),
    Option("stagingDir", SINK, "staging_dir", p.text,
           "Where encoded blocks wait for the driver. Default: beside the checkpoint."),
    Option("maxTries", SINK, "max_tries", p.number(1, 100),
           "How often a batch whose transaction was aborted is tried in all."),
    Option("preflight", SINK, "preflight", p.flag,
           "Before the first batch, look for what would lose data or fail later: errors stop the query, warnings are "
           "logged once."),
    Option("logLevel", SINK, "log_level", p.one_of("debug", "info", "warning", "error"),
           "What the sink's commit writes to the driver's stderr, from this level on: `info` has a line for each "
           "batch. Not for TransactionalWriter, which logs as your program's Python logging is set up."),
    Option("partitioner", SINK, "partitioner", p.partitioner,
           "How a key chooses its partition: `murmur2` as the Java client, `consistent` (CRC-32) as librdkafka, "
           "`roundrobin` not at all. The column `partition` wins.", ("kafka.partitioner.class",)),
    Option("takeOverQuery", SINK, "take_over_query", p.text,
           "Id of the query that this new one continues, on your word that it starts exactly where that one ended; for "
           "a lost checkpoint where the sink cannot see it."),
    Option("resolve", SINK, "resolve", p.text,
           "Your answer to a refusal, word for word as its message gives it; it settles that refusal and no other."),
    Option("sourceClusters", SINK, "source_clusters", p.cluster_ids,
           "Id of the Kafka cluster that the query reads, where it is not the sink's; for several sources one each, in "
           "their order, with commas between them. `cluster_id(options)` tells it."),
    Option("txnAppId", SINK, "txn_app_id", p.text,
           "With txnVersion: a batch write that is run again writes nothing twice."),
    Option("txnVersion", SINK, "txn_version", p.number(0, p.LONG_MAX),
           "Number of this write of txnAppId; it must grow."),
    Option("checkpointLocation", SINK, "checkpoint_location", p.text,
           "The query's checkpoint, where the batch's source offsets are read."),
    # -- Kafka
    Option("kafka.bootstrap.servers", BOTH, "bootstrap_servers", p.addresses,
           "Brokers to start from, `host:port` with commas between them. Required.", ("kafka.metadata.broker.list",)),
    Option("kafka.client.id", BOTH, "client_id", p.text,
           "Name in the brokers' logs and quotas."),
    Option("kafka.group.id", BOTH, "group_id", p.text,
           "Consumer group of the source offsets: the sink commits them there (by default, the transactional.id), "
           "`startingOffsets=committed` starts there."),
    Option("kafka.isolation.level", SOURCE, "isolation", p.one_of("read_committed", "read_uncommitted"),
           "`read_uncommitted` shows records of open and aborted transactions too."),
    Option("kafka.fetch.max.bytes", SOURCE, "fetch_max_bytes", p.number(1),
           "At most so many bytes in one answer of a broker."),
    Option("kafka.max.partition.fetch.bytes", SOURCE, "max_partition_fetch_bytes", p.number(1),
           "At most so many bytes of one partition in an answer.", ("kafka.fetch.message.max.bytes",)),
    Option("kafka.fetch.max.wait.ms", SOURCE, "fetch_max_wait_ms", p.number(0),
           "How long a broker may wait for data.", ("kafka.fetch.wait.max.ms",)),
    Option("kafka.check.crcs", SOURCE, "check_crcs", p.flag,
           "Check every record batch's CRC."),
    Option("kafka.acks", SINK, "acks", p.only("all", "-1", why="a transaction needs every in-sync replica"),
           "Only `all`."),
    Option("kafka.enable.idempotence", SINK, "idempotence", p.only("true", why="no delivery guarantee does without it"),
           "Only `true`."),
    Option("kafka.compression.type", SINK, "compression", p.one_of("none", "gzip", "snappy", "lz4", "zstd"),
           "Compression of record batches.", ("kafka.compression.codec",)),
    Option("kafka.max.request.size", SINK, "max_request_size", p.number(1),
           "Largest record batch. A topic with a smaller max.message.bytes gets smaller ones, where that may be read.",
           ("kafka.message.max.bytes",)),
    Option("kafka.transaction.timeout.ms", SINK, "transaction_timeout_ms", p.number(1_000),
           "How long appends and commit may take before the broker aborts. Computing the batch does not count."),
    Option("kafka.delivery.timeout.ms", BOTH, "delivery_timeout_ms", p.number(1),
           "How long one request is retried in all.", ("kafka.message.timeout.ms",)),
    Option("kafka.request.timeout.ms", BOTH, "request_timeout_ms", p.number(10, 300_000),
           "How long one answer may take."),
    Option("kafka.socket.connection.setup.timeout.ms", BOTH, "connect_timeout_ms", p.number(1_000),
           "How long a connection may take to open."),
    Option("kafka.retry.backoff.ms", BOTH, "retry_backoff_ms", p.number(1, 300_000),
           "Pause before the first retry; it doubles."),
    Option("kafka.retry.backoff.max.ms", BOTH, "retry_backoff_max_ms", p.number(1, 300_000),
           "The longest pause between retries."),
    # -- security
    Option("kafka.security.protocol", BOTH, "security_protocol", p.one_of(*PROTOCOLS),
           f"One of {', '.join(PROTOCOLS)}."),
    Option("kafka.sasl.mechanism", BOTH, "sasl_mechanism", p.one_of(*MECHANISMS),
           f"One of {', '.join(MECHANISMS)}.", ("kafka.sasl.mechanisms",)),
    Option("kafka.sasl.jaas.config", BOTH, "sasl_jaas_config", Secret,
           "User and password as Java's PlainLoginModule or ScramLoginModule takes them, client id and secret as "
           "OAuthBearerLoginModule does."),
    Option("kafka.sasl.username", BOTH, "sasl_username", p.text,
           "The same without JAAS: the user."),
    Option("kafka.sasl.password", BOTH, "sasl_password", Secret,
           "The same without JAAS: the password."),
    Option("kafka.sasl.oauthbearer.token.endpoint.url", BOTH, "sasl_token_url", p.url,
           "OAUTHBEARER: where tokens are to be had by the client credentials grant (RFC 6749)."),
    Option("kafka.sasl.oauthbearer.client.credentials.client.id", BOTH, "sasl_client_id", p.text,
           "The client's id, if not in JAAS.", ("kafka.sasl.oauthbearer.client.id",)),
    Option("kafka.sasl.oauthbearer.client.credentials.client.secret", BOTH, "sasl_client_secret", Secret,
           "The client's secret, if not in JAAS.", ("kafka.sasl.oauthbearer.client.secret",)),
    Option("kafka.sasl.oauthbearer.scope", BOTH, "sasl_token_scope", p.text,
           "What to ask for, if the OAuth server wants to know."),
    Option("kafka.sasl.oauthbearer.header.urlencode", BOTH, "sasl_token_header_urlencode", p.flag,
           "Whether the OAuth server expects id and secret encoded, as RFC 6749 has it."),
    Option("kafka.sasl.oauthbearer.extensions", BOTH, "sasl_token_extensions", p.sasl_extensions,
           "librdkafka's name for JAAS's `extension_name=\"value\"`: `name=value` with commas between them."),
    Option("kafka.sasl.oauthbearer.method", BOTH, "sasl_token_method",
           p.only("oidc", why="tokens come from the token endpoint"),
           "librdkafka's; only `oidc`."),
    Option("kafka.sasl.login.callback.handler.class", BOTH, "sasl_login_handler",
           p.only(*_OAUTH_HANDLERS, why="Java classes are not loaded"),
           "Only Kafka's own for OAUTHBEARER, which does here what it does in Java."),
    Option("kafka.https.ca.location", BOTH, "https_ca_location", p.text,
           "Whom to trust at the token endpoint, in PEM; the system's authorities by default. Java has "
           "`ssl.truststore.location` inside JAAS."),
    Option("kafka.https.ca.pem", BOTH, "https_ca_pem", p.text,
           "The same as text."),
    Option("kafka.ssl.truststore.location", BOTH, "ssl_truststore_location", p.text,
           "Whom to trust: a file in PEM, PKCS12 or JKS."),
    Option("kafka.ssl.truststore.type", BOTH, "ssl_truststore_type", p.one_of(*_STORE_TYPES),
           "Recognised by its content when left out."),
    Option("kafka.ssl.truststore.password", BOTH, "ssl_truststore_password", Secret,
           "Of a PKCS12 or JKS truststore."),
    Option("kafka.ssl.truststore.certificates", BOTH, "ssl_truststore_certificates", p.text,
           "Whom to trust, as PEM text."),
    Option("kafka.ssl.keystore.location", BOTH, "ssl_keystore_location", p.text,
           "Who we are (mutual TLS): chain and key in one file, PEM, PKCS12 or JKS."),
    Option("kafka.ssl.keystore.type", BOTH, "ssl_keystore_type", p.one_of(*_STORE_TYPES),
           "Recognised by its content when left out."),
    Option("kafka.ssl.keystore.password", BOTH, "ssl_keystore_password", Secret,
           "Of a PKCS12 or JKS keystore."),
    Option("kafka.ssl.keystore.certificate.chain", BOTH, "ssl_keystore_certificate_chain", p.text,
           "Who we are, as PEM text."),
    Option("kafka.ssl.keystore.key", BOTH, "ssl_keystore_key", Secret,
           "The key to that, as PEM text."),
    Option("kafka.ssl.key.password", BOTH, "ssl_key_password", Secret,
           "Of an encrypted PEM key, or of the key in a JKS keystore where it is not the store's."),
    Option("kafka.ssl.endpoint.identification.algorithm", BOTH, "ssl_endpoint_identification_algorithm",
           p.one_of("https", "none", **{"": "none"}),
           "`https` checks the broker's host name, `none` (or empty) does not."),
    Option("kafka.ssl.ca.location", BOTH, "ssl_ca_location", p.text,
           "librdkafka's name for a truststore in PEM."),
    Option("kafka.ssl.ca.pem", BOTH, "ssl_ca_pem", p.text,
           "librdkafka's name for its text."),
    Option("kafka.ssl.certificate.location", BOTH, "ssl_certificate_location", p.text,
           "librdkafka's name for a certificate chain in PEM."),
    Option("kafka.ssl.certificate.pem", BOTH, "ssl_certificate_pem", p.text,
           "librdkafka's name for its text."),
    Option("kafka.ssl.key.location", BOTH, "ssl_key_location", p.text,
           "librdkafka's name for a key in PEM."),
    Option("kafka.ssl.key.pem", BOTH, "ssl_key_pem", Secret,
           "librdkafka's name for its text."),
)
# fmt: on

_BY_NAME: dict[str, Option] = {name.lower(): row for row in OPTIONS for name in (row.name, *row.also)}


def take(options: Mapping[str, object], side: Side) -> dict[str, object]:
    """Field -> parsed value, of every option in `options`; fields of options not given are absent.

    Raises ConfigurationError for an unknown option, naming the nearest; for one that belongs to the other side; for a
    Kafka property that cannot be honoured; for a value that does not parse; for two spellings of one option.
    A property that Kafka's own clients know and that means nothing here is said once in the log.
    """
    found: dict[str, object] = {}
    named: dict[str, str] = {}
    for given, value in options.items():
        if value is None or _from_spark(given):
            continue
        row = _row(given, side)
        if row is None:
            continue
        if (before := named.setdefault(row.field, given)) != given:
            raise ConfigurationError(given, f"given beside {before!r}, which is another name for it")
        try:
            found[row.field] = row.parse(_as_text(value))
        except ValueError as error:
            raise ConfigurationError(row.name, str(error)) from None
    return found


def _from_spark(name: str) -> bool:
    """Whether Spark adds this by itself: `load(path)`, `queryName(…)`, a table's properties."""
    lowered = name.lower()
    return lowered in ("path", "paths", "queryname", "owner", "provider") or lowered.startswith("option.")


def _row(given: str, side: Side) -> Option | None:
    """The row of an option, None for one that has no effect."""
    lowered = given.lower()
    row = _BY_NAME.get(lowered)
    if row is not None and row.side in (side, BOTH):
        return row
    if row is not None and row.name.startswith("kafka."):  # one property file serves both
        _say_without_effect(given, f"only the {row.side.value} takes it")
        return None
    if row is not None:
        raise ConfigurationError(row.name, f"is an option of the {row.side.value}, not of the {side.value}")
    if reason := REFUSED.get(lowered):
        raise ConfigurationError(given, reason)
    if reason := WITHOUT_EFFECT.get(lowered):
        _say_without_effect(given, reason)
        return None
    ours = {name.lower(): name for row in OPTIONS if row.side in (side, BOTH) for name in (row.name, *row.also)}
    near = difflib.get_close_matches(lowered, ours, n=1)
    raise ConfigurationError(given, "there is no such option", action=f"Did you mean {ours[near[0]]}?" if near else "")


@functools.cache
def _say_without_effect(given: str, reason: str) -> None:
    _log.warning("option %s has no effect: %s", given, reason)


def _as_text(value: object) -> str:
    """As Spark would have made it a text: options given to TransactionalWriter never met Spark."""
    if isinstance(value, Secret):
        return value.reveal()
    return str(value).lower() if isinstance(value, bool) else str(value)
