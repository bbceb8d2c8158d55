"""What the check of a soak reads: the truth is in the topics, whatever happens to the connections meanwhile."""

import time

import pytest

from lab.soak import evidence
from lab.soak.check import Copied
from lab.soak.queries import ABORTED, MIRROR, SOURCE, output
from lab.soak.source import KEYS, Source
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.tools.verify.provenance_bytes import pack
from tests.producing import produce

pytestmark = pytest.mark.broker


def await_that(source, condition):
    deadline = time.monotonic() + 60
    while not condition():
        source.check()
        assert time.monotonic() < deadline, "the source is stuck"
        time.sleep(0.05)


def test_readers_see_each_committed_number_once_and_no_aborted_one_though_connections_are_cut(kafka) -> None:
    kafka.create_topic(SOURCE, 4)
    with Proxy(kafka.bootstrap) as proxy:
        source = Source(proxy.bootstrap, rate=2_000)
        source.start()
        for wanted in (1_000, 3_000, 5_000):
            await_that(source, lambda wanted=wanted: source.committed >= wanted)
            proxy.cut()
        await_that(source, lambda: source.aborted > 0)
        source.stop()
    records = evidence.source_records(kafka.bootstrap)
    everything = [m.value() or b"" for m in read_topic(kafka.bootstrap, SOURCE, "read_uncommitted")]
    assert len({record.number for record in records}) == len(records) >= 5_000
    assert {record.key for record in records} == {f"key-{number:03}" for number in range(KEYS)}
    assert source.aborted > 0
    assert sum(value.startswith(ABORTED.encode()) for value in everything) >= source.aborted
    visible = [m.value() or b"" for m in read_topic(kafka.bootstrap, SOURCE, "read_committed")]
    assert not any(value.startswith(ABORTED.encode()) for value in visible)


def test_a_copy_is_read_with_the_place_of_its_batch_whatever_somebody_else_wrote_between(kafka, monkeypatch) -> None:
    monkeypatch.setattr(evidence, "_AT_ONCE", 2)
    kafka.create_topic(output(MIRROR), 1)
    copied = pack([0, 3, 3], [7, 8, 9], [0, 1, 5], 2, payload=b"41").to_pylist()
    produce(kafka.bootstrap, output(MIRROR), [*copied, b"foreign", None], key=b"key-001")
    assert list(evidence.copies(kafka.bootstrap, MIRROR, {(0, 0): 9, (2, 0): 10, (2, 1): 11})) == [
        (10, Copied(0, 7, "key-001", "41")),
        (11, Copied(3, 8, "key-001", "41")),
        (-1, Copied(3, 9, "key-001", "41")),
        (-1, Copied(-1, -1, "key-001", "")),
        (-1, Copied(-1, -1, "key-001", "")),
    ]
