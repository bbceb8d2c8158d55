"""All options in one table, from which parsing, validation, suggestions and docs/options.md derive.

Names are those of the built-in Kafka source and sink and, after `kafka.`, of the Java clients. Where librdkafka uses
another name, both are known. Names are case-insensitive: Spark passes them to Python in lower case.
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
    """Where an option applies: `readStream`/`read`, `writeStream`/`write`/`TransactionalWriter`, or both."""

    SOURCE = "source"
    SINK = "sink"
    BOTH = "both"


class Option(NamedTuple):
    """A row of the table. `field` is the dataclass field that takes the parsed value and has its default."""

    name: str
    side: Side
    field: str
    parse: Callable[[str], object]
    help: str
    also: tuple[str, ...] = ()  # aliases


SOURCE, SINK, BOTH = Side.SOURCE, Side.SINK, Side.BOTH
_STORE_TYPES = ("PEM", "PKCS12", "JKS")
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_OAUTH_HANDLERS = tuple(f"{_OAUTH}.{place}OAuthBearerLoginCallbackHandler".lower() for place in ("", "secured."))

# A row is a line of facts and a line of help, which the formatter would split.
# fmt: off
OPTIONS: tuple[Option, ...] = (
    # -- what to read
    Option("subscribe", SOURCE, "subscribe", p.topics,
           "Comma-separated list of topics to read. Set one of subscribe, subscribePattern, assign."),
    Option("subscribePattern", SOURCE, "subscribe_pattern", p.pattern,
           "Regular expression for the topics to read; it must match the whole name."),
    Option("assign", SOURCE, "assign", p.assign,
           'Partitions to read: `{"orders": [0, 1]}`.'),
    Option("startingOffsets", SOURCE, "starting_offsets", p.starting_offsets,
           "Where a new query starts: `earliest`, `latest`, `committed` (the offsets committed by `kafka.group.id` or "
           "by the sink with `sink.kafka.transactional.id`; an error if there are none), `committed-or-earliest`, "
           '`committed-or-latest`, or `{"orders": {"0": 23, "1": -2}}` (-2 earliest, -1 latest). The default of a '
           "batch read is `earliest`."),
    Option("startingTimestamp", SOURCE, "starting_timestamp", p.number(0, p.LONG_MAX),
           "Start each partition at its first record with this timestamp or a later one (milliseconds since 1970)."),
    Option("startingOffsetsByTimestamp", SOURCE, "starting_timestamps", p.timestamps,
           'The same, with a timestamp for each partition: `{"orders": {"0": 1700000000000}}`.'),
    Option("startingOffsetsByTimestampStrategy", SOURCE, "starting_strategy", p.one_of("error", "latest"),
           "What to do if a partition has no such record: `error` (default) or `latest`."),
    Option("endingOffsets", SOURCE, "ending_offsets", p.ending_offsets,
           'Where a batch read ends: `latest` or `{"orders": {"0": 50, "1": -1}}` (-1 latest).'),
    Option("endingTimestamp", SOURCE, "ending_timestamp", p.number(0, p.LONG_MAX),
           "End a batch read before the first record with this timestamp or a later one."),
    Option("endingOffsetsByTimestamp", SOURCE, "ending_timestamps", p.timestamps,
           "The same, with a timestamp for each partition."),
    Option("includeHeaders", BOTH, "include_headers", p.flag,
           "Add the column `headers`. A sink always writes this column if it exists."),
    Option("failOnDataLoss", BOTH, "fail_on_data_loss", p.flag,
           "Fail if offsets that have not been read yet are gone from Kafka; with `false`, log a warning and "
           "continue. A sink with `false` does not commit the offsets of source topics that were deleted."),
    Option("sink.kafka.transactional.id", SOURCE, "sink", p.text,
           "With startingOffsets=committed: start where this `kafka-eos` sink's last transaction ended, according to "
           "its ledger, which never expires. If the sink is on another cluster, set `sink.kafka.bootstrap.servers` "
           "and its security options, too; if its ledger topic is not the default, set `sink.ledgerTopic`."),
    Option("commitOffsets", SOURCE, "commit_offsets", p.flag,
           "Commit the offsets of completed micro-batches to `kafka.group.id`, for lag tools, if the sink is not "
           "`kafka-eos`."),
    # -- how much at a time
    Option("maxOffsetsPerTrigger", SOURCE, "max_offsets_per_trigger", p.number(1, p.LONG_MAX),
           "Maximum number of offsets per micro-batch, divided among partitions in proportion to their backlog."),
    Option("maxBytesPerTrigger", SOURCE, "max_bytes_per_trigger", p.size_bytes,
           "Approximate maximum size of a micro-batch, for example `64m`, as stored by Kafka; estimated from samples. "
           "If maxOffsetsPerTrigger is set, too, the smaller limit applies."),
    Option("minOffsetsPerTrigger", SOURCE, "min_offsets_per_trigger", p.number(1, p.LONG_MAX),
           "Minimum number of offsets per micro-batch; wait for them until maxTriggerDelay expires."),
    Option("maxTriggerDelay", SOURCE, "max_trigger_delay_ms", p.duration_ms,
           "Maximum wait for minOffsetsPerTrigger, for example `15m`; a number without a unit is milliseconds."),
    Option("minPartitions", SOURCE, "min_partitions", p.number(1),
           "Minimum number of Spark tasks; Kafka partitions are split to reach it."),
    Option("maxRecordsPerPartition", SOURCE, "max_records_per_partition", p.number(1, p.LONG_MAX),
           "Maximum number of offsets per Spark task."),
    # -- what to write
    Option("topic", SINK, "topic", p.topic,
           "Topic for all rows; overrides the column `topic`."),
    Option("outputTopics", SINK, "output_topics", p.topics,
           "Comma-separated list of topics that may be written. A row for another topic fails the batch before "
           "anything is sent (KIP-609)."),
    Option("ledgerTopic", SINK, "ledger_topic", p.topic,
           "Compacted topic for the ledger, shared by all queries; default `kafka-eos-ledger`. The sink creates it if "
           "it does not exist."),
    Option("kafka.transactional.id", SINK, "transactional_id", p.text,
           "Stable name of the query's transactions. Required for exactly-once, except in a batch write, where the "
           "default is txnAppId or else a random name. A new producer with this name fences the previous one."),
    Option("deliveryGuarantee", SINK, "delivery_guarantee", p.one_of("exactly-once", "at-least-once"),
           "`at-least-once` writes idempotently, but without transactions and ledger."),
    Option("appendMode", SINK, "append_mode", p.one_of("auto", "driver", "executors"),
           "Which processes send to Kafka. `auto`: the executors on a cluster with classic Spark and no speculation, "
           "except for small batches (estimated at 1 MB or less); else the driver."),
    Option("stagingDir", SINK, "staging_dir", p.text,
           "Directory for encoded blocks until the driver sends them. Default: next to the checkpoint."),
    Option("maxTries", SINK, "max_tries", p.number(1, 100),
           "Maximum number of attempts for a batch, if its transaction is aborted."),
    Option("preflight", SINK, "preflight", p.flag,
           "Before the first batch, check for problems that would lose data or fail later. Errors stop the query; "
           "warnings are logged once."),
    Option("logLevel", SINK, "log_level", p.one_of("debug", "info", "warning", "error"),
           "Minimum level of the sink's log messages on the driver's stderr; `info` logs one line per batch. "
           "TransactionalWriter ignores it and uses your program's Python logging."),
    Option("partitioner", SINK, "partitioner", p.partitioner,
           "How a record's partition is chosen: by a hash of its key, `murmur2` as in the Java client or `consistent` "
           "(CRC-32) as in librdkafka, or `roundrobin`. The column `partition` takes precedence.",
           ("kafka.partitioner.class",)),
    Option("takeOverQuery", SINK, "take_over_query", p.text,
           "Id of the query that this new query continues after its checkpoint was lost, where the sink cannot verify "
           "this. You guarantee that the new query starts exactly where that one ended."),
    Option("resolve", SINK, "resolve", p.text,
           "Resolves a refusal: a value copied exactly from its error message. It applies to that refusal only."),
    Option("sourceClusters", SINK, "source_clusters", p.cluster_ids,
           "Id of the Kafka cluster that the query reads, if it is not the sink's. With several sources, a "
           "comma-separated list in the order of the sources. `cluster_id(options)` returns a cluster's id."),
    Option("txnAppId", SINK, "txn_app_id", p.text,
           "Together with txnVersion, makes a batch write idempotent: running it again writes nothing twice."),
    Option("txnVersion", SINK, "txn_version", p.number(0, p.LONG_MAX),
           "Version of this batch write; must increase with each write of the same txnAppId."),
    Option("checkpointLocation", SINK, "checkpoint_location", p.text,
           "The query's checkpoint, from which the sink reads the source offsets of each batch."),
    # -- Kafka
    Option("kafka.bootstrap.servers", BOTH, "bootstrap_servers", p.addresses,
           "Comma-separated list of brokers for the initial connection, `host:port`. Required.",
           ("kafka.metadata.broker.list",)),
    Option("kafka.client.id", BOTH, "client_id", p.text,
           "Client name in the brokers' logs and quotas."),
    Option("kafka.group.id", BOTH, "group_id", p.text,
           "Consumer group of the source offsets. The sink commits them to this group (default: the transactional.id); "
           "`startingOffsets=committed` starts from its offsets."),
    Option("kafka.isolation.level", SOURCE, "isolation", p.one_of("read_committed", "read_uncommitted"),
           "`read_uncommitted` includes records of open and aborted transactions."),
    Option("kafka.fetch.max.bytes", SOURCE, "fetch_max_bytes", p.number(1),
           "Maximum size of a fetch response, in bytes."),
    Option("kafka.max.partition.fetch.bytes", SOURCE, "max_partition_fetch_bytes", p.number(1),
           "Maximum size per partition of a fetch response, in bytes.", ("kafka.fetch.message.max.bytes",)),
    Option("kafka.fetch.max.wait.ms", SOURCE, "fetch_max_wait_ms", p.number(0),
           "Maximum time that a broker waits for data before it answers a fetch.", ("kafka.fetch.wait.max.ms",)),
    Option("kafka.check.crcs", SOURCE, "check_crcs", p.flag,
           "Verify the CRC of every record batch."),
    Option("kafka.acks", SINK, "acks", p.only("all", "-1", why="a transaction needs all in-sync replicas"),
           "Only `all`."),
    Option("kafka.enable.idempotence", SINK, "idempotence", p.only("true", why="both delivery guarantees need it"),
           "Only `true`."),
    Option("kafka.compression.type", SINK, "compression", p.one_of("none", "gzip", "snappy", "lz4", "zstd"),
           "Compression codec of record batches.", ("kafka.compression.codec",)),
    Option("kafka.max.request.size", SINK, "max_request_size", p.number(1),
           "Maximum size of a record batch, in bytes. For a topic with a smaller max.message.bytes, that limit is "
           "used if the principal may describe the topic's configuration.",
           ("kafka.message.max.bytes",)),
    Option("kafka.transaction.timeout.ms", SINK, "transaction_timeout_ms", p.number(1_000),
           "Maximum time for appends and commit before the broker aborts the transaction. The time spent computing the "
           "batch does not count."),
    Option("kafka.delivery.timeout.ms", BOTH, "delivery_timeout_ms", p.number(1),
           "Maximum time for a request including its retries.", ("kafka.message.timeout.ms",)),
    Option("kafka.request.timeout.ms", BOTH, "request_timeout_ms", p.number(10, 300_000),
           "Maximum time to wait for a response."),
    Option("kafka.socket.connection.setup.timeout.ms", BOTH, "connect_timeout_ms", p.number(1_000),
           "Maximum time to open a connection."),
    Option("kafka.retry.backoff.ms", BOTH, "retry_backoff_ms", p.number(1, 300_000),
           "Backoff before the first retry; it doubles with each retry."),
    Option("kafka.retry.backoff.max.ms", BOTH, "retry_backoff_max_ms", p.number(1, 300_000),
           "Maximum backoff between retries."),
    # -- security
    Option("kafka.security.protocol", BOTH, "security_protocol", p.one_of(*PROTOCOLS),
           f"One of {', '.join(PROTOCOLS)}."),
    Option("kafka.sasl.mechanism", BOTH, "sasl_mechanism", p.one_of(*MECHANISMS),
           f"One of {', '.join(MECHANISMS)}.", ("kafka.sasl.mechanisms",)),
    Option("kafka.sasl.jaas.config", BOTH, "sasl_jaas_config", Secret,
           "Credentials in Java's format: username and password of PlainLoginModule or ScramLoginModule, client id and "
           "secret of OAuthBearerLoginModule."),
    Option("kafka.sasl.username", BOTH, "sasl_username", p.text,
           "The username, if not in JAAS."),
    Option("kafka.sasl.password", BOTH, "sasl_password", Secret,
           "The password, if not in JAAS."),
    Option("kafka.sasl.oauthbearer.token.endpoint.url", BOTH, "sasl_token_url", p.url,
           "OAUTHBEARER: URL of the OAuth server's token endpoint (client credentials grant, RFC 6749)."),
    Option("kafka.sasl.oauthbearer.client.credentials.client.id", BOTH, "sasl_client_id", p.text,
           "The client id, if not in JAAS.", ("kafka.sasl.oauthbearer.client.id",)),
    Option("kafka.sasl.oauthbearer.client.credentials.client.secret", BOTH, "sasl_client_secret", Secret,
           "The client secret, if not in JAAS.", ("kafka.sasl.oauthbearer.client.secret",)),
    Option("kafka.sasl.oauthbearer.scope", BOTH, "sasl_token_scope", p.text,
           "The scope of the token request, if the OAuth server requires one."),
    Option("kafka.sasl.oauthbearer.header.urlencode", BOTH, "sasl_token_header_urlencode", p.flag,
           "Whether to URL-encode client id and secret in the Authorization header, as RFC 6749 requires."),
    Option("kafka.sasl.oauthbearer.extensions", BOTH, "sasl_token_extensions", p.sasl_extensions,
           'SASL extensions, `extension_name="value"` in JAAS: comma-separated `name=value` pairs.'),
    Option("kafka.sasl.oauthbearer.method", BOTH, "sasl_token_method",
           p.only("oidc", why="tokens are requested from the token endpoint"),
           "Only `oidc`."),
    Option("kafka.sasl.login.callback.handler.class", BOTH, "sasl_login_handler",
           p.only(*_OAUTH_HANDLERS, why="Java classes are not loaded"),
           "Only Kafka's own handler for OAUTHBEARER, `OAuthBearerLoginCallbackHandler`."),
    Option("kafka.https.ca.location", BOTH, "https_ca_location", p.text,
           "CA certificates for the token endpoint, a PEM file; default: the system's CAs. Java uses "
           "`ssl.truststore.location` inside JAAS."),
    Option("kafka.https.ca.pem", BOTH, "https_ca_pem", p.text,
           "The same, as PEM text."),
    Option("kafka.ssl.truststore.location", BOTH, "ssl_truststore_location", p.text,
           "Truststore with the CA certificates: a PEM, PKCS12 or JKS file."),
    Option("kafka.ssl.truststore.type", BOTH, "ssl_truststore_type", p.one_of(*_STORE_TYPES),
           "Recognised by its content when left out."),
    Option("kafka.ssl.truststore.password", BOTH, "ssl_truststore_password", Secret,
           "Password of a PKCS12 or JKS truststore."),
    Option("kafka.ssl.truststore.certificates", BOTH, "ssl_truststore_certificates", p.text,
           "CA certificates, as PEM text."),
    Option("kafka.ssl.keystore.location", BOTH, "ssl_keystore_location", p.text,
           "Keystore with the client's certificate chain and key (mutual TLS): a PEM, PKCS12 or JKS file."),
    Option("kafka.ssl.keystore.type", BOTH, "ssl_keystore_type", p.one_of(*_STORE_TYPES),
           "Recognised by its content when left out."),
    Option("kafka.ssl.keystore.password", BOTH, "ssl_keystore_password", Secret,
           "Password of a PKCS12 or JKS keystore."),
    Option("kafka.ssl.keystore.certificate.chain", BOTH, "ssl_keystore_certificate_chain", p.text,
           "The client's certificate chain, as PEM text."),
    Option("kafka.ssl.keystore.key", BOTH, "ssl_keystore_key", Secret,
           "The client's private key, as PEM text."),
    Option("kafka.ssl.key.password", BOTH, "ssl_key_password", Secret,
           "Password of an encrypted PEM key, or of the key in a JKS keystore if it differs from the keystore's."),
    Option("kafka.ssl.endpoint.identification.algorithm", BOTH, "ssl_endpoint_identification_algorithm",
           p.one_of("https", "none", **{"": "none"}),
           "`https` verifies the broker's host name; `none` (or empty) does not."),
    Option("kafka.ssl.ca.location", BOTH, "ssl_ca_location", p.text,
           "A PEM truststore (librdkafka's name)."),
    Option("kafka.ssl.ca.pem", BOTH, "ssl_ca_pem", p.text,
           "CA certificates, as PEM text (librdkafka's name)."),
    Option("kafka.ssl.certificate.location", BOTH, "ssl_certificate_location", p.text,
           "A PEM file with the client's certificate chain (librdkafka's name)."),
    Option("kafka.ssl.certificate.pem", BOTH, "ssl_certificate_pem", p.text,
           "The client's certificate chain, as PEM text (librdkafka's name)."),
    Option("kafka.ssl.key.location", BOTH, "ssl_key_location", p.text,
           "A PEM file with the client's private key (librdkafka's name)."),
    Option("kafka.ssl.key.pem", BOTH, "ssl_key_pem", Secret,
           "The client's private key, as PEM text (librdkafka's name)."),
)
# fmt: on

_BY_NAME: dict[str, Option] = {name.lower(): row for row in OPTIONS for name in (row.name, *row.also)}


def take(options: Mapping[str, object], side: Side) -> dict[str, object]:
    """Field -> parsed value of every option in `options`; options that are not set are absent.

    Raises ConfigurationError for an unknown option (with the closest name), an option of the other side, a rejected
    Kafka property, an invalid value, and for two names of the same option. A property of Kafka's clients that has no
    effect here is logged once.
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
            raise ConfigurationError(given, f"cannot be combined with {before!r}, which is another name for it")
        try:
            found[row.field] = row.parse(_as_text(value))
        except ValueError as error:
            raise ConfigurationError(row.name, str(error)) from None
    return found


def _from_spark(name: str) -> bool:
    """Whether Spark adds this option itself: `load(path)`, `queryName(…)`, a table's properties."""
    lowered = name.lower()
    return lowered in ("path", "paths", "queryname", "owner", "provider") or lowered.startswith("option.")


def _row(given: str, side: Side) -> Option | None:
    """The row of an option; None if it has no effect."""
    lowered = given.lower()
    row = _BY_NAME.get(lowered)
    if row is not None and row.side in (side, BOTH):
        return row
    if row is not None and row.name.startswith("kafka."):  # one property file works for both
        _say_without_effect(given, f"it applies to the {row.side.value} only")
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
    raise ConfigurationError(given, "unknown option", action=f"Did you mean {ours[near[0]]}?" if near else "")


@functools.cache
def _say_without_effect(given: str, reason: str) -> None:
    _log.warning("option %s has no effect: %s", given, reason)


def _as_text(value: object) -> str:
    """The value as Spark would have converted it: options of TransactionalWriter do not pass through Spark."""
    if isinstance(value, Secret):
        return value.reveal()
    return str(value).lower() if isinstance(value, bool) else str(value)
