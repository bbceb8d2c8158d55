"""Where records begin and end: the chain of their lengths.

Only this is sequential about records: where one begins follows from the length of the one before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.wire.record_batch import SMALLEST_RECORD
from spark_kafka_eos.wire.varint import read_varints

Positions = NDArray[np.int64]


def record_bounds(
    data: NDArray[np.uint8], start: Positions, end: Positions, count: Positions
) -> tuple[Positions, Positions]:
    """Where each record's attributes begin and where the record ends, for batches of `count` records in `[start, end)`.

    CorruptRecordBatch unless the records of each batch fill its range exactly. `count` must be positive.
    """
    view: memoryview = data.data
    places: list[int] = []
    for first, behind, records in zip(start.tolist(), end.tolist(), count.tolist(), strict=True):
        places += _walk(view[:behind], first, records)
    at = np.array(places, np.int64)
    length, begin = read_varints(data, at, np.repeat(end, count))
    stop = begin + length
    follower = np.empty_like(stop)
    follower[:-1] = at[1:]
    follower[np.cumsum(count) - 1] = end
    if (stop != follower).any() or (length < SMALLEST_RECORD - 1).any():
        raise CorruptRecordBatch("the records of a batch do not fill it exactly")
    return begin, stop


def _walk(view: memoryview, position: int, records: int) -> list[int]:
    """Where each record's length stands. What it finds in damaged bytes is nonsense, so it has to be checked."""
    places = [0] * records
    try:
        for i in range(records):
            places[i] = position
            if (low := view[position]) < 0x80:
                position += 1 + (low >> 1)
            elif (high := view[position + 1]) < 0x80:
                position += 2 + ((low & 0x7F | high << 7) >> 1)
            else:
                folded, shift = low & 0x7F | (high & 0x7F) << 7, 14
                position += 2
                while (byte := view[position]) >= 0x80:
                    folded |= (byte & 0x7F) << shift
                    position, shift = position + 1, shift + 7
                position += 1 + ((folded | byte << shift) >> 1)
    except IndexError:
        raise CorruptRecordBatch("the records of a batch run over its end") from None
    return places
