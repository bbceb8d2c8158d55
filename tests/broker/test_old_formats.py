"""Logs in the formats before Kafka 0.11: this package, librdkafka and Java read the same.

Their segments are made byte by byte and put into the log of today's broker, or written by a broker that still could.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from spark_kafka_eos.appending import formats
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import BrokerError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.recorder import recording
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.read_offsets import ends
from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer
from tests.conftest import KAFKA_OLDEST
from tests.kafka_tools import tool
from tests.messages import BY_BROKER, T0, message, wrapper
from tests.producing import KEEP, produce
from tests.reading import librdkafkas, ours, rows, table
from tests.zookeeper import serve

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
        plant(folder, {f"{0:020}.log": segment()[0]})
        kafka.start()
        produce(kafka.bootstrap, TOPIC, TODAY, key=b"k")
        yield kafka


def plant(partition: Path, segments: Mapping[str, bytes]) -> None:
    """Replace what a stopped broker has of a partition by these segments."""
    for pattern in ("*.log", "*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint"):
        for file in partition.glob(pattern):
            file.unlink()
    for name, data in segments.items():
        (partition / name).write_bytes(data)


def javas(bootstrap: str, topic: str, records: int) -> list[tuple[str, ...]]:
    """Timestamp, offset, key and value, as the Java consumer prints them."""
    shown = [f"--formatter-property=print.{what}=true" for what in ("timestamp", "offset", "key")]
    where = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", records]
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
    assert as_java_prints(rows) == javas(old.bootstrap, TOPIC, rows.num_rows)
    theirs = librdkafkas(old.bootstrap, TOPIC)
    assert [(row[2], *row[4:6]) for row in ours(old.bootstrap, TOPIC)] == [(row[2], *row[4:6]) for row in theirs]


def test_a_range_may_start_and_end_anywhere_also_inside_a_wrapper(old):
    end = segment()[1] + len(TODAY)
    everything = ours(old.bootstrap, TOPIC)
    for start in range(end):
        for behind in {start + 1, min(start + 3, end), end}:
            bounds = {name: json.dumps({TOPIC: {"0": at}}) for name, at in zip(BOUNDS, (start, behind), strict=True)}
            assert ours(old.bootstrap, TOPIC, **bounds) == [row for row in everything if start <= row[2] < behind]


# -- written by a broker that still could: Kafka 3.3 with ZooKeeper, as it was between the two steps of an upgrade

FORMATS = {"0.9.0": 0, "0.10.0": 1, "2.8": 2}  # message.format.version, and its magic
EACH = 30


class Upgraded(NamedTuple):
    """A broker whose topics' formats can be changed; `log`: its folder of segments."""

    bootstrap: str
    log: Path


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    folder = tmp_path_factory.mktemp("zookeeper")
    with serve(folder, KAFKA_OLDEST, inter_broker_protocol_version="2.8", log_cleaner_backoff_ms=100) as bootstrap:
        yield Upgraded(bootstrap, folder / "log")


def magics(segments: Iterable[Path]) -> list[int]:
    """The magic of each message or record batch in these segments, in order."""
    found = []
    for segment in sorted(segments):
        log, at = segment.read_bytes(), 0
        while at + 17 <= len(log) and (size := int.from_bytes(log[at + 8 : at + 12], "big")):  # zeros: not written yet
            found.append(log[at + 16])
            at += 12 + size
    return found


def configure(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Create the topic with these settings, or change them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=30).topics:
        (created,) = admin.create_topics([NewTopic(topic, 1, 1, config=KEEP | dict(settings))]).values()
        created.result(timeout=30)
        return
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(timeout=30)


def grow(upgraded: Upgraded, topic: str, compression: str, **config: str) -> None:
    """Write records in each format, the oldest first, as a topic that has seen upgrades holds them."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    deadline = time.monotonic() + 60
    for number, (message_format, magic) in enumerate(FORMATS.items()):
        configure(upgraded.bootstrap, topic, settings | {"message.format.version": message_format})
        seen: list[int] = []
        while seen[-1:] != [magic]:  # the broker hears of a change a moment later
            assert time.monotonic() < deadline, f"{topic} is not written with magic {magic}"
            values = [b"%d in %s" % (n, message_format.encode()) * 5 for n in range(EACH)]
            how: dict[str, Any] = {"timestamp": T0 + number, "compression": compression}
            for n in range(3):
                produce(upgraded.bootstrap, topic, values[n::3], key=b"%d" % n, **how)
            seen = magics((upgraded.log / f"{topic}-0").glob("*.log"))


def agree(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """The offset and type of timestamp of each record, if librdkafka reads the same records."""
    read, theirs = table(bootstrap, topic, includeHeaders="true"), librdkafkas(bootstrap, topic)
    while len(theirs) < read.num_rows:  # compacted meanwhile
        read, theirs = table(bootstrap, topic, includeHeaders="true"), librdkafkas(bootstrap, topic)
    mine, kinds = rows(read), read["timestampType"].to_pylist()
    # librdkafka gives a message without a timestamp another one than Java does.
    assert [row[:3] + row[4:] for row in mine] == [row[:3] + row[4:] for row in theirs]
    assert all(a[3] == b[3] for a, b, kind in zip(mine, theirs, kinds, strict=True) if kind >= 0)
    return [(row[2], kind) for row, kind in zip(mine, kinds, strict=True)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_a_topic_that_has_seen_three_formats_is_read_as_librdkafka_reads_it(upgraded, cell, compression):
    topic = f"upgraded-{compression}"
    for magic in FORMATS.values():
        cell("Message formats", f"v{magic}, {compression}", "Producer librdkafka")
    grow(upgraded, topic, compression)
    assert set(magics((upgraded.log / f"{topic}-0").glob("*.log"))) == {0, 1, 2}
    offsets, kinds = zip(*agree(upgraded.bootstrap, topic), strict=True)
    assert list(offsets) == list(range(len(offsets))) and kinds[:EACH] == (-1,) * EACH and kinds[-1] == 0


def test_a_compacted_topic_has_the_same_holes(upgraded):
    topic = "compacted"
    grow(upgraded, topic, "gzip", cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0.01")
    written = ends(upgraded.bootstrap, topic, "read_committed")[0]
    deadline = time.monotonic() + 60
    while len(left := agree(upgraded.bootstrap, topic)) > written / 2:
        assert time.monotonic() < deadline, f"{len(left)} of {written} records are left"
        time.sleep(0.2)
    assert {after - before for (before, _), (after, _) in pairwise(left)} != {1}


def test_timestamps_of_the_broker_are_read_as_such(upgraded):
    grow(upgraded, "stamped", "snappy", message_timestamp_type="LogAppendTime")
    kinds = [kind for _, kind in agree(upgraded.bootstrap, "stamped")]
    assert kinds[:EACH] == [-1] * EACH and kinds[-EACH:] == [1] * EACH


@pytest.mark.parametrize("degree", ["required", "requested", "off"])
def test_a_topic_of_an_old_format_is_written_without_idempotence_or_not_at_all(upgraded, degree):
    topic = f"written-{degree}"
    configure(upgraded.bootstrap, topic, {"message.format.version": "0.10.0"})
    given = {"kafka.bootstrap.servers": upgraded.bootstrap, "topic": topic, "kafka.enable.idempotence": degree}
    options = sink_options(given | {"deliveryGuarantee": "at-least-once"})
    block = encode(pa.array([b"k"]), pa.array([b"v"]), T0)

    def write(identity: ProducerIdentity) -> Appended:
        acks = append(cluster, identity, [(TopicPartition(topic, 0), 1, block)])
        return Appended(partitions=1, records=sum(ack.records for ack in acks), bytes=len(block))

    with Cluster(options.client) as cluster:
        writes = AtLeastOnceProducer(options, cluster)
        writes.begin(MicroBatch(query_id="q", batch_id=0, digest=""))
        if degree == "required":
            with pytest.raises(BrokerError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
                writes.append(write)
        else:
            assert writes.append(write).records == 1
    assert [row[4:6] for row in librdkafkas(upgraded.bootstrap, topic)] == (
        [] if degree == "required" else [(b"k", b"v")]
    )
    assert set(magics((upgraded.log / f"{topic}-0").glob("*.log"))) == (set() if degree == "required" else {1})


def test_only_the_topic_of_an_old_format_is_written_without_idempotence_and_nothing_twice(upgraded, monkeypatch):
    monkeypatch.setattr(formats, "_refused", {})
    old, new = "mixed-old", "mixed-new"
    configure(upgraded.bootstrap, old, {"message.format.version": "0.10.0"})
    configure(upgraded.bootstrap, new, {"message.format.version": "2.8"})
    given = {"kafka.bootstrap.servers": upgraded.bootstrap, "deliveryGuarantee": "at-least-once"}
    options = sink_options(given | {"kafka.enable.idempotence": "requested"})

    def write(identity: ProducerIdentity) -> Appended:
        blocks = [
            (TopicPartition(topic, 0), 1, encode(pa.array([b"k"]), pa.array([b"%d" % part]), T0))
            for part in range(5)
            for topic in (new, old)
        ]
        acks = append(cluster, identity, blocks)
        return Appended(partitions=2, records=sum(ack.records for ack in acks), bytes=1)

    requests = []
    with Cluster(options.client) as cluster:
        for number in range(2):
            writes = AtLeastOnceProducer(options, cluster)
            batch = MicroBatch(query_id="q", batch_id=number, digest="")
            with recording() as recorder:
                writes.begin(batch)
                assert writes.append(write).records == 10
                writes.commit(batch, written=BatchCounts(records=10, bytes=1, milliseconds=1))
            requests.append(sum(request.api == "Produce" for request in recorder.trace().requests))
    written = [b"%d" % part for part in range(5)] * 2
    assert [row[5] for row in librdkafkas(upgraded.bootstrap, new)] == written
    assert [row[5] for row in librdkafkas(upgraded.bootstrap, old)] == written
    assert {topic: set(magics((upgraded.log / f"{topic}-0").glob("*.log"))) for topic in (old, new)} == {
        old: {1},
        new: {2},
    }
    logs = (upgraded.log / f"{new}-0").glob("*.log")
    ids = {header.producer_id for log in logs for header in scan(memoryview(log.read_bytes()))}
    assert len(ids) == 1 and min(ids) >= 0
    assert requests[0] == requests[1] + 1  # the second batch does not ask the old topic again
