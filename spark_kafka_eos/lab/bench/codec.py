"""The codec alone, on one core: Arrow columns to record batches and back, beside what the bytes cost at the least."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import google_crc32c
import numpy as np
import pyarrow as pa

from spark_kafka_eos.lab.bench.alternating import Show, Side, alternate, silent
from spark_kafka_eos.lab.bench.figures import Comparison
from spark_kafka_eos.lab.bench.inputs import Shape, rows
from spark_kafka_eos.wire.decode import decode
from spark_kafka_eos.wire.encode import encode
from spark_kafka_eos.wire.record_batch import scan
from spark_kafka_eos.writing.blocks import BlockEncoder, Layout, Target

ENCODE, DECODE, BLOCKS, FLOOR = "encode", "decode", "rows to blocks of 4 partitions", "memory copy + CRC"
_NOW = 1_700_000_000_000
_INPUT = 500_000  # records kept at hand: more than caches hold, and used again until a run has its number


def codec(
    *, records: int = 2_000_000, value_bytes: int = 100, compression: str = "none", runs: int = 5, show: Show = silent
) -> Comparison:
    """`records` records through each direction. `rows to blocks` is all that an encode task does: partitioner, sort,
    encode. The floor copies and sums as many bytes as encode makes, a record batch at a time."""
    shape = Shape(records=min(records, _INPUT), value_bytes=value_bytes, compression=compression)
    columns = list(rows(shape))
    batches = [bytes(encode(keys, values, _NOW, compression=compression)) for keys, values in columns]
    payload = [bytes(encode(keys, values, _NOW)) for keys, values in columns]
    target = np.empty(max(map(len, payload)), np.uint8)
    tables = [pa.record_batch({"key": keys, "value": values}) for keys, values in columns]
    times = max(1, records // shape.records)
    four = Target(partitions=4)

    def encode_all() -> None:
        for keys, values in columns:
            encode(keys, values, _NOW, compression=compression)

    def decode_all() -> None:
        for batch in batches:
            decode(batch, list(scan(batch)))

    def block_all() -> None:
        layout = Layout(topic="t", targets={"t": four}, compression_type=compression)
        encoder = BlockEncoder(layout, 0, lambda _: four, lambda: _NOW)
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
    taking_part = [Side(name=name, run=_repeated(one, times)) for name, one in work.items()]
    with one_core():
        series = alternate(taking_part, records=times * shape.records, runs=runs, show=show)
    size = sum(map(len, payload)) * times
    return Comparison(
        title=f"codec, seconds of a core: {value_bytes:,}-byte values"
        + ("" if compression == "none" else f", {compression}"),
        series=series,
        settings={
            "records": times * shape.records,
            "value_bytes": value_bytes,
            "compression": compression,
            "bytes": size,
            "runs": runs,
        },
    )


def _repeated(work: Callable[[], None], times: int) -> Callable[[], float]:
    """`work` so many times, and the seconds of a core it took: nothing here waits, so others' load should not count."""

    def run() -> float:
        started = time.process_time()
        for _ in range(times):
            work()
        return time.process_time() - started

    return run


@contextmanager
def one_core() -> Iterator[None]:
    """This thread stays on one core, where the system lets it be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
