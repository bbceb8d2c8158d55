"""Headers in which serializers name the schema of a record's key or value, which is then the body alone.

| header of a value | serializers |
|---|---|
| `__value_schema_id` | Confluent's, with `HeaderSchemaIdSerializer` |
| `apicurio.value.globalId`, `contentId`, `contentHash`, `artifactId` | Apicurio's, with `headers.enabled` |
| `value.schema.version.id` | Cloudera's, with `store.schema.version.id.in.header` |
| `com.ibm.eventstreams.schemaregistry.schema.id` | IBM Event Streams', before it had Apicurio's |
| `content-type`, if it is `avro/binary+<id>` | Azure Schema Registry's for Avro, of keys and of values |

Those of a key have "key" in place of "value". Azure's for JSON are not here: JSON begins with no byte of an id.

Source: confluent-kafka's `SchemaId`; Apicurio Registry 3.3, `KafkaSerdeHeaders`; Hortonworks' `KafkaAvroSerde`; IBM
Event Streams, "Setting non-Java applications to use schemas"; Azure's `KafkaAvroSerializer`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

CONFLUENT: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
AZURE: Final = "content-type"
_AZURE_VALUE = b"avro/binary+"
_IBM = "com.ibm.eventstreams.schemaregistry."
_NAMES = {
    column: pa.array([
        CONFLUENT[column], f"{_IBM}schema.id", f"{column}.schema.version.id",
        *(f"apicurio.{column}.{name}" for name in ("globalId", "contentId", "contentHash", "artifactId")),
    ])
    for column in CONFLUENT
}  # fmt: skip


def name_schema(entries: pa.StructArray, column: str) -> NDArray[np.bool_]:
    """Which of these headers name the schema of `column`, "key" or "value"."""
    keys, values = entries.field(0), entries.field(1)
    typed = pc.and_(pc.equal(keys, AZURE), pc.starts_with(values.cast(pa.binary()), _AZURE_VALUE))
    return _mask(pc.or_kleene(pc.is_in(keys.cast(pa.string()), value_set=_NAMES[column]), typed))


def without_schema(headers: pa.ListArray, column: str, rows: pa.BooleanArray) -> pa.ListArray:
    """The headers of the rows where `rows` is true without those that name the schema of `column`, or say more of how
    it was encoded; the other rows' as they are.
    """
    entries = headers.flatten()
    encoding = pc.or_kleene(
        *(pc.starts_with(entries.field(0), prefix) for prefix in (f"apicurio.{column}.", _IBM))
    )  # as in apicurio.value.encoding
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(headers)), counts)
    left_out = (name_schema(entries, column) | _mask(encoding)) & _mask(rows)[row]
    if not left_out.any():
        return headers
    ends = np.cumsum(counts - np.bincount(row[left_out], minlength=len(headers)))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    kept = entries.filter(pa.array(~left_out))
    return pa.ListArray.from_arrays(offsets, kept, mask=headers.is_null())


def _mask(booleans: pa.BooleanArray) -> NDArray[np.bool_]:
    return np.asarray(booleans.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
