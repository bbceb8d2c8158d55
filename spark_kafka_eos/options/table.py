"""All options in one table, from which parsing, validation, suggestions and docs/options.md derive.

Names are those of the built-in Kafka source and sink and, after `kafka.`, of the Java clients. Where librdkafka uses
another name, both are known. Names are case-insensitive: Spark passes them to Python in lower case.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.extensions import sasl_extensions
from spark_kafka_eos.kafka.auth.secret import Secret, keys
from spark_kafka_eos.kafka.auth.security import MECHANISMS, PROTOCOLS
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.options import parsers as p
from spark_kafka_eos.options.kafka_properties import (
    HOLDS_ANYWAY,
    OF_LIBRDKAFKA,
    REFUSED,
    WITHOUT_EFFECT,
    without_effect,
)

_log = logger(__name__)


class Side(Enum):
    """Where an option applies: `readStream`/`read`, `writeStream`/`write`/`TransactionalWriter`, or both."""

    SOURCE = "source"
    SINK = "sink"
    BOTH = "both"


class Option(NamedTuple):
    """A row of the table."""

    name: str
    side: Side
    parse: Callable[[str], object]
    help: str
    also: tuple[str, ...] = ()  # aliases

    @property
    def field(self) -> str:
        """The dataclass field that takes the parsed value and has its default."""
        return field_of(self.name)


def field_of(name: str) -> str:
    """An option's name inside this package: in snake case, without `kafka.`; units are the option's."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0]}", name.removeprefix("kafka.").replace(".", "_")).lower()


SOURCE, SINK, BOTH = Side.SOURCE, Side.SINK, Side.BOTH
_STORE_TYPES = ("PEM", "PKCS12", "JKS")
# With the prefix that the library has on Databricks' runtimes.
_OAUTH_HANDLERS = tuple(
    f"{shaded}org.apache.kafka.common.security.oauthbearer.{place}OAuthBearerLoginCallbackHandler".lower()
    for shaded in ("", "kafkashaded.")
    for place in ("", "secured.")
)
_STRIMZI_HANDLER = "io.strimzi.kafka.oauth.client.jaasclientoauthlogincallbackhandler"
_IAM_HANDLERS, _IAM_TOKEN_HANDLERS = (
    tuple(f"{shaded}software.amazon.msk.auth.iam.{handler}".lower() for shaded in ("", "shadedmskiam."))
    for handler in ("IAMClientCallbackHandler", "IAMOAuthBearerLoginCallbackHandler")
)

# A row is a line of facts and a line of help, which the formatter would split.
# fmt: off
OPTIONS: tuple[Option, ...] = (
    # -- what to read
    Option("subscribe", SOURCE, p.topics,
           "Comma-separated list of topics to read. Set one of subscribe, subscribePattern, assign."),
    Option("subscribePattern", SOURCE, p.pattern,
           "Java regular expression for the topics to read: those in whose name it is found. `^orders$` is one topic; "
           "`orders` also finds `orders-old`."),
    Option("assign", SOURCE, p.assign,
           'Partitions to read: `{"orders": [0, 1]}`.'),
    Option("startingOffsets", SOURCE, p.starting_offsets,
           "Where a new query starts: `earliest`, `latest`, `latest-100` (100 offsets before the latest of each "
           "partition; markers of transactions take offsets, too), `committed` (the offsets committed by "
           "`kafka.group.id` or by the sink with `sink.kafka.transactional.id`; an error if there are none), "
           '`committed-or-earliest`, `committed-or-latest`, or `{"orders": {"0": 23, "1": -2}}` (-2 earliest, -1 '
           "latest). The default of a batch read is `earliest`."),
    Option("startingOffsetsStrategy", SOURCE, p.one_of("error", "earliest", "latest"),
           "Where partitions start that `startingOffsets` in JSON does not list: `error` refuses to start."),
    Option("startingTimestamp", SOURCE, p.number(0, p.LONG_MAX),
           "Start each partition at the first record that the query sees with this timestamp or a later one "
           "(milliseconds since 1970). Markers of transactions are no records."),
    Option("startingOffsetsByTimestamp", SOURCE, p.timestamps,
           'The same, with a timestamp for each partition: `{"orders": {"0": 1700000000000}}`.'),
    Option("startingOffsetsByTimestampStrategy", SOURCE, p.one_of("error", "latest"),
           "What to do if a partition has no such record: `error` (default) or `latest`."),
    Option("endingOffsets", SOURCE, p.ending_offsets,
           'Where a batch read ends: `latest` or `{"orders": {"0": 50, "1": -1}}` (-1 latest). A stream does not read '
           "past its end, and stops there with `trigger(availableNow=True)`; it cannot end at `latest`."),
    Option("endingTimestamp", SOURCE, p.number(0, p.LONG_MAX),
           "End a batch read, or a stream, before each partition's first record with this timestamp or a later one; if "
           "there is none, at the latest offset."),
    Option("endingOffsetsByTimestamp", SOURCE, p.timestamps,
           "The same, with a timestamp for each partition."),
    Option("includeHeaders", BOTH, p.flag,
           "Add the column `headers`. A sink always writes this column if it exists."),
    Option("rows", SOURCE, p.one_of("records", "offsetRanges", "realTime"),
           "`offsetRanges` returns a row for each offset range that a task would read, instead of its records; "
           "`realTime` none, but a micro-batch after the other. [`arrow_stream`](arrow.md) sets it."),
    Option("failOnDataLoss", BOTH, p.flag,
           "Fail if offsets that have not been read yet are gone from Kafka; with `false`, log a warning and "
           "continue. A sink with `false` does not commit the offsets of source topics that were deleted."),
    Option("removedTopics", SOURCE, p.topics,
           "Go on without the unread records of these topics of the checkpoint, separated by commas: the query "
           "[no longer reads them](source.md#read-other-topics-than-before), or they were deleted."),
    Option("includeLedgerTopics", SOURCE, p.flag,
           "Read [ledger topics](source.md#ledger-topics), too: `subscribePattern` leaves them out, and they are "
           "refused in `subscribe` and `assign`."),
    Option("sink.kafka.transactional.id", SOURCE, p.text,
           "With startingOffsets=committed: start where this `kafka-eos` sink's last transaction ended, according to "
           "its ledger, which never expires. A stream whose checkpoint is "
           "[an old copy](source.md#an-old-copy-of-a-checkpoint) plans no batch across that end. If the sink is on "
           "another cluster, set `sink.kafka.bootstrap.servers` and its security options, too; if its ledger topic is "
           "not the default, set `sink.ledgerTopic`, and with `ledgerKey`, `sink.ledgerKey`."),
    Option("commitOffsets", SOURCE, p.flag,
           "Commit the offsets of completed micro-batches to `kafka.group.id`, for lag tools, if the sink is not "
           "`kafka-eos`."),
    Option("metricsPort", SOURCE, p.number(0, 65_535),
           "Of [`ProgressListener`](monitoring.md#prometheus), which takes the source's options: serve metrics for "
           "Prometheus on this port of the driver; 0 is a free port, which is logged. Requires the extra `metrics`. "
           "Has no effect on the source itself."),
    Option("metricsHost", SOURCE, p.text,
           "The address to serve metrics on; `0.0.0.0` is every one of the driver's. There is no login."),
    # -- how much at a time
    Option("maxOffsetsPerTrigger", SOURCE, p.number(1, p.LONG_MAX),
           "Maximum number of offsets per micro-batch, divided among partitions in proportion to their backlog."),
    Option("maxBytesPerTrigger", SOURCE, p.size_bytes,
           "Approximate maximum size of a micro-batch, for example `64m`, as stored by Kafka; estimated from samples. "
           "If maxOffsetsPerTrigger is set, too, the smaller limit applies."),
    Option("minOffsetsPerTrigger", SOURCE, p.number(1, p.LONG_MAX),
           "Minimum number of offsets per micro-batch; wait for them until maxTriggerDelay expires."),
    Option("maxTriggerDelay", SOURCE, p.duration_ms,
           "Maximum wait for minOffsetsPerTrigger, for example `15m`; a number without a unit is milliseconds."),
    Option("minPartitions", SOURCE, p.number(1),
           "Minimum number of Spark tasks; Kafka partitions are split to reach it."),
    Option("maxRecordsPerPartition", SOURCE, p.number(1, p.LONG_MAX),
           "Maximum number of offsets per Spark task."),
    Option("maxBytesPerPartition", SOURCE, p.size_bytes,
           "Approximate maximum size of what a Spark task reads, as stored by Kafka; estimated from samples. Has no "
           "effect with maxRecordsPerPartition."),
    # -- what to write
    Option("topic", SINK, p.topic,
           "Topic for all rows; overrides the column `topic`."),
    Option("outputTopics", SINK, p.output_topics,
           "Comma-separated list of topics that may be written, whole or some "
           "[partitions](foreachbatch.md#partitions-that-are-known), both ends included: `orders:0-15,alerts`. A row "
           "for another topic or partition fails the batch before anything is sent (KIP-609), or with deadLetterTopic "
           "becomes a dead letter. [Real time](real-time.md#use-it-when) needs this option or `topic`."),
    Option("deadLetterTopic", SINK, p.topic,
           "Topic for [dead letters](dead-letters.md): rows with an `error`, and rows that cannot be written. They are "
           "written in the batch's own transaction. Without it, such a row fails the batch."),
    Option("maxDeadLetters", SINK, p.limit,
           "Maximum number of dead letters in a batch: `1000`, `1%` of its records (rounded up), or `1000,1%`, where "
           "both hold. A batch with more fails, and nothing of it is visible. Default: no limit."),
    Option("ledgerTopic", SINK, p.topic,
           "Compacted topic for the ledger, shared by all queries; default `kafka-eos-ledger`. The sink creates it if "
           "it does not exist."),
    Option("ledgerKey", SINK, keys,
           "A key with which the sink signs its ledger entries, so that an entry that somebody else wrote never "
           "counts. At least 16 characters, as text, `env:NAME` of an environment variable of the driver, or "
           "`file:PATH` on the driver. To replace a key, set the new and the old one, separated by a comma. Spark "
           "shows text in query plans, unless `spark.redaction.regex` matches it."),
    Option("kafka.transactional.id", SINK, p.text,
           "Stable name of the query's transactions. Required for exactly-once, except in a batch write, where the "
           "default is txnAppId or else a random name. A new producer with this name fences the previous one."),
    Option("deliveryGuarantee", SINK, p.one_of("exactly-once", "at-least-once"),
           "`at-least-once` writes idempotently, but without transactions and ledger."),
    Option("appendMode", SINK, p.one_of("auto", "driver", "executors"),
           "Which processes send to Kafka. `auto`: the executors on a cluster with classic Spark and no speculation, "
           "except for small batches (estimated at 1 MB or less); else the driver."),
    Option("stagingDir", SINK, p.location,
           "Directory for encoded blocks until the driver sends them. Default: next to the checkpoint; for a batch "
           "write, [the driver's temporary directory](deploying.md#checkpoint-and-staging)."),
    Option("maxAttempts", SINK, p.number(1, 100),
           "Maximum number of attempts for a batch, if its transaction is aborted."),
    Option("preflight", SINK, p.flag,
           "Before the first batch, check for problems that would lose data or fail later. Errors stop the query; "
           "warnings are logged once."),
    Option("logLevel", SINK, p.one_of("debug", "info", "warning", "error"),
           "Minimum level of the sink's log messages on the driver's stderr; `info` logs one line per batch. "
           "TransactionalWriter ignores it and uses your program's Python logging."),
    Option("logFormat", SINK, p.one_of("text", "json"),
           "`json` logs the line per batch as [a JSON object](tracing.md#logs-as-json), also for a batch that was "
           "skipped or that failed."),
    Option("traceDir", BOTH, p.text,
           "Directory on the driver's disk for [the timelines of the last batches](tracing.md), 8 MB per query; "
           "`kafka-eos trace` shows them. Of a source, it is for `ProgressListener`, which adds Spark's phases."),
    Option("openTelemetry", SINK, p.flag,
           "Export [a span per batch](tracing.md#opentelemetry) through the tracer provider of the driver's process. "
           "Requires the extra `otel`."),
    Option("openTelemetryLinks", SINK, p.number(0, 128),
           "With openTelemetry: how many headers `traceparent` the span of a batch links to at most. They are sampled "
           "from the column `headers`; default 0."),
    Option("partitioner", SINK, p.partitioner,
           "How a record's partition is chosen: by a hash of its key, `murmur2` as in the Java client or `consistent` "
           "(CRC-32) as in librdkafka, or `roundrobin`. The column `partition` takes precedence.",
           ("kafka.partitioner.class",)),
    Option("allowLoop", SINK, p.flag,
           "Let the query [read a topic that it writes](sink.md#a-query-that-reads-what-it-writes): its output, its "
           "dead letters, a ledger topic."),
    Option("takeOverQuery", SINK, p.text,
           "Id of the query that this new query continues after its checkpoint was lost, where the sink cannot verify "
           "this. You guarantee that the new query starts exactly where that one ended."),
    Option("resolve", SINK, p.text,
           "Resolves a refusal: a value copied exactly from its error message. It applies to that refusal only "
           "(one that skips an incomplete batch, also to the batch that follows it). If another refusal follows, its "
           "value has both words, separated by a semicolon."),
    Option("sourceClusters", SINK, p.cluster_ids,
           "Id of the source's Kafka cluster, if it is not the sink's. Not needed for `kafka-eos` sources, which "
           "record it. With several sources, a comma-separated list in the order of the sources. "
           "`cluster_id(options)` returns a cluster's id."),
    Option("txnAppId", SINK, p.text,
           "Together with txnVersion, makes a batch write idempotent: running it again writes nothing twice."),
    Option("txnVersion", SINK, p.number(0, p.LONG_MAX),
           "Version of this batch write; must increase with each write of the same txnAppId."),
    Option("checkpointLocation", SINK, p.location,
           "The query's checkpoint, from which the sink reads the source offsets of each batch."),
    # -- Kafka
    Option("kafka.bootstrap.servers", BOTH, p.addresses,
           "Comma-separated list of brokers for the initial connection, `host:port`. Required.",
           ("kafka.metadata.broker.list",)),
    Option("kafka.client.id", BOTH, p.text,
           "Client name in the brokers' logs and quotas."),
    Option("kafka.group.id", BOTH, p.text,
           "Consumer group of the source offsets. The sink commits them to this group (default: the transactional.id); "
           "`startingOffsets=committed` starts from its offsets."),
    Option("kafka.isolation.level", SOURCE, p.one_of("read_committed", "read_uncommitted"),
           "`read_uncommitted` includes records of open and aborted transactions."),
    Option("kafka.fetch.max.bytes", SOURCE, p.number(1),
           "Maximum size of a fetch response, in bytes."),
    Option("kafka.max.partition.fetch.bytes", SOURCE, p.number(1),
           "Maximum size per partition of a fetch response, in bytes.", ("kafka.fetch.message.max.bytes",)),
    Option("kafka.fetch.max.wait.ms", SOURCE, p.number(0),
           "Maximum time that a broker waits for data before it answers a fetch.", ("kafka.fetch.wait.max.ms",)),
    Option("kafka.client.rack", SOURCE, p.rack,
           "Rack of the executors, as in `broker.rack`: records are fetched from a replica there, if the brokers' "
           "`replica.selector.class` selects one (KIP-392). `env:NAME` takes it from each executor's environment "
           "variable NAME."),
    Option("kafka.check.crcs", SOURCE, p.flag,
           "Verify the CRC of every record batch."),
    Option("kafka.acks", SINK, p.only("all", "-1", why="a transaction needs all in-sync replicas"),
           "Only `all`.", ("kafka.request.required.acks",)),
    Option("kafka.enable.idempotence", SINK, p.one_of("required", "requested", "off", true="required", false="off"),
           "`required` (or `true`); with `deliveryGuarantee=at-least-once` also "
           "[`requested` or `off`](sink.md#at-least-once) (or `false`)."),
    Option("kafka.retries", SINK, p.number(1),
           "At least 1, as idempotence needs (KIP-98). Without effect: `kafka.delivery.timeout.ms` limits retries.",
           ("kafka.message.send.max.retries",)),
    Option("kafka.max.in.flight.requests.per.connection", SINK, p.number(1, 5),
           "1 to 5, as brokers remember five requests of a producer. Without effect: sequence numbers keep the order.",
           ("kafka.max.in.flight",)),
    Option("kafka.compression.type", SINK, p.one_of("none", "gzip", "snappy", "lz4", "zstd"),
           "Compression codec of record batches.", ("kafka.compression.codec",)),
    Option("kafka.max.request.size", SINK, p.number(1),
           "Maximum size of a record batch, in bytes. For a topic with a smaller max.message.bytes, that limit is "
           "used if the principal may describe the topic's configuration.",
           ("kafka.message.max.bytes",)),
    Option("kafka.transaction.timeout.ms", SINK, p.number(1_000),
           "Maximum time for appends and commit before the broker aborts the transaction. The time spent computing the "
           "batch counts only where executors append to brokers with the protocol before KIP-890."),
    Option("twoPhaseCommit", SINK, p.flag,
           "With a [table that takes part](tables.md#without-a-timeout): transactions have no timeout (KIP-939), so a "
           "prepared batch is never aborted by the brokers. Kafka 4.4 has it as an unstable feature; default `false`."),
    Option("kafka.delivery.timeout.ms", BOTH, p.number(1),
           "Maximum time for a request including its retries.", ("kafka.message.timeout.ms",)),
    Option("kafka.request.timeout.ms", BOTH, p.number(10, 300_000),
           "Maximum time to wait for a complete response."),
    Option("kafka.socket.connection.setup.timeout.ms", BOTH, p.number(1_000),
           "Maximum time to open a connection. If any of many brokers will do, each has a share of what time is left "
           "to accept it, but at least a second."),
    Option("kafka.retry.backoff.ms", BOTH, p.number(1, 300_000),
           "Backoff before the first retry; it doubles with each retry."),
    Option("kafka.retry.backoff.max.ms", BOTH, p.number(1, 300_000),
           "Maximum backoff between retries."),
    # -- security
    Option("kafka.security.protocol", BOTH, p.one_of(*PROTOCOLS),
           f"One of {', '.join(PROTOCOLS)}."),
    Option("kafka.sasl.mechanism", BOTH, p.one_of(*MECHANISMS),
           f"One of {', '.join(MECHANISMS)}.", ("kafka.sasl.mechanisms",)),
    Option("kafka.sasl.jaas.config", BOTH, p.password,
           "Credentials in Java's format: username and password of PlainLoginModule or ScramLoginModule, client id and "
           "secret of OAuthBearerLoginModule, keytab or ticket cache of Krb5LoginModule, profile or role of "
           "IAMLoginModule."),
    Option("kafka.sasl.username", BOTH, p.text,
           "The username, if not in JAAS."),
    Option("kafka.sasl.password", BOTH, Secret,
           "The password, if not in JAAS."),
    Option("kafka.sasl.oauthbearer.token.endpoint.url", BOTH, p.url,
           "OAUTHBEARER: URL of the OAuth server's token endpoint (client credentials grant, RFC 6749)."),
    Option("kafka.sasl.oauthbearer.allowed.urls", BOTH, p.urls,
           "Comma-separated list of token endpoints that may be used although their URL is http://, which sends the "
           "client secret and the token unencrypted. In Java a system property, `org.apache.kafka.sasl.oauthbearer."
           "allowed.urls`."),
    Option("kafka.sasl.oauthbearer.client.credentials.client.id", BOTH, p.text,
           "The client id, if not in JAAS.", ("kafka.sasl.oauthbearer.client.id",)),
    Option("kafka.sasl.oauthbearer.client.credentials.client.secret", BOTH, p.password,
           "The client secret, if not in JAAS.", ("kafka.sasl.oauthbearer.client.secret",)),
    Option("kafka.sasl.oauthbearer.scope", BOTH, p.text,
           "The scope of the token request, if the OAuth server requires one."),
    Option("kafka.sasl.oauthbearer.header.urlencode", BOTH, p.flag,
           "Whether to URL-encode client id and secret in the Authorization header, as RFC 6749 requires."),
    Option("kafka.sasl.oauthbearer.extensions", BOTH, sasl_extensions,
           'SASL extensions, `extension_name="value"` in JAAS: comma-separated `name=value` pairs.'),
    Option("kafka.sasl.oauthbearer.token.provider", BOTH, p.function,
           "OAUTHBEARER: [function that returns a token](security.md#tokens-from-your-own-function), as "
           "`module:function`, instead of a token endpoint."),
    Option("kafka.sasl.oauthbearer.config", BOTH, Secret,
           "Text that this function is called with. Spark shows it in plans: put no secret into it."),
    Option("kafka.sasl.oauthbearer.method", BOTH,
           p.only("oidc", why="tokens are requested from the token endpoint"),
           "Only `oidc`."),
    Option("kafka.sasl.login.callback.handler.class", BOTH,
           p.only(*_OAUTH_HANDLERS, *_IAM_TOKEN_HANDLERS, _STRIMZI_HANDLER, why="Java classes are not loaded"),
           "Only Kafka's own handler for OAUTHBEARER, `OAuthBearerLoginCallbackHandler`, that of AWS MSK IAM, "
           "`IAMOAuthBearerLoginCallbackHandler`, and Strimzi's, `JaasClientOauthLoginCallbackHandler`."),
    Option("kafka.sasl.client.callback.handler.class", BOTH,
           p.only(*_IAM_HANDLERS, why="Java classes are not loaded"),
           "Only the handler of AWS MSK IAM, `IAMClientCallbackHandler`."),
    Option("kafka.sasl.kerberos.service.name", BOTH, p.text,
           "GSSAPI: the brokers' service name, usually `kafka`."),
    Option("kafka.sasl.kerberos.principal", BOTH, p.text,
           "GSSAPI: the client's principal, if not in JAAS (librdkafka's name)."),
    Option("kafka.sasl.kerberos.keytab", BOTH, p.text,
           "GSSAPI: the client's keytab, if not in JAAS (librdkafka's name). The file must exist on the driver and the "
           "executors."),
    Option("kafka.https.ca.location", BOTH, p.text,
           "CA certificates for the token endpoint, a PEM file; default: the system's CAs. Java uses "
           "`ssl.truststore.location` inside JAAS."),
    Option("kafka.https.ca.pem", BOTH, p.text,
           "The same, as PEM text."),
    Option("kafka.ssl.truststore.location", BOTH, p.text,
           "Truststore with the CA certificates: a PEM, PKCS12 or JKS file."),
    Option("kafka.ssl.truststore.type", BOTH, p.one_of(*_STORE_TYPES),
           "Recognised by its content when left out."),
    Option("kafka.ssl.truststore.password", BOTH, p.password,
           "Password of a PKCS12 or JKS truststore."),
    Option("kafka.ssl.truststore.certificates", BOTH, p.text,
           "CA certificates, as PEM text."),
    Option("kafka.ssl.keystore.location", BOTH, p.text,
           "Keystore with the client's certificate chain and key (mutual TLS): a PEM, PKCS12 or JKS file."),
    Option("kafka.ssl.keystore.type", BOTH, p.one_of(*_STORE_TYPES),
           "Recognised by its content when left out."),
    Option("kafka.ssl.keystore.password", BOTH, p.password,
           "Password of a PKCS12 or JKS keystore."),
    Option("kafka.ssl.keystore.certificate.chain", BOTH, p.text,
           "The client's certificate chain, as PEM text."),
    Option("kafka.ssl.keystore.key", BOTH, p.password,
           "The client's private key, as PEM text."),
    Option("kafka.ssl.key.password", BOTH, p.password,
           "Password of an encrypted PEM key, or of the key in a JKS keystore if it differs from the keystore's."),
    Option("kafka.ssl.endpoint.identification.algorithm", BOTH,
           p.one_of("https", "none", **{"": "none"}),
           "`https` verifies the broker's host name; `none` (or empty) does not."),
    Option("kafka.ssl.enabled.protocols", BOTH, p.tls_versions,
           "Versions of TLS that may be used: `TLSv1.2`, `TLSv1.3`, or both with a comma. Older ones are never used."),
    Option("kafka.ssl.ca.location", BOTH, p.text,
           "A PEM truststore (librdkafka's name)."),
    Option("kafka.ssl.ca.pem", BOTH, p.text,
           "CA certificates, as PEM text (librdkafka's name)."),
    Option("kafka.ssl.certificate.location", BOTH, p.text,
           "A PEM file with the client's certificate chain (librdkafka's name)."),
    Option("kafka.ssl.certificate.pem", BOTH, p.text,
           "The client's certificate chain, as PEM text (librdkafka's name)."),
    Option("kafka.ssl.key.location", BOTH, p.text,
           "A PEM file with the client's private key (librdkafka's name)."),
    Option("kafka.ssl.key.pem", BOTH, Secret,
           "The client's private key, as PEM text (librdkafka's name)."),
)
# fmt: on

_BY_NAME: dict[str, Option] = {name.lower(): row for row in OPTIONS for name in (row.name, *row.also)}
_SPELLED: dict[str, str] = {
    name.lower(): name
    for names in (*((row.name, *row.also) for row in OPTIONS), REFUSED, WITHOUT_EFFECT)
    for name in names
}


def parse_options(options: Mapping[str, object], side: Side) -> dict[str, object]:
    """Field -> parsed value of every option in `options`; options that are not set are absent.

    Raises ConfigurationError for an unknown option (with the closest name), an option of the other side, a rejected
    Kafka property, an invalid value, and for two names of the same option. A property of Kafka's clients that has no
    effect here is logged once.
    """
    values: dict[str, object] = {}
    named: dict[str, str] = {}
    for name, value in options.items():
        if value is None or _from_spark(name):
            continue
        row = _row(_SPELLED.get(name.lower(), name), side, _as_text(value))
        if row is None or (row.name == "kafka.client.id" and not _as_text(value).strip()):  # Java's default is ""
            continue
        if (before := named.setdefault(row.field, name)) != name:
            raise ConfigurationError(name, f"cannot be combined with {before!r}, which is another name for it")
        try:
            values[row.field] = row.parse(_as_text(value))
        except ValueError as error:
            raise ConfigurationError(row.name, str(error)) from None
    return values


def _from_spark(name: str) -> bool:
    """Whether Spark adds this option itself: `load(path)`, `queryName(…)`, a table's properties."""
    lowered = name.lower()
    return lowered in ("path", "paths", "queryname", "owner", "provider") or lowered.startswith("option.")


def _row(name: str, side: Side, value: str) -> Option | None:
    """The row of an option, whose `name` is spelt as documented; None if it has no effect with this value."""
    lowered = name.lower()
    row = _BY_NAME.get(lowered)
    if row is not None and row.side in (side, BOTH):
        return row
    if row is not None and row.name.startswith("kafka."):  # one property file works for both
        say_without_effect(name, f"it applies to the {row.side.value} only")
        return None
    if row is not None:
        raise ConfigurationError(row.name, f"is an option of the {row.side.value}, not of the {side.value}")
    if reason := REFUSED.get(name):
        if value.strip().lower() in ("", HOLDS_ANYWAY.get(name)):
            return None
        raise ConfigurationError(name, reason)
    if reason := without_effect(name):
        say_without_effect(name, reason)
        return None
    raise ConfigurationError(name, "unknown option", action=similar(name, side))


def is_known(name: str) -> bool:
    """Whether this is an option, or a property of Kafka's clients that is refused or has no effect."""
    return name.lower() in _SPELLED or without_effect(name) is not None


def similar(unknown: str, side: Side = BOTH, *, at_least: float = 0.6) -> str:
    """A sentence that says which option was probably meant by an `unknown` one; empty if none is `at_least` so similar
    (`difflib`'s ratio).
    """
    lowered = unknown.lower()
    named = _SPELLED.get(f"kafka.{lowered}")
    if named is None and (javas := OF_LIBRDKAFKA.get(lowered.removeprefix("kafka."))):
        reason = WITHOUT_EFFECT.get(f"kafka.{javas}")
        return f"It is librdkafka's name of kafka.{javas}" + (f", which has no effect: {reason}." if reason else ".")
    if named is None:
        import difflib  # for this error alone

        ours = [
            name.lower()
            for row in OPTIONS
            if BOTH in (row.side, side) or row.side == side
            for name in (row.name, *row.also)
        ]
        named = next((_SPELLED[name] for name in difflib.get_close_matches(lowered, ours, n=1, cutoff=at_least)), None)
    return f"Did you mean {named}?" if named else ""


@functools.cache
def say_without_effect(name: str, reason: str) -> None:
    """Log once that an option, spelt as documented, has no effect."""
    _log.warning("option %s has no effect: %s", name, reason)


def _as_text(value: object) -> str:
    """The value as Spark would have converted it: options of TransactionalWriter do not pass through Spark."""
    if isinstance(value, Secret):
        return value.reveal()
    return str(value).lower() if isinstance(value, bool) else str(value)
