"""Properties of Kafka's Java clients that this connector rejects or ignores. The supported ones are in table.py.

A property is rejected if ignoring its value would change the data, the guarantee or the security of the connection.
Where Spark's built-in source and sink reject it too (`KafkaSourceProvider.validateGeneralOptions`), the reason is the
same.
A property that only tunes the Java clients' internals is ignored, so that one property file works for every client.
"""

from __future__ import annotations

_BYTES = "keys and values are always bytes; use DataFrame operations to encode or decode them"
_CALLBACKS = "Java classes are not loaded"
_GRANT = (
    "only the client credentials grant is supported, with a client id and a client secret; for others, set "
    "kafka.sasl.oauthbearer.token.provider"
)
_TLS = "OpenSSL chooses among its own cipher suites, and these cannot be restricted"

# Java's name of what librdkafka calls otherwise (its CONFIGURATION.md), unless an option here takes both names.
OF_LIBRDKAFKA: dict[str, str] = {
    "batch.num.messages": "batch.size",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}

REFUSED: dict[str, str] = {
    f"kafka.{name}": reason
    for reason, names in {
        "use startingOffsets to set where the query starts; the source never resets offsets on its own": (
            "auto.offset.reset",
        ),
        _BYTES: ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
        "the sink commits offsets in the transaction of the micro-batch; there is no periodic commit": (
            "enable.auto.commit",
            "auto.commit.interval.ms",
        ),
        f"{_CALLBACKS}; an interceptor could change the data without the query's knowledge": ("interceptor.classes",),
        _CALLBACKS: (
            "config.providers",
            "metric.reporters",
            "sasl.login.class",
            "security.providers",
            "ssl.engine.factory.class",
        ),
        "use partitioner=roundrobin": ("partitioner.ignore.keys",),
        "the driver commits the transaction in one step": ("transaction.two.phase.commit.enable",),
        _TLS: ("ssl.cipher.suites",),
        "certificates are always verified; to trust a private CA, set kafka.ssl.truststore.location": (
            "enable.ssl.certificate.verification",
        ),
        _GRANT: (
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
        ),
    }.items()
    for name in names
}

_SERIALIZATION = "org.apache.kafka.common.serialization"
# Values in lower case with which a property that is refused says what holds anyway, as every one does without a value.
HOLDS_ANYWAY: dict[str, str] = {
    "kafka.enable.auto.commit": "false",
    "kafka.key.deserializer": f"{_SERIALIZATION}.bytearraydeserializer",
    "kafka.key.serializer": f"{_SERIALIZATION}.bytearrayserializer",
    "kafka.value.deserializer": f"{_SERIALIZATION}.bytearraydeserializer",
    "kafka.value.serializer": f"{_SERIALIZATION}.bytearrayserializer",
}

OF_REGISTRY = "it is for a schema registry: registry_from_properties reads it"
_MEMBERSHIP = "the query does not join a consumer group or share group; Spark assigns the partitions"
_BATCHING = "each task encodes its rows as complete record batches"
_SOCKETS = "there are few connections, and each is kept open until its task ends"
_METRICS = "there are no Java client metrics; use the query's progress"

WITHOUT_EFFECT: dict[str, str] = {
    f"kafka.{name}": reason
    for reason, names in {
        _BATCHING: (
            "batch.size",
            "buffer.memory",
            "buffer.memory.allocation.strategy",
            "linger.ms",
            "max.block.ms",
        ),
        "rows without a key are distributed evenly over all partitions": (
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "partitioner.rack.aware",
        ),
        "the codec's default level is used": (
            "compression.gzip.level",
            "compression.level",
            "compression.lz4.level",
            "compression.zstd.level",
        ),
        "kafka.delivery.timeout.ms limits the retries": ("default.api.timeout.ms",),
        _MEMBERSHIP: (
            "exclude.internal.topics",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "partition.assignment.strategy",
            "session.timeout.ms",
            "share.acknowledgement.mode",
            "share.acquire.mode",
        ),
        "a fetch returns whole record batches, limited by kafka.fetch.max.bytes": (
            "fetch.min.bytes",
            "max.poll.records",
        ),
        "topics are never created automatically": ("allow.auto.create.topics",),
        "host names are resolved for each new connection": ("bootstrap.resolve.timeout.ms",),
        "the connector does not ask brokers to check for misrouted connections": ("metadata.cluster.check.enable",),
        _SOCKETS: (
            "client.dns.lookup",
            "connections.max.idle.ms",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "receive.buffer.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "send.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
        ),
        "a token is renewed after four fifths of its lifetime": (
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
        ),
        "kafka.request.timeout.ms limits a request to the token endpoint, kafka.delivery.timeout.ms all its retries": (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
        ),
        "only the broker reads and verifies the token": (
            "sasl.oauthbearer.allow.unverified.audience",
            "sasl.oauthbearer.allow.unverified.issuer",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        "the Kerberos library obtains and renews tickets from the keytab": (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        OF_REGISTRY: (
            "auto.register.schemas",
            "basic.auth.*",
            "bearer.auth.*",
            "json.fail.invalid.schema",
            "json.value.type",
            "key.subject.name.strategy",
            "latest.compatibility.strict",
            "normalize.schemas",
            "schema.registry.*",
            "specific.avro.reader",
            "specific.protobuf.value.type",
            "use.latest.version",
            "value.subject.name.strategy",
        ),
        _METRICS: (
            "auto.include.jmx.reporter",
            "enable.metrics.push",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
        "kafka.ssl.enabled.protocols has the versions of TLS, as in Java": ("ssl.protocol",),
        "kafka.bootstrap.servers has the brokers": ("bootstrap.controllers",),
        "OpenSSL is used instead of Java's security providers": (
            "ssl.keymanager.algorithm",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
    }.items()
    for name in names
} | {
    "groupIdPrefix": _MEMBERSHIP,
    "kafkaConsumer.pollTimeoutMs": "kafka.request.timeout.ms limits every request",
    "fetchOffset.numRetries": "kafka.delivery.timeout.ms limits the retries",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms sets the backoff between retries",
}

_FAMILIES = {name.removesuffix("*"): reason for name, reason in WITHOUT_EFFECT.items() if name.endswith("*")}


def without_effect(name: str) -> str | None:
    """Why a property has no effect, by its name as documented or, of a family, in lower case; None if it is none of
    those.
    """
    return WITHOUT_EFFECT.get(name) or next(
        (reason for family, reason in _FAMILIES.items() if name.lower().startswith(family)), None
    )
