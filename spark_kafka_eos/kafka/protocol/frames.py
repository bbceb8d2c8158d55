"""The bytes of a request on the network, in parts, so that large record batches are sent without being copied.

kafka-python encodes all but Produce, and of that the older versions, which only tests send. Its encoder copies each
record batch twice, into a buffer that it keeps for every thread. Spark starts a Python thread for each `foreachBatch`
query and does not end it with the query, so a driver that runs one query after the other would keep some megabytes of
each.

Source: Kafka's protocol guide; ProduceRequest.json, whose versions 9 to 12 are the same (see `versions.RANGES`).
"""

from __future__ import annotations

import struct
from typing import Any

from spark_kafka_eos.kafka.wire.record_batch import Bytes
from spark_kafka_eos.kafka.wire.unsigned import write_unsigned

_SIZE = struct.Struct(">i")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX = struct.Struct(">i")
_NO_TAGGED_FIELDS = b"\0"
_FLEXIBLE = 9  # of Produce; older versions have no tagged fields
_COPIED = 1 << 14  # up to this many bytes, a copy costs less than a part of its own


def frame(request: Any, version: int) -> list[Bytes]:
    """Encode `request` (a class of kafka-python, with its header) in this version of its API, with the size before it.

    The parts are to be sent in this order. They contain the record batches themselves, so send them before one changes.
    """
    if request.name == "ProduceRequest" and version >= _FLEXIBLE:
        return _produce(request, version)
    return [request.encode(version=version, framed=True, header=True)]


def _produce(request: Any, version: int) -> list[Bytes]:
    request.API_VERSION = version
    parts: list[Bytes] = []
    part = bytearray(_SIZE.size)
    part += request.encode_header(flexible=True)
    part += _string(request.transactional_id)
    part += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    part += _length(len(request.topic_data))
    for topic in request.topic_data:
        part += _string(topic.name)
        part += _length(len(topic.partition_data))
        for produced in topic.partition_data:
            part += _INDEX.pack(produced.index)
            part += _length(len(produced.records))
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


def _string(text: str | None) -> bytes:
    if text is None:
        return _length(-1)
    encoded = text.encode()
    return _length(len(encoded)) + encoded


def _length(of: int) -> bytes:
    """A length in the compact encoding, an unsigned varint of one more (KIP-482); -1 is null."""
    return write_unsigned(of + 1)
