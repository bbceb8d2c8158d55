"""A broker with thousands of topics and partitions in memory, for what planning costs beyond what a broker here holds.

It answers Metadata, ListOffsets and Fetch over the package's own connection: requests are encoded and responses decoded
as over a socket. The CPU time of its own side is known, and can be subtracted.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from kafka.protocol import consumer, metadata

from lab.false_connection import FalseConnection
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.versions import RANGES
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.options import ClientOptions

_MODULES = {"ApiVersions": metadata, "Metadata": metadata, "ListOffsets": consumer, "Fetch": consumer}
_LATEST = -1
_RECORDS = 10  # of a record batch
_VALUE_BYTES = 100


class LargeCluster:
    """`topics`: the number of partitions by topic. Every partition ends at `end`, a multiple of 10.

    `requests` and `bytes`, of requests and responses, count by API. `cpu` is the CPU time of the broker, in seconds.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = dict(topics)
        self.end = 0
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.cpu = 0.0
        self._ids = {name: uuid.UUID(int=number) for number, name in enumerate(self.topics, 1)}
        self._handlers: dict[int, tuple[str, Callable[[Any], Any]]] = {
            self._request_class(api).API_KEY: (api, handler)
            for api, handler in {
                "ApiVersions": self._api_versions,
                "Metadata": self._metadata,
                "ListOffsets": self._list_offsets,
                "Fetch": self._fetch,
            }.items()
        }
        values = pa.array([bytes(_VALUE_BYTES)] * _RECORDS, pa.binary())
        self._batch = encode(pa.nulls(_RECORDS, pa.binary()), values, 1_700_000_000_000)

    def cluster(self) -> Cluster:
        """The package's connections to this broker."""
        return Cluster(ClientOptions(bootstrap_servers=(("broker", 9092),)), connect=self._connect)

    def reply(self, request: bytes) -> bytes:
        """The response to a request."""
        started = time.process_time()
        key, version, correlation_id = struct.unpack_from(">hhi", request, 4)
        api, handler = self._handlers[key]
        response = handler(self._request_class(api).decode(request, version=version, header=True, framed=True))
        response.API_VERSION = version
        response.with_header(correlation_id=correlation_id)
        frame = bytes(response.encode(framed=True, header=True))
        self.requests[api] += 1
        self.bytes[api] += len(request) + len(frame)
        self.cpu += time.process_time() - started
        return frame

    def _connect(self, host: str, port: int, options: ClientOptions) -> Connection:
        return FalseConnection(self, host, port, options)

    def _request_class(self, api: str) -> Any:
        return getattr(_MODULES[api], f"{api}Request")

    # -- the APIs

    def _api_versions(self, _request: Any) -> Any:
        kind: Any = metadata.ApiVersionsResponse
        offered = [(self._request_class(api).API_KEY, *RANGES[api]) for api in _MODULES]
        keys = [kind.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in offered]
        return kind(error_code=0, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, request: Any) -> Any:
        kind: Any = metadata.MetadataResponse
        topic_class = kind.MetadataResponseTopic
        names = self.topics if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            topic_class(
                error_code=0,
                name=name,
                topic_id=self._ids[name],
                is_internal=False,
                partitions=[
                    topic_class.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=1,
                        leader_epoch=0,
                        replica_nodes=[1, 2, 3],
                        isr_nodes=[1, 2, 3],
                        offline_replicas=[],
                    )
                    for number in range(self.topics[name])
                ],
            )
            for name in names
        ]
        broker = kind.MetadataResponseBroker(node_id=1, host="broker", port=9092, rack=None)
        return kind(throttle_time_ms=0, brokers=[broker], cluster_id="large", controller_id=1, topics=topics)

    def _list_offsets(self, request: Any) -> Any:
        kind: Any = consumer.ListOffsetsResponse
        topic_class = kind.ListOffsetsTopicResponse
        topics = [
            topic_class(
                name=topic.name,
                partitions=[
                    topic_class.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=0,
                        timestamp=-1,
                        offset=self.end if partition.timestamp == _LATEST else 0,
                        leader_epoch=0,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return kind(throttle_time_ms=0, topics=topics)

    def _fetch(self, request: Any) -> Any:
        """One record batch from where the request wants to start, as much of it as the request takes."""
        kind: Any = consumer.FetchResponse
        topic_class = kind.FetchableTopicResponse
        responses = [
            topic_class(
                topic_id=topic.topic_id,
                partitions=[
                    topic_class.PartitionData(
                        partition_index=partition.partition,
                        error_code=0,
                        high_watermark=self.end,
                        last_stable_offset=self.end,
                        log_start_offset=0,
                        aborted_transactions=[],
                        preferred_read_replica=-1,
                        records=self._batch_at(partition.fetch_offset)[: partition.partition_max_bytes],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return kind(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)

    def _batch_at(self, offset: int) -> bytes:
        return struct.pack(">q", offset // _RECORDS * _RECORDS) + bytes(self._batch[8:])
