"""Java's clients of 0.9, 0.10, 0.11 and today on brokers that wrote their formats, and the log on every later release.

Kafka 2.8 with ZooKeeper writes what they send, a topic's `message.format.version` rising as in upgrades. Its log is
then opened by 3.3 and by 3.9, and its segments are put into the log of today's broker, which has no ZooKeeper. On each,
this package (from 3.3 on), librdkafka and Java read the same. docs/tested.md has the table.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.jars import PERF_TOOLS_VERSION
from spark_kafka_eos.errors import BrokerError
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.broker.test_old_formats import as_java_prints, configure, javas, magics, plant
from tests.conftest import KAFKA_39, KAFKA_OLDEST
from tests.kafka_tools import tool, tool_before_1
from tests.producing import KEEP
from tests.reading import librdkafkas, table
from tests.zookeeper import serve

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(540)]

LAST_WITH_ALL, TODAY = "2.8.2", PERF_TOOLS_VERSION
PRODUCERS = ("0.9.0.1", "0.10.2.2", "0.11.0.3", TODAY)
FORMATS = {"0.9.0": 0, "0.10.0": 1, "0.11.0": 2}  # message.format.version, and its magic
CODECS = ("none", "gzip", "snappy", "lz4")
EACH = 20
READERS = (LAST_WITH_ALL, KAFKA_OLDEST, KAFKA_39, jars.DEFAULT_VERSION)

Rows = list[tuple[str, ...]]
"""Timestamp, offset, key and value, as the Java consumer prints them."""


def write(bootstrap: str, topic: str, producer: str, compression: str, text: str) -> None:
    """`EACH` records, of which the first has an empty value, in record batches of a few records."""
    lines = "".join(f"k{n % 3}\t{f'{text} {n} ' * n}\n" for n in range(EACH))
    common = ["--topic", topic, "--compression-codec", compression, "--batch-size", 500, "--request-required-acks", 1]
    if producer == TODAY:
        where = ["--bootstrap-server", bootstrap, "--reader-property", "parse.key=true"]
        plain = ["--command-property", "enable.idempotence=false"]  # which these formats do not have
        tool("ConsoleProducer", *common, *where, *plain, given=lines)
    else:
        where = ["--broker-list", bootstrap, "--property", "parse.key=true"]
        tool_before_1(producer, "ConsoleProducer", *common, *where, given=lines)


def fill(bootstrap: str, log: Path, topic: str, compression: str) -> None:
    for message_format, magic in FORMATS.items():
        configure(bootstrap, topic, {"message.format.version": message_format})
        deadline = time.monotonic() + 60
        while True:  # the broker hears of a change a moment later
            write(bootstrap, topic, PRODUCERS[0], compression, f"{message_format} heard of")
            if magics((log / f"{topic}-0").glob("*.log"))[-1:] == [magic]:
                break
            assert time.monotonic() < deadline, f"{topic} is not written with magic {magic}"
        for producer in PRODUCERS:
            write(bootstrap, topic, producer, compression, f"{message_format} by {producer}")


def read_by_all(bootstrap: str, topic: str, *, too_old: bool = False) -> Rows:
    """What the three read, if they agree; from a broker that is `too_old` for this package, the others."""
    theirs = librdkafkas(bootstrap, topic)
    read = javas(bootstrap, topic, len(theirs))
    if too_old:
        with pytest.raises(BrokerError, match="Fetch: versions .*Upgrade the brokers to Kafka 3.3"):
            table(bootstrap, topic)
    else:
        mine = table(bootstrap, topic)
        assert as_java_prints(mine) == read
    # librdkafka gives a message without a timestamp another one than Java does.
    assert [(row[2], row[4], row[5]) for row in theirs] == [
        (int(offset.removeprefix("Offset:")), key.encode(), value.encode()) for _, offset, key, value in read
    ]
    return read


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Rows]]:
    """By release of the broker and by codec: what all read."""
    folder, found = tmp_path_factory.mktemp("zookeeper"), {}
    with serve(folder, LAST_WITH_ALL) as bootstrap:
        for codec in CODECS:
            fill(bootstrap, folder / "log", codec, codec)
        found[LAST_WITH_ALL] = {codec: read_by_all(bootstrap, codec, too_old=True) for codec in CODECS}
    for release in (KAFKA_OLDEST, KAFKA_39):
        with serve(folder, release, inter_broker_protocol_version="2.8") as bootstrap:
            found[release] = {codec: read_by_all(bootstrap, codec) for codec in CODECS}
    directory = tmp_path_factory.mktemp("today")
    with EmbeddedKafka(directory=directory) as kafka:
        for codec in CODECS:
            kafka.create_topic(codec, config=KEEP)
        kafka.stop()
        for codec in CODECS:
            (there,) = directory.glob(f"**/{codec}-0")
            plant(there, {log.name: log.read_bytes() for log in (folder / "log" / f"{codec}-0").glob("*.log")})
        kafka.start()
        found[jars.DEFAULT_VERSION] = {codec: read_by_all(kafka.bootstrap, codec) for codec in CODECS}
    return found


@pytest.mark.parametrize("release", READERS[1:])
def test_every_later_broker_returns_the_same(readings, release):
    assert readings[release] == readings[LAST_WITH_ALL]


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("message_format", FORMATS)
def test_what_a_client_wrote_is_read_whole(readings, cell, message_format, codec, producer):
    cell("Message formats", f"v{FORMATS[message_format]}, {codec}", f"Producer {producer}")
    text = f"{message_format} by {producer}"
    written = [(f"k{n % 3}", f"{text} {n} " * n) for n in range(EACH)]
    for release in READERS:
        found = [row for row in readings[release][codec] if row[3].startswith(text)]
        assert [row[2:] for row in found] == written[1:]
        kind = "NO_TIMESTAMP" if message_format == "0.9.0" else "CreateTime:"
        assert all(row[0].startswith(kind) for row in found)
