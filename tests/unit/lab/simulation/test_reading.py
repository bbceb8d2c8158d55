"""What the model gives to readers: the bytes that were appended, markers, ends, and why not."""

from __future__ import annotations

import pytest

from lab.simulation.chance import Seeded
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.wire.decode import control_marker, decode
from spark_kafka_eos.kafka.wire.record_batch import check_crc, scan
from tests.transacting import ModelSide

ID = "id"
OUT = TopicPartition("out", 0)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def side(request):
    return ModelSide(request.param)


def begun(side, name=ID):
    _, *held = side.init(name)
    if side.version < 2:
        side.add(name, held, 0)
    return held


def written(side, values, *, commit, name=ID):
    """A transaction of one batch."""
    held = begun(side, name)
    assert side.produce(name, held, 0, 0, values)[0] == 0
    side.end(name, held, commit)
    return held


def told(answer):
    """Base offset, and values or kind of marker, of each record batch."""
    found = []
    for header in scan(answer.records):
        check_crc(answer.records, header)
        if header.is_control:
            found.append((header.base_offset, control_marker(answer.records, header)))
        else:
            found.append((header.base_offset, decode(answer.records, [header])["value"].to_pylist()))
    return found


def test_the_records_come_as_they_were_appended_between_the_markers_of_their_transactions(side):
    written(side, [b"a", b"b"], commit=True)
    written(side, [b"c"], commit=False)
    begun(side)
    answer = side.read(0, 0)
    assert told(answer) == [(0, [b"a", b"b"]), (2, "commit"), (3, [b"c"]), (4, "abort")]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (5, 5, 0)
    headers = list(scan(answer.records))
    assert [header.producer_id for header in headers] == [1] * 4
    if side.version < 2:
        assert [header.producer_epoch for header in headers] == [0, 0, 1, 1]
    else:  # a marker bears the epoch that follows
        assert [header.producer_epoch for header in headers] == [0, 1, 2, 3]


def test_a_batch_comes_whole_wherever_in_it_the_reader_begins(side):
    written(side, [b"a", b"b", b"c"], commit=True)
    assert [base for base, _ in told(side.read(0, 2))] == [0, 3]
    assert [base for base, _ in told(side.read(0, 3))] == [3]
    assert told(side.read(0, 4)) == []


def test_a_reader_of_committed_data_gets_what_is_stable_and_a_list_of_what_was_aborted(side):
    written(side, [b"a"], commit=False)
    written(side, [b"b"], commit=True)
    held = begun(side, "other")
    side.produce("other", held, 0, 0, [b"c"])
    written(side, [b"d"], commit=True)
    answer = side.read(0, 0, committed=True)
    assert [base for base, _ in told(answer)] == [0, 1, 2, 3]
    assert (answer.high_watermark, answer.last_stable_offset) == (7, 4)
    assert [(a.producer_id, a.first_offset) for a in answer.aborted] == [(1, 0)]
    assert side.read(0, 2, committed=True).aborted == ()
    assert [base for base, _ in told(side.read(0, 0))] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_that_is_not_there_is_out_of_range(side, offset):
    written(side, [b"a"], commit=True)
    assert side.read(0, offset).error_code == 1


def test_a_first_batch_above_the_limit_is_returned_nevertheless(side):
    written(side, [b"a" * 1_000], commit=True)
    assert told(side.read(0, 0, max_bytes=1)) == [(0, [b"a" * 1_000])]
    whole = side.read(0, 0)
    assert side.read(0, 0, partition_max_bytes=1_100).records == whole.records[:1_100]


def test_the_products_reader_follows_leaders_and_topics(side):
    written(side, [b"a"], commit=True)
    ranges = [OffsetRange(partition=OUT, start=0, end=2)]
    fetcher = Fetcher(side.cluster, isolation_level="read_uncommitted")
    for seed in range(10):
        side.kafka.move(Seeded(seed))
        (fetched,) = fetcher.fetch(ranges)
        assert (fetched.next_offset, fetched.high_watermark, fetched.last_stable_offset) == (2, 2, 2)


def test_the_partitions_ends_are_listed_at_both_isolation_levels(side):
    written(side, [b"a"], commit=True)
    held = begun(side)
    side.produce(ID, held, 0, 0, [b"b"])
    assert offsets.earliest(side.cluster, [OUT]) == {OUT: 0}
    assert offsets.latest(side.cluster, [OUT]) == {OUT: 2}
    assert offsets.latest(side.cluster, [OUT], isolation_level="read_uncommitted") == {OUT: 3}


def test_a_reader_waits_where_there_is_nothing(side):
    before = side.world.now
    assert told(side.read(0, 0)) == []
    assert side.world.now - before > 0.05  # the request's max_wait_ms
