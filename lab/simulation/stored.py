"""The bytes of a log: records as their producer sent them, with the leader's changes, and markers.

A leader sets a batch's offset and leader epoch, which no checksum covers. A marker is a control batch of one record.
Source: Kafka documentation, "Control Batches"; EndTxnMarker.json. tests/broker/test_simulation_reading.py compares the
bytes with those of brokers.
"""

from __future__ import annotations

import struct
from functools import cache

import pyarrow as pa

from lab.simulation.partition import Entry
from spark_kafka_eos.kafka.wire.batch_header import TRANSACTIONAL
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import HEADER, LENGTH_END, MAGIC, sign

_CONTROL = 0x20
_NO_SEQUENCE = -1
_KEY = struct.Struct(">hh")  # version, type: 0 abort, 1 commit
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH_AT, _LEADER_EPOCH = 12, struct.Struct(">i")


def stored(entry: Entry) -> bytes:
    """The record batch at `entry.offset`."""
    if entry.commit is not None:
        return _marker(entry)
    batch = bytearray(entry.batch)
    _BASE_OFFSET.pack_into(batch, 0, entry.offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, entry.leader_epoch)
    return bytes(batch)


def _marker(entry: Entry) -> bytes:
    record = _control_record(bool(entry.commit))
    batch = bytearray(HEADER.size) + record
    HEADER.pack_into(
        batch, 0, entry.offset, len(batch) - LENGTH_END, entry.leader_epoch, MAGIC, 0, TRANSACTIONAL | _CONTROL, 0,
        entry.timestamp_ms, entry.timestamp_ms, entry.producer_id, entry.epoch, _NO_SEQUENCE, 1,
    )  # fmt: skip
    sign(batch)
    return bytes(batch)


@cache
def _control_record(commit: bool) -> bytes:
    key, value = pa.array([_KEY.pack(0, int(commit))], pa.binary()), pa.array([_VALUE.pack(0, 0)], pa.binary())
    return bytes(encode(key, value, 0)[HEADER.size :])
