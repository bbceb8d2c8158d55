"""What a transaction meets where a topic has, or gets, a message format before 0.11: what is committed, and what not.

The broker is Kafka 3.3 with ZooKeeper, as it was between the two steps of an upgrade: the last one that heeds
`message.format.version`. And what clients of the time write beside a transaction's output, and read of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from kafka.protocol.consumer.fetch import FetchRequest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import BrokerError, BrokerUnreachable
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import PLAIN, ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.legacy import as_record_batches
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions, sink_options
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import reads
from tests.broker.conftest import options_of
from tests.broker.test_old_formats import configure
from tests.conftest import KAFKA_OLDEST
from tests.kafka_tools import tool_before_1
from tests.producing import produce, transact
from tests.reading import await_stable, librdkafkas, ours
from tests.zookeeper import serve

pytestmark = pytest.mark.broker

OLD, NEW = "0.10.0", "2.8"
SINGLE = {"transaction_state_log_num_partitions": 1, "transaction_state_log_replication_factor": 1}


class Upgraded(NamedTuple):
    """A broker, and the file that it logs to."""

    bootstrap: str
    log: Path

    def lower(self, topic: str) -> None:
        """Give the topic the old format, and wait until its log has it."""
        configure(self.bootstrap, topic, {"message.format.version": OLD})
        self.logged(f"partition={topic}-0", "Record format version has been downgraded from V2 to V1")

    def raise_again(self, topic: str) -> None:
        """Give the topic back the format of today, and wait until the broker has heard of it."""
        configure(self.bootstrap, topic, {"message.format.version": NEW})
        self.logged("Processing override", f"topics/{topic} ", f"message.format.version -> {NEW}")

    def logged(self, *words: str) -> None:
        deadline = time.monotonic() + 60
        while not any(all(word in line for word in words) for line in self.log.read_text().splitlines()):
            assert time.monotonic() < deadline, f"the broker does not log {words}"
            time.sleep(0.02)


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    folder = tmp_path_factory.mktemp("upgraded")
    settings = SINGLE | {"transaction_state_log_min_isr": 1, "inter_broker_protocol_version": NEW}
    with serve(folder, KAFKA_OLDEST, **settings) as bootstrap:
        yield Upgraded(bootstrap, folder / "broker.log")


def options(upgraded: Upgraded, topic: str, **given: str) -> SinkOptions:
    named = {"kafka.bootstrap.servers": upgraded.bootstrap, "topic": topic}
    return sink_options(named | (given or {"kafka.transactional.id": topic}))


def wrong(options: SinkOptions) -> list[Finding]:
    with Cluster(options.client) as cluster:
        return [found for found in examine(cluster, options) if "message.format.version" in found.found]


class Driver:
    """Writes batches of one record each, whose value is the batch's number; a new one is a restarted one."""

    def __init__(self, upgraded: Upgraded, topic: str) -> None:
        self._options = options(upgraded, topic)
        self._cluster = Cluster(self._options.client)
        self._transaction = SharedTransaction(self._options, self._cluster, decide_micro_batch(self._options))
        self._partition = TopicPartition(topic, 0)

    def write(
        self, batch_id: int, *, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
    ) -> None:
        """`before` is called when the batch has begun, `after` when its record is appended."""
        source = {self._partition: batch_id}, {self._partition: batch_id + 1}  # any topic that exists
        batch = MicroBatch(query_id="q", batch_id=batch_id, digest="", sources=reads(source[0], source[1]))
        block = encode(pa.array([None], pa.binary()), pa.array([b"%d" % batch_id]), int(time.time() * 1000))

        def appended(identity: ProducerIdentity) -> Appended:
            append(self._cluster, identity, [(self._partition, 1, block)])
            return Appended(partitions=1, records=1, bytes=len(block))

        self._transaction.begin(batch)
        try:
            before()
            self._transaction.append(appended)
            after()
            self._transaction.commit(batch)
        except BaseException:
            self._transaction.abort()
            raise


def seen(upgraded: Upgraded, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    """What librdkafka's consumer reads."""
    return [row[5] for row in librdkafkas(upgraded.bootstrap, topic, isolation_level=isolation_level)]


@pytest.mark.parametrize(
    ("given", "severities"),
    [
        ({"kafka.transactional.id": "t"}, [Severity.ERROR]),
        ({"deliveryGuarantee": "at-least-once"}, [Severity.ERROR]),
        ({"deliveryGuarantee": "at-least-once", "kafka.enable.idempotence": "requested"}, [Severity.WARNING]),
        ({"deliveryGuarantee": "at-least-once", "kafka.enable.idempotence": "off"}, []),
    ],
    ids=["exactly-once", "required", "requested", "off"],
)
def test_the_preflight_names_an_output_in_an_old_format_as_far_as_it_matters(upgraded, given, severities):
    configure(upgraded.bootstrap, "checked", {"message.format.version": OLD})
    found = wrong(options(upgraded, "checked", **given))
    assert [(each.severity, each.subject) for each in found] == [(severity, "topic checked") for severity in severities]
    assert all(each.found.endswith("with inter.broker.protocol.version 2.8") for each in found)


HEADERS = pa.array([[{"key": "a", "value": b"1"}]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))


@pytest.mark.parametrize("what", [{"headers": HEADERS}, {"compression_type": "zstd"}], ids=["headers", "zstd"])
def test_an_old_format_has_neither_headers_nor_zstd_and_the_error_says_where_to_look(upgraded, what):
    topic = "plain"
    configure(upgraded.bootstrap, topic, {"message.format.version": OLD})
    block = encode(pa.array([b"k"]), pa.array([b"v"]), int(time.time() * 1000), **what)
    with Cluster(options(upgraded, topic).client) as cluster, pytest.raises(BrokerError, match=r"The broker's log has"):
        append(cluster, PLAIN, [(TopicPartition(topic, 0), 1, block)])
    assert seen(upgraded, topic) == []


def test_a_batch_in_whose_middle_the_format_is_lowered_commits_nothing_and_a_restart_writes_it_once(upgraded):
    topic = "lowered"
    configure(upgraded.bootstrap, topic, {"message.format.version": NEW})
    driver = Driver(upgraded, topic)
    driver.write(0)
    with pytest.raises(BrokerError, match=r"Nothing was committed\. .*message\.format\.version before 0\.11\.0"):
        driver.write(1, before=lambda: upgraded.lower(topic))
    assert seen(upgraded, topic) == [b"0"]
    upgraded.raise_again(topic)
    Driver(upgraded, topic).write(1)
    await_stable(upgraded.bootstrap, topic)
    assert seen(upgraded, topic) == [b"0", b"1"]


@pytest.mark.parametrize(("restarted", "left"), [(False, [b"0", b"1"]), (True, [b"1"])], ids=["goes on", "restarted"])
def test_a_format_that_is_lowered_before_the_marker_leaves_a_committed_batch_to_the_fate_of_the_next(
    upgraded, restarted, left
):
    """The coordinator answers that the transaction is committed, and leaves out the marker in that topic. The next
    marker ends it: that of the next batch, or of the fence when a driver starts, which aborts."""
    topic = "restarted" if restarted else "goes-on"
    configure(upgraded.bootstrap, topic, {"message.format.version": NEW})
    driver = Driver(upgraded, topic)
    driver.write(0, after=lambda: upgraded.lower(topic))
    upgraded.logged(f"transaction marker from partition {topic}-0 has failed")
    assert seen(upgraded, topic) == [] and seen(upgraded, topic, "read_uncommitted") == [b"0"]
    upgraded.raise_again(topic)
    (Driver(upgraded, topic) if restarted else driver).write(1)
    await_stable(upgraded.bootstrap, topic)
    assert seen(upgraded, topic) == left


def test_offsets_that_cannot_be_committed_in_a_transaction_say_so_before_the_batch_and_in_it(upgraded):
    topic = "offsets"
    configure(upgraded.bootstrap, topic, {"message.format.version": NEW})
    driver = Driver(upgraded, topic)
    driver.write(0)
    upgraded.lower(OFFSETS_TOPIC)
    (found,) = wrong(options(upgraded, topic))
    assert (found.severity, found.subject) == (Severity.ERROR, f"topic {OFFSETS_TOPIC}")
    with pytest.raises(BrokerError, match=r"UNSUPPORTED_FOR_MESSAGE_FORMAT .* It is __consumer_offsets that has"):
        driver.write(1)
    assert seen(upgraded, topic) == [b"0"]
    upgraded.raise_again(OFFSETS_TOPIC)
    driver.write(1)
    await_stable(upgraded.bootstrap, topic)
    assert seen(upgraded, topic) == [b"0", b"1"]


# -- clients before Kafka 0.11


@pytest.fixture(scope="module")
def output(upgraded: Upgraded) -> str:
    """A topic with a committed batch, one that was aborted, and its repetition."""
    topic = "output"
    configure(upgraded.bootstrap, topic, {"message.format.version": NEW})
    driver = Driver(upgraded, topic)

    def fail() -> None:
        raise RuntimeError("as if the driver had a bug")

    driver.write(0)
    with pytest.raises(RuntimeError):
        driver.write(1, after=fail)
    driver.write(1)
    await_stable(upgraded.bootstrap, topic)
    return topic


def consumed_by(release: str, bootstrap: str, topic: str, *given: object) -> list[str]:
    """What Java's console consumer of `release` sees; it stops when nothing comes for some seconds."""
    where = ["--new-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
    return tool_before_1(release, "ConsoleConsumer", *where, "--timeout-ms", 5_000, *given).splitlines()


@pytest.mark.parametrize(
    ("release", "given", "seen"),
    [
        pytest.param("0.9.0.1", [], ["0", "1", "1"], marks=pytest.mark.slow),
        ("0.10.2.2", [], ["0", "1", "1"]),
        pytest.param("0.11.0.3", [], ["0", "1", "1"], marks=pytest.mark.slow),
        pytest.param("0.11.0.3", ["--isolation-level", "read_committed"], ["0", "1"], marks=pytest.mark.slow),
    ],
)
def test_a_consumer_before_0_11_sees_aborted_records_and_no_markers(upgraded, output, release, given, seen):
    assert consumed_by(release, upgraded.bootstrap, output, *given) == seen


def fetch(bootstrap: str, topic: str, version: int, offset: int = 0) -> memoryview:
    """The records of an answer to this version of Fetch, which is older than any that this package uses."""
    of: Any = FetchRequest.FetchTopic
    part = of.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    given: Mapping[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    request = FetchRequest(replica_id=-1, topics=[of(topic=topic, partitions=[part])], **given)
    client = options_of(bootstrap)
    ((host, port),) = client.bootstrap_servers
    connection = Connection(host, port, client)
    try:
        answer: Any = connection.receive(connection._send(request, version))
    finally:
        connection.close()
    return memoryview(answer.responses[0].partitions[0].records)


def decoded(records: memoryview) -> list[tuple[int, int, int, bytes | None]]:
    batches = as_record_batches(records)
    rows = decode(batches, [header for header in scan(batches) if not header.is_control])
    names = ("offset", "timestampType", "timestamp", "value")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def fetched(bootstrap: str, topic: str, version: int, count: int) -> list[tuple[int, int, int, bytes | None]]:
    """The first `count` records of a topic without gaps. A broker that converts reserves the size that its log has, and
    ends an answer before a batch that has grown beyond it: the reader asks again."""
    rows: list[tuple[int, int, int, bytes | None]] = []
    while len(rows) < count:
        answer = decoded(fetch(bootstrap, topic, version, len(rows)))
        assert answer, f"nothing at offset {len(rows)}"
        rows += answer
    return rows


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_what_a_broker_converts_for_old_fetches_is_decoded_to_the_same_records(upgraded, compression):
    topic = f"converted-{compression}"
    configure(upgraded.bootstrap, topic, {"message.format.version": NEW})
    values = [b"%d" % n * n for n in range(100)]
    produce(upgraded.bootstrap, topic, values, compression=compression, timestamp=1_500_000_000_000)
    versions = {0: 1, 1: 3, 2: 4}
    assert {magic: fetch(upgraded.bootstrap, topic, version)[16] for magic, version in versions.items()} == {
        magic: magic for magic in versions
    }
    before, between, of_today = (fetched(upgraded.bootstrap, topic, versions[magic], 100) for magic in (0, 1, 2))
    assert [row[3] for row in of_today] == values
    assert between == of_today
    assert before == [(offset, -1, -1, value) for offset, _, _, value in of_today]


def test_a_broker_leaves_markers_out_when_it_converts_and_keeps_what_was_aborted(upgraded, output):
    everything = librdkafkas(upgraded.bootstrap, output, isolation_level="read_uncommitted")
    for version in (1, 3):
        assert [row[::3] for row in decoded(fetch(upgraded.bootstrap, output, version))] == [
            (row[2], row[5]) for row in everything
        ]


def test_a_broker_of_today_closes_the_connection_on_an_old_fetch(bootstrap, topic):
    with pytest.raises(BrokerUnreachable, match="closed the connection"):
        fetch(bootstrap, topic("old-fetch"), 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "given", "seen"),
    [
        ("0.10.2.2", [], []),
        ("0.11.0.3", [], ["aborted", "it"]),
        ("0.11.0.3", ["--isolation-level", "read_committed"], ["it"]),
    ],
)
def test_a_consumer_of_0_10_reads_nothing_from_a_broker_of_today(bootstrap, topic, release, given, seen):
    name = topic("old-consumer")
    transact(bootstrap, name, [b"aborted"], "abort")
    transact(bootstrap, name, [b"it"], "commit")
    assert consumed_by(release, bootstrap, name, *given) == seen


def test_a_producer_of_0_9_writes_beside_the_output_of_transactions(upgraded):
    old, topic = "theirs", "beside"
    configure(upgraded.bootstrap, old, {"message.format.version": "0.9.0"})
    configure(upgraded.bootstrap, topic, {"message.format.version": NEW})
    driver = Driver(upgraded, topic)
    for number in range(2):
        where = ["--broker-list", upgraded.bootstrap, "--topic", old, "--request-required-acks", 1]
        tool_before_1("0.9.0.1", "ConsoleProducer", *where, "--compression-codec", "lz4", given=f"old {number}\n")
        driver.write(number)
    assert [(row[3], row[5]) for row in ours(upgraded.bootstrap, old)] == [(-1, b"old 0"), (-1, b"old 1")]
    assert [row[5] for row in ours(upgraded.bootstrap, topic)] == [b"0", b"1"]
