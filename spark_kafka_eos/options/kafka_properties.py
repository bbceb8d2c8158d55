"""Properties of Kafka's Java clients that this connector cannot honour, or need not. What it uses stands in the table.

Refused is what would change the data, the guarantee or the safety of the connection; the reasons are those of Spark's
built-in source and sink (`KafkaSourceProvider.validateGeneralOptions`) where it refuses them too. What merely tunes
parts that are not here is accepted, so that one property file serves every client.
"""

from __future__ import annotations

_BYTES = "keys and values are always bytes; use DataFrame operations to encode or decode them"
_CALLBACKS = "Java classes are not loaded"
_KERBEROS = "SASL GSSAPI (Kerberos) is not supported; PLAIN, SCRAM and OAUTHBEARER are"
_GRANT = "tokens are had by the client credentials grant, with a client's id and secret"
_TLS = "TLS is negotiated by OpenSSL with Python's defaults (TLS 1.2 or later), which it cannot narrow"

REFUSED: dict[str, str] = {
    f"kafka.{name}": reason
    for reason, names in {
        "use the option startingOffsets to say where to start; nothing is ever reset behind the query's back": (
            "auto.offset.reset",
        ),
        _BYTES: ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
        "offsets are committed by the sink, in the transaction of the batch, never by a timer": (
            "enable.auto.commit",
            "auto.commit.interval.ms",
        ),
        f"{_CALLBACKS}; an interceptor could change the data behind the query's back": ("interceptor.classes",),
        _CALLBACKS: (
            "config.providers",
            "metric.reporters",
            "sasl.client.callback.handler.class",
            "sasl.login.class",
            "security.providers",
            "ssl.engine.factory.class",
        ),
        "use the option partitioner=roundrobin": ("partitioner.ignore.keys",),
        "the transaction is committed in one step by the driver": ("transaction.two.phase.commit.enable",),
        _TLS: ("ssl.cipher.suites", "ssl.enabled.protocols", "ssl.protocol"),
        "certificates are always verified; to trust a private authority set kafka.ssl.truststore.location": (
            "enable.ssl.certificate.verification",
        ),
        _KERBEROS: ("sasl.kerberos.service.name",),
        _GRANT: (
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
        ),
    }.items()
    for name in names
}

_MEMBERSHIP = "the query is not a member of a consumer group, Spark assigns the partitions"
_BATCHING = "the rows of a task are encoded as whole record batches"
_SOCKETS = "connections are few and kept for the length of a task"
_METRICS = "there are no Java client metrics; see the query's progress"

WITHOUT_EFFECT: dict[str, str] = {
    f"kafka.{name}": reason
    for reason, names in {
        _BATCHING: (
            "batch.size",
            "buffer.memory",
            "linger.ms",
            "max.block.ms",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
        ),
        "the codec's own default level is used": (
            "compression.gzip.level",
            "compression.level",
            "compression.lz4.level",
            "compression.zstd.level",
        ),
        "kafka.delivery.timeout.ms bounds the retries": ("retries", "default.api.timeout.ms"),
        "up to five requests are in flight, in the order of their sequences": (
            "max.in.flight.requests.per.connection",
        ),
        _MEMBERSHIP: (
            "exclude.internal.topics",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "partition.assignment.strategy",
            "session.timeout.ms",
        ),
        "a fetch returns whole record batches, bounded by kafka.fetch.max.bytes": (
            "fetch.min.bytes",
            "max.poll.records",
        ),
        "records are fetched from the partitions' leaders": ("client.rack",),
        "topics are never created": ("allow.auto.create.topics",),
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
        "a token is fetched again when four fifths of its life are over": (
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
        ),
        "kafka.request.timeout.ms bounds the token endpoint's answer, kafka.delivery.timeout.ms all retries": (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
        ),
        "the token is the broker's to read": (
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        _METRICS: (
            "enable.metrics.push",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
        "OpenSSL does this without Java's providers": (
            "ssl.keymanager.algorithm",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
    }.items()
    for name in names
} | {
    "groupidprefix": _MEMBERSHIP,
    "kafkaconsumer.polltimeoutms": "kafka.request.timeout.ms bounds every answer",
    "fetchoffset.numretries": "kafka.delivery.timeout.ms bounds the retries",
    "fetchoffset.retryintervalms": "kafka.retry.backoff.ms is the pause between retries",
}
