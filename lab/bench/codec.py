"""Measures only the codec, on one core: Arrow columns to record batches and back, compared with a lower bound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import google_crc32c
import numpy as np
import pyarrow as pa

from lab.bench.alternating import Show, Side, alternate, silent
from lab.bench.figures import Comparison
from lab.bench.inputs import Mixed, Shape, rows
from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.header_table import HeaderTable, header_table
from spark_kafka_eos.kafka.wire.record_batch import RecordBatches, extents

ENCODE, DECODE, BLOCKS, FLOOR = "encode", "decode", "rows to blocks of 4 partitions", "memory copy + CRC"
SMALL = (1, 5, 100)  # records per batch
_NOW = 1_700_000_000_000
_INPUT = 500_000  # records in memory: more than fit into caches; a run uses them repeatedly
# With small record batches: the bytes of a partition in a response, and of a block that a task makes of its records.
_RESPONSE, _BLOCK = 8 << 20, 1 << 20
_TABLE_ROWS = 10_000  # of an Arrow batch from Spark

_Columns = tuple[pa.BinaryArray, pa.BinaryArray]  # keys and values


def codec(
    *,
    records: int = 2_000_000,
    value_bytes: int = 100,
    mixed: Mixed | None = None,
    compression: str = "none",
    runs: int = 5,
    show: Show = silent,
) -> Comparison:
    """Encode and decode `records` records. `rows to blocks` is the work of an encode task: partitioner, sort, encode.
    The lower bound copies and checksums as many bytes as encode produces, one record batch at a time.

    With `mixed`, the record batches to decode are small, and come many in a buffer, as in a response of a broker.
    """
    shape = Shape(records=min(records, _INPUT), value_bytes=value_bytes, mixed=mixed, compression=compression)
    responses = list(_together(rows(shape), _RESPONSE if mixed else 0))
    blocks = _together(rows(shape), _BLOCK if mixed else 0)
    columns = [
        (pa.concat_arrays(keys), pa.concat_arrays(values))
        for keys, values in (zip(*block, strict=True) for block in blocks)
    ]
    batches = [
        b"".join(encode(keys, values, _NOW, compression_type=compression) for keys, values in block)
        for block in responses
    ]
    payload = [bytes(encode(keys, values, _NOW)) for keys, values in columns]
    target = np.empty(max(map(len, payload)), np.uint8)
    table = pa.Table.from_batches([pa.record_batch({"key": keys, "value": values}) for keys, values in columns])
    tables = table.combine_chunks().to_batches(_TABLE_ROWS)
    times = max(1, records // shape.records)
    four = Target(partitions=4)

    def encode_all() -> None:
        for keys, values in columns:
            encode(keys, values, _NOW, compression_type=compression)

    def decode_all() -> None:
        for buffer in batches:
            decode(buffer, _headers(buffer))

    def block_all() -> None:
        settings = EncodeSettings(topic="t", targets={"t": four}, compression_type=compression)
        encoder = BlockEncoder(settings, 0, lambda _: four, lambda: _NOW)
        for table in tables:
            for _ in encoder.add(table):
                pass
        for _ in encoder.finish():
            pass

    def floor() -> None:
        for batch in payload:
            copied = target[: len(batch)]
            np.copyto(copied, np.frombuffer(batch, np.uint8))
            google_crc32c.value(copied)

    work = {ENCODE: encode_all, DECODE: decode_all, BLOCKS: block_all, FLOOR: floor}
    participants = [Side(name=name, run=repeated(task, times)) for name, task in work.items()]
    with one_core():
        series = alternate(participants, records=times * shape.records, runs=runs, show=show)
    size = sum(map(len, payload)) * times
    return Comparison(
        title=f"codec, seconds of a core: values of {shape.values}"
        + ("" if compression == "none" else f", {compression}"),
        series=series,
        settings={
            "records": times * shape.records,
            "values": shape.values,
            "compression": compression,
            "bytes": size,
            "runs": runs,
        },
    )


def small_batches(*, records: int = 50_000, runs: int = 5, show: Show = silent) -> Comparison:
    """Decode `records` records of 100 bytes in small record batches, as a response of a broker with all of them."""
    sides = [
        Side(name=decode_small(count, compression), run=_decoding(records, count, compression))
        for compression in ("none", "zstd")
        for count in SMALL
    ]
    with one_core():
        series = alternate(sides, records=records, runs=runs, show=show)
    return Comparison(
        title="decode small record batches, seconds of a core: 100-byte values",
        series=series,
        settings={"records": records, "runs": runs},
    )


def decode_small(count: int, compression: str) -> str:
    """The name of a side of `small_batches`."""
    return f"{count} per batch" + ("" if compression == "none" else f", {compression}")


def _decoding(records: int, count: int, compression: str) -> Callable[[], float]:
    shape = Shape(records=records, compression=compression, batch_records=count)
    buffer = b"".join(encode(keys, values, _NOW, compression_type=compression) for keys, values in rows(shape))

    def work() -> None:
        decode(buffer, _headers(buffer))

    return repeated(work, 1)


def _headers(buffer: bytes) -> HeaderTable:
    return header_table(buffer, RecordBatches(buffer, [position for position, _, _ in extents(buffer)]))


def _together(batches: Iterable[_Columns], size: int) -> Iterator[list[_Columns]]:
    """Lists of record batches that have at least `size` bytes together, and the rest."""
    some: list[_Columns] = []
    total = 0
    for keys, values in batches:
        some.append((keys, values))
        total += keys.nbytes + values.nbytes
        if total >= size:
            yield some
            some, total = [], 0
    if some:
        yield some


def repeated(work: Callable[[], None], times: int) -> Callable[[], float]:
    """A function that does `work` `times` times and returns its CPU time in seconds: nothing waits, so the load of
    other processes should not count.
    """

    def run() -> float:
        started = time.process_time()
        for _ in range(times):
            work()
        return time.process_time() - started

    return run


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this thread to one core, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
