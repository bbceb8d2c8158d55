"""Segments of the formats before Kafka 0.11 in a real broker's log: this package, librdkafka and Java read the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_eos.model import Compression
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.kafka_tools import tool
from tests.messages import BY_BROKER, T0, message, wrapper
from tests.producing import KEEP, produce
from tests.reading import librdkafkas, ours, table

pytestmark = pytest.mark.broker

TOPIC, TODAY = "old", [b"today"] * 3
BOUNDS = ("startingOffsets", "endingOffsets")
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def segment() -> tuple[bytes, int]:
    """A log that has seen three formats, every codec, compaction and both types of timestamps; and where it ends."""
    log, at = b"", 0
    for magic in (0, 1):
        for codec in (None, *CODECS):
            where = [at, at + 1, at + 4]  # 2 and 3 were removed by compaction
            base = at if magic and codec else 0
            inside = b"".join(
                message(
                    offset - base,
                    b"%d by %d" % (offset, magic) * 20,
                    magic=magic,
                    key=None if offset % 2 else b"key",
                    timestamp=T0 + offset,
                )
                for offset in where
            )
            log += inside if codec is None else wrapper(where[-1], inside, magic=magic, codec=codec)
            at += 5
    log += message(at, b"by the broker", magic=1, attributes=BY_BROKER, timestamp=T0 + at)
    inside = message(0, None, magic=1, key=b"deleted", timestamp=1) + message(1, b"", magic=1, timestamp=2)
    at += 2
    log += wrapper(at, inside, magic=1, codec=Compression.GZIP, attributes=BY_BROKER, timestamp=T0 + at)
    return log, at + 1


@pytest.fixture(scope="module")
def old(kafka_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker whose topic begins with that segment; today's records are behind it."""
    directory = tmp_path_factory.mktemp("old")
    with EmbeddedKafka(kafka_version, directory=directory) as kafka:
        kafka.create_topic(TOPIC, config=KEEP)
        kafka.stop()
        (folder,) = directory.glob(f"**/{TOPIC}-0")
        for file in [*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")]:
            file.unlink()
        (folder / f"{0:020}.log").write_bytes(segment()[0])
        kafka.start()
        produce(kafka.bootstrap, TOPIC, TODAY, key=b"k")
        yield kafka


def javas(kafka: EmbeddedKafka, records: int) -> list[tuple[str, ...]]:
    """Timestamp, offset, key and value, as the Java consumer prints them."""
    shown = [f"--formatter-property=print.{what}=true" for what in ("timestamp", "offset", "key")]
    where = ["--bootstrap-server", kafka.bootstrap, "--topic", TOPIC, "--from-beginning", "--max-messages", records]
    return [tuple(line.split("\t")) for line in tool("consumer.ConsoleConsumer", *where, *shown).splitlines()]


def as_java_prints(rows: pa.Table) -> list[tuple[str, ...]]:
    def timestamp(row: dict[str, Any]) -> str:
        if row["timestampType"] < 0:
            return "NO_TIMESTAMP"
        name = "LogAppendTime" if row["timestampType"] else "CreateTime"
        return f"{name}:{round(row['timestamp'].timestamp() * 1000)}"

    def text(value: bytes | None) -> str:
        return "null" if value is None else value.decode()

    return [
        (timestamp(row), f"Offset:{row['offset']}", text(row["key"]), text(row["value"])) for row in rows.to_pylist()
    ]


def test_this_package_librdkafka_and_java_read_the_same(old):
    rows = table(old.bootstrap, TOPIC, includeHeaders="true")
    assert rows.num_rows == 3 * 2 * (1 + len(CODECS)) + 3 + len(TODAY)
    assert as_java_prints(rows) == javas(old, rows.num_rows)
    theirs = librdkafkas(old.bootstrap, TOPIC)
    assert [(row[2], *row[4:6]) for row in ours(old.bootstrap, TOPIC)] == [(row[2], *row[4:6]) for row in theirs]


def test_a_range_may_start_and_end_anywhere_also_inside_a_wrapper(old):
    end = segment()[1] + len(TODAY)
    everything = ours(old.bootstrap, TOPIC)
    for start in range(end):
        for behind in {start + 1, min(start + 3, end), end}:
            bounds = {name: json.dumps({TOPIC: {"0": at}}) for name, at in zip(BOUNDS, (start, behind), strict=True)}
            assert ours(old.bootstrap, TOPIC, **bounds) == [row for row in everything if start <= row[2] < behind]
