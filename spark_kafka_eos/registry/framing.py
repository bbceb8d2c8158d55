"""Which schema each value was written with: Confluent's wire format, a column at a time.

    0, id (4 bytes, highest first), body           what every serializer writes by default
    1, GUID (16 bytes), body                       newer clients
    header __value_schema_id or __key_schema_id    newer clients, on request: 0 and id, or 1 and GUID; the value is the
                                                   body alone

In Protobuf, the indexes of the message in its file follow the id or GUID, also in the header. AWS Glue's serializers
write 3, a byte for the compression and a UUID, which only Glue's own registry knows. Apicurio's of version 2 write 0
and an id of 8 bytes by default: it begins as if the id were 0, and no registry gives that. Serializers of other
registries can put the id into headers of their own (schema_headers). The value is then the body alone, which may begin
with 0.

Of several headers with an id the last one counts, as for Java's and .NET's clients: who adds one adds it at the end.

Source: Confluent Schema Registry, "Wire format"; confluent-kafka's `SchemaId` and Java's `DualSchemaIdDeserializer`;
AWS Glue Schema Registry's `AWSSchemaRegistryConstants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_eos.kafka.wire.columns import lengths
from spark_kafka_eos.kafka.wire.schema_headers import CONFLUENT, name_schema

SchemaKey = int | UUID

_ID_BYTES, _GUID_BYTES = 5, 17
_GLUE, _GLUE_BYTES = 3, 18
_LONG_ID_BYTES = 9

NOT_FRAMED: Final = "the value does not start with a schema id (magic byte 0 or 1)"
GLUE: Final = "the value was written by a serializer of AWS Glue's schema registry (magic byte 3), which is another one"


IN_HEADER: Final = "the header for the schema id has none (magic byte 0 or 1)"

_APICURIO = "apicurio.registry.as-confluent=true (in version 3 no id-handler) and apicurio.registry.use-id=contentId"

EIGHT_BYTES: Final = (
    "the value has a schema id of 8 bytes, as Apicurio's serializers of version 2 write it by default, and those of 4 "
    f"are read: set the serializer's {_APICURIO}"
)

# By the first part of a header's name: whose serializers write it, and what to do instead.
_OTHER_HEADERS: Final = {
    "apicurio": ("Apicurio's", f"set the serializer's apicurio.registry.headers.enabled=false, {_APICURIO}"),
    "com": ("IBM Event Streams'", "let them put it before the value"),
    "content-type": ("Azure Schema Registry's", "it is another registry, without Confluent's API"),
    "key": ("Cloudera's", "set the serializer's store.schema.version.id.in.header=false"),
    "value": ("Cloudera's", "set the serializer's store.schema.version.id.in.header=false"),
}


def in_other_header(name: str) -> str:
    """Why a value is not decoded whose schema the header `name` names."""
    whose, action = _OTHER_HEADERS[name.split(".", maxsplit=1)[0]]
    return (
        f"the schema is named by the header {name}, which {whose} serializers write, and ids are read before the value "
        f"or in Confluent's headers: {action}. If the value has an id and the header is left over, do not pass headers"
    )


class Group(NamedTuple):
    """Rows with the same schema, None if the records have it; their bodies start after `skip` bytes of the value."""

    schema: SchemaKey | None
    rows: NDArray[np.int64]
    skip: int


class Framed(NamedTuple):
    groups: list[Group]
    unframed: dict[int, str]  # rows without a schema id, and why


class HeaderIds(NamedTuple):
    """Of each row the header with the schema id, null where there is none, and of rows whose last such header is of
    another registry's serializer the name of that.
    """

    confluent: pa.BinaryArray
    others: Mapping[int, str]


def framed(values: pa.BinaryArray, ids: HeaderIds | None = None) -> Framed:
    """The schemas of `values`. A row without a header in `ids` has its id before the value. Null values belong to no
    group.
    """
    present = ~values.is_null().to_numpy(zero_copy_only=False)
    if ids is None:
        return _prefixed(values, np.flatnonzero(present), in_header=False)
    others = {row: in_other_header(name) for row, name in ids.others.items() if present[row]}
    present[list(others)] = False
    in_header = ~ids.confluent.is_null().to_numpy(zero_copy_only=False)
    of_header = _prefixed(ids.confluent, np.flatnonzero(present & in_header), in_header=True)
    of_value = _prefixed(values, np.flatnonzero(present & ~in_header), in_header=False)
    return Framed(of_header.groups + of_value.groups, others | of_header.unframed | of_value.unframed)


def header_ids(headers: pa.ListArray, column: str) -> HeaderIds:
    """Each row's last header that names the schema of `column`, "key" or "value". Headers are as Spark's Kafka source
    has them: a list of structs of key and value.
    """
    entries = headers.flatten()
    matches = np.flatnonzero(name_schema(entries, column))
    count = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    places = np.full(len(headers), -1, np.int64)
    places[np.repeat(np.arange(len(headers)), count)[matches]] = matches  # of a row's, the last one stays
    names = entries.field(0).take(pa.array(places, mask=places < 0))
    other = np.flatnonzero(pc.not_equal(names, CONFLUENT[column]).fill_null(False).to_numpy(zero_copy_only=False))
    places[other] = -1
    ids = entries.field(1).take(pa.array(places, mask=places < 0)).cast(pa.binary())
    return HeaderIds(ids, dict(zip(other.tolist(), names.take(pa.array(other)).to_pylist(), strict=True)))


def with_indexes(values: pa.BinaryArray, ids: HeaderIds) -> tuple[pa.BinaryArray, HeaderIds]:
    """Protobuf's `values` with the indexes of their headers before the bodies, and the headers without them. A header
    without indexes becomes one that is damaged.
    """
    distinct = ids.confluent.dictionary_encode()
    parts = [_without_indexes(header) for header in distinct.dictionary.to_pylist()]
    short, indexes = (pa.array([part[at] for part in parts], pa.binary()).take(distinct.indices) for at in (0, 1))
    return pc.binary_join_element_wise(indexes.fill_null(b""), values, b""), HeaderIds(short, ids.others)


def _without_indexes(header: bytes) -> tuple[bytes, bytes]:
    size = _GUID_BYTES if header[:1] == b"\1" else _ID_BYTES
    return (header[:size], header[size:]) if len(header) > size else (b"", b"")


def _prefixed(column: pa.BinaryArray, rows: NDArray[np.int64], *, in_header: bool) -> Framed:
    if not rows.size:
        return Framed([], {})
    size = lengths(column)[rows]
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    start = offsets[rows].astype(np.int64)
    data = np.frombuffer(column.buffers()[2] or b"\0", np.uint8)
    magic = np.where(size > 0, data[np.minimum(start, len(data) - 1)], 0xFF)
    by_id, by_guid = (magic == 0) & (size >= _ID_BYTES), (magic == 1) & (size >= _GUID_BYTES)
    groups: list[Group] = []
    long_id = np.zeros(len(rows), np.bool_)
    if by_id.any():
        at = start[by_id]
        ids = data[at + 1].astype(np.int64) << 24 | data[at + 2].astype(np.int64) << 16
        ids |= data[at + 3].astype(np.int64) << 8 | data[at + 4]
        if not in_header:
            long_id[by_id] = (ids == 0) & (size[by_id] >= _LONG_ID_BYTES)
            if long_id.any():
                ids, by_id = ids[~long_id[by_id]], by_id & ~long_id
    if by_id.any():
        groups += _grouped(ids, rows[by_id], 0 if in_header else _ID_BYTES, int)
    if by_guid.any():
        at = start[by_guid]
        table = data[at[:, None] + np.arange(1, _GUID_BYTES)]
        guids = np.ascontiguousarray(table).view("V16").reshape(-1)
        groups += _grouped(guids, rows[by_guid], 0 if in_header else _GUID_BYTES, lambda guid: UUID(bytes=bytes(guid)))
    other = ~(by_id | by_guid)
    glue = other & (magic == _GLUE) & (size >= _GLUE_BYTES)
    unframed = {
        int(row): IN_HEADER if in_header else EIGHT_BYTES if is_long else GLUE if is_glue else NOT_FRAMED
        for row, is_glue, is_long in zip(rows[other], glue[other], long_id[other], strict=True)
    }
    return Framed(groups, unframed)


def _grouped(keys: NDArray[np.generic], rows: NDArray[np.int64], skip: int, schema) -> list[Group]:  # type: ignore[no-untyped-def]
    if (keys == keys[0]).all():
        return [Group(schema(keys[0]), rows, skip)]
    distinct, group = np.unique(keys, return_inverse=True)
    order = np.argsort(group, kind="stable")
    parts = np.split(rows[order], np.cumsum(np.bincount(group))[:-1])
    return [Group(schema(key), part, skip) for key, part in zip(distinct, parts, strict=True)]
