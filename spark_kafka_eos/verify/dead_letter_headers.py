"""The origin of a dead letter, stored in the headers that the sink appends to it (dead_letters.headers).

Invariant 1 counts a dead letter as the copy of a source record, like a value with provenance.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_eos.dead_letters.headers import header_name, letter_of
from spark_kafka_eos.verify.provenance_bytes import MAGIC, PROVENANCE, Provenance

_CAUSE = header_name("cause")
_PARTITIONS, _OFFSETS = 1 << 31, 1 << 63  # the first numbers that the provenance cannot hold


def unpack_headers(headers: pa.ListArray, topic: str) -> Provenance:
    """The provenance of each dead letter that was a record of `topic`; all zeros (without the magic) for others.

    The batch is -1 if the headers do not contain it.
    """
    provenance = np.zeros(len(headers), PROVENANCE)
    named = pc.equal(headers.flatten().field("key"), _CAUSE)
    for record in pc.list_parent_indices(headers).filter(named).unique().to_pylist():
        letter = letter_of((each["key"], each["value"]) for each in headers[record].as_py())
        if letter is None or letter.topic != topic or letter.partition is None or letter.offset is None:
            continue
        if 0 <= letter.partition < _PARTITIONS and 0 <= letter.offset < _OFFSETS:
            batch = -1 if letter.batch_id is None or letter.batch_id >= _OFFSETS else letter.batch_id
            provenance[record] = (MAGIC, letter.partition, letter.offset, batch, -1)
    return provenance
