"""The bytes of a request on the network, in parts, so that large record batches are sent without being copied.

kafka-python encodes all but Produce. Its encoder copies each record batch twice, into a buffer that it keeps for every
thread. Spark starts a Python thread for each `foreachBatch` query and does not end it with the query, so a driver that
runs one query after the other would keep some megabytes of each.

Source: Kafka's protocol guide; ProduceRequest.json, whose versions 9 to 12 are the same (see `versions.RANGES`).
"""

from __future__ import annotations

import struct
from typing import Any

from kafka.protocol.schemas.fields.codecs.types import String, UnsignedVarInt32

from spark_kafka_eos.wire.record_batch import Bytes

_SIZE = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX = struct.Struct(">i")
_NO_TAGGED_FIELDS = b"\0"
_COPIED = 1 << 14  # up to this many bytes, a copy costs less than a part of its own
_STRING = String()


def frame(request: Any, version: int) -> list[Bytes]:
    """Encode `request` (a class of kafka-python, with its header) in this version of its API, with the size before it.

    The parts are to be sent in this order. They contain the record batches themselves, so send them before one changes.
    """
    if request.name == "ProduceRequest":
        return _produce(request, version)
    return [request.encode(version=version, framed=True, header=True)]


def _produce(request: Any, version: int) -> list[Bytes]:
    request.API_VERSION = version
    parts: list[Bytes] = []
    part = bytearray(_SIZE.size)
    part += request.encode_header(flexible=True)
    part += _STRING.encode(request.transactional_id, compact=True)
    part += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    part += _length(request.topic_data)
    for topic in request.topic_data:
        part += _STRING.encode(topic.name, compact=True)
        part += _length(topic.partition_data)
        for produced in topic.partition_data:
            part += _INDEX.pack(produced.index)
            part += _length(produced.records)
            if len(produced.records) <= _COPIED:
                part += produced.records
            else:
                parts += [part, produced.records]
                part = bytearray()
            part += _NO_TAGGED_FIELDS
        part += _NO_TAGGED_FIELDS
    part += _NO_TAGGED_FIELDS
    parts.append(part)
    _SIZE.pack_into(parts[0], 0, sum(len(part) for part in parts) - _SIZE.size)
    return parts


def _length(of: Any) -> bytes:
    """A length in the compact encoding (KIP-482)."""
    encoded: bytes = UnsignedVarInt32.encode(len(of) + 1)
    return encoded
