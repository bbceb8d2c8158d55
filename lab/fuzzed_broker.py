"""A broker whose responses to one API come from a fuzzer; all other responses are valid.

The package talks to it over a real `Connection` with a fake socket. The broker parses a request only as far as it needs
to answer it. So the fuzzer's bytes pass through framing, decoding, and the code that uses the decoded response.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from kafka.protocol import admin, consumer, metadata, producer, sasl

from lab.false_connection import FalseConnection
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol import describe, offsets, transactions
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.epochs import log_ends
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.markers import write_marker
from spark_kafka_eos.kafka.protocol.versions import RANGES
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger.create import create_ledger
from spark_kafka_eos.options import ClientOptions, Secret, Security, SourceOptions
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.tools.operators.open_transactions import oldest_open

_TOPIC_ID = uuid.UUID(int=7)
_AT = TopicPartition("orders", 0)
_IDENTITY = ProducerIdentity(transactional_id="id", producer_id=7, epoch=1, transaction_version=2)
_TV1 = ProducerIdentity(transactional_id="id", producer_id=7, epoch=1, transaction_version=1)
_SECONDS_PER_REQUEST = 0.1
_MOST_REQUESTS = 100  # per conversation: more than the budgets allow
_SASL = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username="ann", password=Secret("hunter2"))


class Endless(Exception):
    """The conversation does not end."""


def converse(data: bytes, api: str | None, use: Callable[[Cluster], object] | None = None) -> KafkaEosError | None:
    """Make the package send `api` to a broker that answers with `data`; return the package's error, if any.

    If `api` is None, `data` is everything that the broker ever sends. `use` is what sends it, by default a use of this
    API. Raises Endless, and any unexpected exception.
    """
    broker = _Broker(data, api)
    security = _SASL if api in ("SaslHandshake", "SaslAuthenticate") else Security()
    options = ClientOptions(
        bootstrap_servers=(("broker", 9092),), security=security, delivery_timeout_ms=2_000, request_timeout_ms=1_000
    )
    with Cluster(
        options, connect=broker.connect, clock=broker.clock, sleep=broker.sleep, jitter=lambda: 0.5
    ) as cluster:
        try:
            (use or _USES[api or "Metadata"])(cluster)
        except KafkaEosError as error:
            return error
    return None


def fetched(records: bytes | bytearray) -> dict[str, Any]:
    """The fields of a Fetch response with these record batches."""
    partition = _FETCHED | {"records": bytes(records)}
    return {"error_code": 0, "responses": [{"topic_id": _TOPIC_ID, "partitions": [partition]}]}


def answer(
    api: str, correlation_id: int, version: int | None = None, *, fields: Mapping[str, Any] | None = None
) -> bytes:
    """A response to `api`, as a frame; by default a valid one in the latest supported version."""
    module, valid = _ANSWERS[api]
    response = _make(getattr(module, f"{api}Response"), valid if fields is None else fields)
    response.API_VERSION = RANGES[api][1] if version is None else version
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(framed=True, header=True))


# -- the broker


class _Broker:
    def __init__(self, data: bytes, api: str | None) -> None:
        self._data, self._api, self._now, self.requests = data, api, 0.0, 0

    def connect(self, host: str, port: int, options: ClientOptions) -> Connection:
        return FalseConnection(self, host, port, options)

    def clock(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def reply(self, request: bytes) -> bytes:
        """The bytes with which the broker answers a request."""
        self.requests += 1
        self._now += _SECONDS_PER_REQUEST
        if self.requests > _MOST_REQUESTS:
            raise Endless(f"{self.requests} requests")
        if self._api is None:
            return self._data if self.requests == 1 else b""
        key, version, correlation_id = struct.unpack_from(">hhi", request, 4)
        name = _NAMES[key]
        if name == self._api:
            body = struct.pack(">i", correlation_id) + self._data
            return struct.pack(">i", len(body)) + body
        return answer(name, correlation_id, version)


# -- valid responses, and the code that sends the requests


def _make(kind: Any, fields: Mapping[str, Any]) -> Any:
    made = {
        name: [_make(kind.fields[name].data_class, item) for item in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for name, value in fields.items()
    }
    return kind(**made)


def _batch() -> bytearray:
    made = encode(pa.array([b"k"] * 3), pa.array([b"v"] * 3), 1_700_000_000_000)
    stamp(made, producer_id=7, epoch=1, base_sequence=0, transactional=True)
    return made


def _topics(**partition: Any) -> dict[str, Any]:
    return {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 0} | partition]}]}


_FETCHED: dict[str, Any] = {
    "partition_index": 0,
    "error_code": 0,
    "high_watermark": 3,
    "last_stable_offset": 3,
    "log_start_offset": 0,
    "aborted_transactions": [{"producer_id": 9, "first_offset": 0}],
    "preferred_read_replica": -1,
    "records": bytes(_batch()),
}
_PARTITION = {
    "error_code": 0,
    "partition_index": 0,
    "leader_id": 1,
    "leader_epoch": 5,
    "replica_nodes": [1],
    "isr_nodes": [1],
    "offline_replicas": [],
}
_PRODUCED = {"index": 0, "error_code": 0, "base_offset": 5, "log_append_time_ms": -1, "record_errors": []}
_CONFIGURED = {
    "error_code": 0,
    "error_message": None,
    "resource_type": 2,
    "resource_name": "orders",
    "configs": [{"name": "min.insync.replicas", "value": "1", "synonyms": []}],
}
_LISTED = {"group_id": "id", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
_CHALLENGE = b"r=abc,s=QSXCR+Q6sek8bf92,i=4096"
_NODE = {"error_code": 0, "node_id": 1, "host": "broker", "port": 9092}
_MEMBER = {"member_id": "m", "client_id": "c", "client_host": "/h", "member_metadata": b"", "member_assignment": b""}
_DESCRIBED = {
    "error_code": 0,
    "group_id": "id",
    "group_state": "Stable",
    "protocol_type": "consumer",
    "protocol_data": "range",
    "members": [_MEMBER],
    "authorized_operations": {3, 4},
}
_TRANSACTION = {
    "error_code": 0,
    "transactional_id": "id",
    "transaction_state": "Ongoing",
    "transaction_timeout_ms": 60_000,
    "transaction_start_time_ms": 1,
    "producer_id": 7,
    "producer_epoch": 1,
    "topics": [{"topic": "orders", "partitions": [0]}],
}
_OPEN = {"transactional_id": "id", "producer_id": 7, "transaction_state": "Ongoing"}
_PRODUCER = {"producer_id": 7, "producer_epoch": 1, "current_txn_start_offset": 1}

# Per API: kafka-python's module, and the fields of the response.
_ANSWERS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "Metadata": (
        metadata,
        {
            "brokers": [{"node_id": 1, "host": "broker", "port": 9092, "rack": None}],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0,
                    "name": "orders",
                    "topic_id": _TOPIC_ID,
                    "is_internal": False,
                    "partitions": [_PARTITION],
                    "authorized_operations": {3, 4},
                }
            ],
        },
    ),
    "FindCoordinator": (metadata, _NODE | {"error_message": None}),
    "InitProducerId": (producer, {"error_code": 0, "producer_id": 7, "producer_epoch": 1}),
    "AddPartitionsToTxn": (
        producer,
        {
            "results_by_topic_v3_and_below": [
                {"name": "orders", "results_by_partition": [{"partition_index": 0, "partition_error_code": 0}]}
            ]
        },
    ),
    "AddOffsetsToTxn": (producer, {"error_code": 0}),
    "EndTxn": (producer, {"error_code": 0, "producer_id": 7, "producer_epoch": 2}),
    "TxnOffsetCommit": (producer, _topics()),
    "OffsetFetch": (consumer, _topics(committed_offset=3, committed_leader_epoch=-1, metadata="m")),
    "OffsetCommit": (consumer, _topics()),
    "Produce": (producer, {"responses": [{"name": "orders", "partition_responses": [_PRODUCED]}]}),
    "Fetch": (consumer, fetched(_FETCHED["records"])),
    "ListOffsets": (consumer, _topics(timestamp=-1, offset=3, leader_epoch=5)),
    "OffsetForLeaderEpoch": (
        consumer,
        {
            "topics": [
                {
                    "topic": "orders",
                    "partitions": [{"error_code": 0, "partition": 0, "leader_epoch": 4, "end_offset": 3}],
                }
            ]
        },
    ),
    "CreateTopics": (admin, {"topics": [{"name": "orders", "error_code": 0}]}),
    "DescribeConfigs": (
        admin,
        {"results": [_CONFIGURED]},
    ),
    "DescribeProducers": (admin, _topics(active_producers=[_PRODUCER])),
    "DescribeTransactions": (admin, {"transaction_states": [_TRANSACTION]}),
    "ListTransactions": (admin, {"error_code": 0, "transaction_states": [_OPEN]}),
    "WriteTxnMarkers": (producer, {"markers": [{"producer_id": 7, **_topics()}]}),
    "DescribeGroups": (admin, {"groups": [_DESCRIBED]}),
    "ListGroups": (
        admin,
        {
            "error_code": 0,
            "groups": [_LISTED],
        },
    ),
    "SaslHandshake": (sasl, {"error_code": 0, "mechanisms": ["SCRAM-SHA-256"]}),
    "SaslAuthenticate": (
        sasl,
        {
            "error_code": 0,
            "error_message": None,
            "auth_bytes": _CHALLENGE,
            "session_lifetime_ms": 0,
        },
    ),
    "ApiVersions": (
        metadata,
        {
            "error_code": 0,
            "api_keys": [],  # set below, to every API's key
            "finalized_features_epoch": 1,
            "finalized_features": [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}],
        },
    ),
}
_KEYS = {name: int(getattr(module, f"{name}Response").API_KEY) for name, (module, _) in _ANSWERS.items()}
_NAMES = {key: name for name, key in _KEYS.items()}
_ANSWERS["ApiVersions"][1]["api_keys"] = [
    {"api_key": _KEYS[name], "min_version": oldest, "max_version": newest} for name, (oldest, newest) in RANGES.items()
]


def _fetch(cluster: Cluster) -> None:
    offset_range = OffsetRange(partition=_AT, start=0, end=3)
    position = 0
    for part in Fetcher(cluster).fetch([offset_range]):
        assert part.partition == _AT
        for header in part.batches:  # no duplicates, and in order
            assert header.next_offset > position
            assert header.base_offset >= position or header is part.batches[0]
            position = header.next_offset


def read_rows(cluster: Cluster, *, decompressed_bytes: int) -> None:
    """Read the topic as the source does, with its checks of checksums off: they would hide all others."""
    options = SourceOptions(client=cluster.options, subscribe=("orders",), include_headers=True, check_crcs=False)
    offset_range = OffsetRange(partition=_AT, start=0, end=3)
    offsets: list[int] = []
    for rows in read([offset_range], options, cluster, decompressed_bytes=decompressed_bytes):
        rows.validate(full=True)
        offsets += rows["offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert set(offsets) <= {*range(3)}


def _produce(cluster: Cluster) -> None:
    with Appender(cluster, _IDENTITY, transaction_version=2) as appender:
        appender.append(_AT, _batch(), records=3, base_sequence=0)
        (ack,) = appender.flush()
        assert ack.partition == _AT


def _commit(cluster: Cluster) -> None:
    transactions.end_transaction(cluster, _IDENTITY, commit=True)


def _offset_fetch(cluster: Cluster) -> None:
    committed = GroupCoordinator(cluster, "group").fetch_offsets([_AT])
    assert committed.keys() == {_AT}


def _list_offsets(cluster: Cluster) -> None:
    assert offsets.latest(cluster, [_AT]).keys() == {_AT}


def _log_ends(cluster: Cluster) -> None:
    assert log_ends(cluster, {_AT: 4}).keys() <= {_AT}


def _oldest_open(cluster: Cluster) -> None:
    assert oldest_open(cluster, [_AT], now_ms=5).keys() <= {_AT}


_HANGING = ProducerState(partition=_AT, producer_id=7, epoch=1, start_offset=1)
_COMMITTED = {_AT: OffsetAndMetadata(offset=3)}
_USES: Mapping[str, Callable[[Cluster], object]] = {
    "ApiVersions": lambda cluster: cluster.transaction_version(),
    "SaslHandshake": lambda cluster: cluster.transaction_version(),
    "SaslAuthenticate": lambda cluster: cluster.transaction_version(),
    "Metadata": lambda cluster: (cluster.leader(_AT), cluster.topic_names(), describe.topics(cluster, ["orders"], [])),
    "FindCoordinator": lambda cluster: cluster.coordinator("group", "group"),
    "InitProducerId": lambda cluster: transactions.init_producer_id(cluster, "id", 60_000),
    "AddPartitionsToTxn": lambda cluster: transactions.add_partitions(cluster, _TV1, [_AT]),
    "AddOffsetsToTxn": lambda cluster: transactions.add_offsets(cluster, _TV1, "group"),
    "EndTxn": _commit,
    "TxnOffsetCommit": lambda cluster: GroupCoordinator(cluster, "group").commit_in_transaction(
        _IDENTITY, _COMMITTED, transaction_version=2
    ),
    "OffsetFetch": _offset_fetch,
    "OffsetCommit": lambda cluster: GroupCoordinator(cluster, "group").commit_offsets(_COMMITTED),
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "OffsetForLeaderEpoch": _log_ends,
    "CreateTopics": lambda cluster: create_ledger(cluster, "orders"),
    "DescribeConfigs": lambda cluster: describe.topics(cluster, ["orders"], ["min.insync.replicas"]),
    "DescribeProducers": _oldest_open,
    "ListTransactions": _oldest_open,
    "DescribeTransactions": lambda cluster: describe.transaction(cluster, "id", now_ms=5),
    "WriteTxnMarkers": lambda cluster: write_marker(cluster, _HANGING, commit=False),
    "DescribeGroups": lambda cluster: describe.group(cluster, "id"),
    "ListGroups": lambda cluster: describe.group(cluster, "id"),
}
APIS = tuple(_USES)
