"""Record batches through a real broker and through other people's clients, in both directions and every compression.

| writes | reads | by way of |
|---|---|---|
| librdkafka (confluent-kafka) | we | the newest broker |
| we | librdkafka | the newest broker, which unpacks and checks compressed batches when they are produced |
| the Java producer 3.9 (kafka.tools.ConsoleProducer) | we | the newest broker |
| we | Java 3.9 (kafka.tools.DumpLogSegments) | a segment file |

The Java tools are those of Kafka 3.9's own jar; 4.x moved them to one that the embedded broker does not need.
"""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.batch_header import Compression, RecordBatchHeader
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.testing.jars import class_path
from spark_kafka_eos.testing.java import java

pytestmark = pytest.mark.broker

Header = dict[str, Any]
Row = tuple[bytes | None, bytes | None, int, list[Header]]

CODECS = [codec.name.lower() for codec in Compression]
COUNT = 2_000  # more than a snappy or lz4 block
T = 1_700_000_000_000


def a_row(number: int) -> Row:
    """Null and empty keys and values, headers of every kind, text that can be compressed and noise that can't."""
    noise = np.random.default_rng(number).bytes(number % 150)
    key = None if number % 5 == 0 else b"" if number % 7 == 0 else b"key-%d" % number
    value = None if number % 11 == 0 else b"" if number % 13 == 0 else b"some text again and again " * 3 + noise
    headers: list[Header] = [{"key": f"ключ{j}", "value": noise if j else None} for j in range(number % 3)]
    return key, value, T + number % 1000, headers


ROWS = [a_row(number) for number in range(COUNT)]


def our_batch(rows: list[Row], codec: str) -> bytearray:
    keys, values, times, headers = zip(*rows, strict=True)
    return encode(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        np.array(times),
        pa.array(headers, HEADERS),
        compression_type=codec,
    )


@pytest.fixture
def own_cluster(bootstrap):
    host, port = bootstrap.rsplit(":", 1)
    with Cluster(ClientOptions(bootstrap_servers=((host, int(port)),))) as cluster:
        yield cluster


def fetched(cluster: Cluster, topic: str, count: int) -> tuple[list[Row], list[RecordBatchHeader]]:
    """All rows of partition 0 as we decode them, and the headers of their batches."""
    rows: list[Row] = []
    headers: list[RecordBatchHeader] = []
    for part in Fetcher(cluster).fetch([OffsetRange(partition=TopicPartition(topic, 0), start=0, end=count)]):
        decoded = decode(part.buffer, part.batches, include_headers=True)
        names = ("key", "value", "timestamp", "headers")
        rows += zip(*(decoded[name].to_pylist() for name in names), strict=True)
        headers += part.batches
    return rows, headers


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_produces_is_decoded(codec, bootstrap, topic, own_cluster):
    name = topic(f"rdkafka-{codec}")
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    for key, value, time, headers in ROWS:
        producer.produce(
            name,
            key=key,
            value=value,
            partition=0,
            timestamp=time,
            headers=[(header["key"], header["value"]) for header in headers],
        )
    assert producer.flush(30) == 0
    rows, batches = fetched(own_cluster, name, COUNT)
    assert rows == ROWS
    assert {batch.compression_code for batch in batches} == {Compression[codec.upper()]}


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_consumes_what_is_encoded(codec, bootstrap, topic, own_cluster):
    name = topic(f"ours-{codec}")
    with Appender(own_cluster, None) as appender:
        appender.append(TopicPartition(name, 0), our_batch(ROWS, codec), COUNT, 0)
        (ack,) = appender.flush()
    assert ack.base_offset == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    try:
        consumer.assign([RdTopicPartition(name, 0, 0)])
        messages: list[Any] = []
        while len(messages) < COUNT:
            some = consumer.consume(COUNT - len(messages), timeout=20)
            assert some, f"only {len(messages)} messages came"
            messages += some
    finally:
        consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    assert [
        (m.key(), m.value(), m.timestamp()[1], [{"key": k, "value": v} for k, v in m.headers() or []]) for m in messages
    ] == ROWS
    assert [message.offset() for message in messages] == list(range(COUNT))


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_java_producer_sends_is_decoded(codec, bootstrap, topic, own_cluster):
    name = topic(f"java-{codec}")
    lines = [
        (f"h{i}:v{i},n:NULL" if i % 2 else "NULL", f"key-{i}", "NULL" if i % 9 == 0 else "value " * (i % 40))
        for i in range(COUNT)
    ]
    done = subprocess.run(
        [
            java(), "-cp", class_path("3.9.1"), "kafka.tools.ConsoleProducer",
            "--bootstrap-server", bootstrap, "--topic", name, "--compression-codec", codec,
            "--batch-size", "100000", "--max-partition-memory-bytes", "100000",
            "--property", "parse.headers=true", "--property", "parse.key=true", "--property", "null.marker=NULL",
        ],
        input="".join("\t".join(line) + "\n" for line in lines),
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, batches = fetched(own_cluster, name, COUNT)
    assert [(key, value, pairs) for key, value, _, pairs in rows] == [
        (
            key.encode(),
            None if value == "NULL" else value.encode(),
            [] if pairs == "NULL" else [{"key": f"h{i}", "value": f"v{i}".encode()}, {"key": "n", "value": None}],
        )
        for i, (pairs, key, value) in enumerate(lines)
    ]
    assert {batch.compression_code for batch in batches} == {Compression[codec.upper()]}


def test_java_reads_what_is_encoded(tmp_path: Path) -> None:
    """A segment file is record batches one after the other; values are text, as the tool prints them."""
    rows = [
        (key, value if value is None else b"text " * (len(value) % 60), time, headers)
        for key, value, time, headers in ROWS
    ]
    segment = tmp_path / "00000000000000000000.log"
    with segment.open("wb") as file:
        for number, codec in enumerate(CODECS):
            batch = our_batch(rows, codec)
            struct.pack_into(">q", batch, 0, number * COUNT)
            file.write(batch)
    done = subprocess.run(
        [
            java(), "-cp", class_path("3.9.1"), "kafka.tools.DumpLogSegments",
            "--files", segment, "--deep-iteration", "--print-data-log",
        ],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.findall(r"compresscodec: (\w+) crc: \d+ isvalid: (\w+)", done.stdout) == [
        (codec, "true") for codec in CODECS
    ]
    expected = [
        f"| offset: {offset} CreateTime: {time} keySize: {-1 if key is None else len(key)}"
        f" valueSize: {-1 if value is None else len(value)} sequence: -1"
        f" headerKeys: [{','.join(str(header['key']) for header in headers)}]"
        f"{'' if key is None else f' key: {key.decode()}'}{'' if value is None else f' payload: {value.decode()}'}"
        for offset, (key, value, time, headers) in enumerate(rows * len(CODECS))
    ]
    assert [line for line in done.stdout.splitlines() if line.startswith("| ")] == expected
