"""The fetcher against a scripted broker: positions, rotation, what it asks for, errors."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, BrokerUnreachable, CorruptRecordBatch, DataLoss
from spark_kafka_eos.kafka.fetching.fetch import Fetcher, estimates_of
from spark_kafka_eos.kafka.fetching.fetch_response import FetchResponse, PartitionData
from spark_kafka_eos.kafka.fetching.fetch_steps import EpochEndOffset
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction
from spark_kafka_eos.kafka.wire.encode import encode

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record_batch(base_offset, records=10, value=b"v", *, epoch=-1):
    batch = encode(pa.array([None] * records, pa.binary()), pa.array([value] * records), 0)
    batch[:8] = base_offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(batch)


def data(broker, partition, records=b"", *, error_code=0, aborted=(), diverging=None, last_stable_offset=900):
    return PartitionData(
        topic_id=broker.topic_id,
        partition=partition.partition,
        error_code=error_code,
        high_watermark=1000,
        last_stable_offset=last_stable_offset,
        log_start_offset=0,
        aborted=aborted,
        records=memoryview(bytearray(records)),
        diverging=diverging,
    )


def response(*partitions, error_code=0, throttle_ms=0):
    return FetchResponse(throttle_ms=throttle_ms, error_code=error_code, partitions=partitions)


def log(broker, *, batches_each=1, limit=10**9):
    """Answers Fetch from an endless log of batches of ten records, `batches_each` of them a partition and request."""

    def answer(request):
        found = []
        for topic in request.topics:
            for p in topic.partitions:
                base = p.fetch_offset // 10 * 10
                records = b"".join(record_batch(base + 10 * n) for n in range(batches_each) if base + 10 * n < limit)
                found.append(data(broker, TopicPartition("orders", p.partition), records))
        return response(*found)

    return answer


def fetch(broker, *ranges, topic_id=None, **options):
    fetcher = Fetcher(broker.cluster(), **options)
    wanted = [OffsetRange(partition=tp, start=start, end=end, topic_id=topic_id) for tp, start, end in ranges]
    return list(fetcher.fetch(wanted))


def asked(broker):
    """Of each request: {partition: offset}."""
    return [
        {p.partition: p.fetch_offset for topic in request.topics for p in topic.partitions}
        for request in broker.sent("Fetch")
    ]


def test_a_range_ends_by_position(broker):
    broker.script["Fetch"] += [log(broker)] * 10
    fetched = fetch(broker, (FIRST, 0, 30))
    assert [f.next_offset for f in fetched] == [10, 20, 30]
    assert asked(broker) == [{0: 0}, {0: 10}, {0: 20}]


def test_a_range_that_ends_in_a_gap_ends(broker):
    # Offsets 10 to 49 are gone (compacted); the next batch begins after the end.
    broker.script["Fetch"].append(response(data(broker, FIRST, record_batch(0) + record_batch(50))))
    fetched = fetch(broker, (FIRST, 0, 10))
    assert [f.next_offset for f in fetched] == [10]
    broker.script["Fetch"].append(response(data(broker, FIRST, record_batch(50))))
    (found,) = fetch(broker, (FIRST, 10, 40))
    assert found.next_offset == 60


def test_batches_after_the_end_are_omitted(broker):
    broker.script["Fetch"].append(log(broker, batches_each=5))
    (found,) = fetch(broker, (FIRST, 3, 25))
    assert [header.base_offset for header in found.batches] == [0, 10, 20]
    assert [header.position for header in found.batches] == [0, len(record_batch(0)), 2 * len(record_batch(0))]


def test_what_follows_a_range_without_its_last_records_is_asked_for_but_not_read(broker):
    broker.script["Fetch"] += [
        response(data(broker, FIRST, last_stable_offset=20)),
        response(data(broker, FIRST, record_batch(20))),
    ]
    assert fetch(broker, (FIRST, 10, 20)) == []
    assert [request.isolation_level for request in broker.sent("Fetch")] == [1, 0]


def test_an_empty_range_asks_nothing(broker):
    assert fetch(broker, (FIRST, 5, 5), (SECOND, 7, 6)) == []
    assert broker.requests == []


def test_one_request_covers_all_partitions_of_a_leader(broker):
    broker.script["Fetch"] += [log(broker)] * 10
    fetched = fetch(broker, (FIRST, 0, 20), (SECOND, 0, 10))
    assert asked(broker) == [{0: 0, 1: 0}, {0: 10}]
    assert [f.partition for f in fetched] == [FIRST, SECOND, FIRST]


def test_the_next_request_is_sent_before_the_last_response_is_returned(broker):
    broker.script["Fetch"] += [log(broker)] * 10
    fetching = Fetcher(broker.cluster()).fetch([OffsetRange(partition=FIRST, start=0, end=30)])
    next(fetching)
    assert asked(broker) == [{0: 0}, {0: 10}]
    fetching.close()


def test_a_reader_that_stops_early_leaves_no_response_unread(broker):
    broker.script["Fetch"] += [log(broker)] * 10
    fetching = Fetcher(broker.cluster()).fetch([OffsetRange(partition=FIRST, start=0, end=30)])
    next(fetching)
    fetching.close()
    assert not broker.connections[0].usable


def test_only_committed_data_is_requested_by_default(broker):
    broker.script["Fetch"] += [log(broker)] * 2
    fetch(broker, (FIRST, 0, 10))
    fetch(broker, (FIRST, 0, 10), isolation_level="read_uncommitted")
    assert [request.isolation_level for request in broker.sent("Fetch")] == [1, 0]


def test_limits_are_passed_on(broker):
    broker.script["Fetch"].append(log(broker))
    fetch(broker, (FIRST, 0, 10), fetch_max_bytes=1_000, max_partition_fetch_bytes=500, fetch_max_wait_ms=7)
    (request,) = broker.sent("Fetch")
    assert (request.max_bytes, request.max_wait_ms, request.min_bytes) == (1_000, 7, 1)
    assert request.topics[0].partitions[0].partition_max_bytes == 500


def test_a_small_range_does_not_ask_for_megabytes_once_record_sizes_are_known(broker):
    broker.script["Fetch"] += [log(broker, batches_each=3)] * 2
    fetcher = Fetcher(broker.cluster(), max_partition_fetch_bytes=8 << 20)
    for start in (0, 1_000_000):
        for _ in fetcher.fetch([OffsetRange(partition=FIRST, start=start, end=start + 30)]):
            pass
    sizes = [request.topics[0].partitions[0].partition_max_bytes for request in broker.sent("Fetch")]
    assert sizes[1] < sizes[0] < 128_000


def test_what_one_task_learned_serves_the_next_one_of_the_process(broker):
    broker.script["Fetch"] += [log(broker, batches_each=3)] * 2
    cluster = broker.cluster()
    for _ in range(2):
        for _ in Fetcher(cluster, estimates=estimates_of(cluster)).fetch(
            [OffsetRange(partition=FIRST, start=0, end=30)]
        ):
            pass
    sizes = [request.topics[0].partitions[0].partition_max_bytes for request in broker.sent("Fetch")]
    assert sizes[1] < sizes[0]
    assert estimates_of(broker.cluster()) != estimates_of(cluster), "of another cluster nothing is known yet"


def test_aborted_transactions_and_watermarks_are_passed_on(broker):
    aborted = (AbortedTransaction(producer_id=9, first_offset=3),)
    broker.script["Fetch"].append(response(data(broker, FIRST, record_batch(0), aborted=aborted)))
    (found,) = fetch(broker, (FIRST, 0, 10))
    assert (found.aborted, found.high_watermark, found.last_stable_offset) == (aborted, 1000, 900)


def test_a_truncated_last_batch_is_left_for_the_next_fetch(broker):
    cut = record_batch(0) + record_batch(10)[:-1]
    broker.script["Fetch"] += [response(data(broker, FIRST, cut)), log(broker)]
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 20))] == [10, 20]


def test_a_partition_that_got_nothing_is_asked_for_first_next_time(broker):
    full = response(data(broker, FIRST, record_batch(0)), data(broker, SECOND))
    broker.script["Fetch"] += [full, *[log(broker)] * 10]
    fetch(broker, (FIRST, 0, 20), (SECOND, 0, 10))
    assert [list(offsets) for offsets in asked(broker)] == [[0, 1], [1, 0]]


def test_a_first_partition_without_one_whole_batch_is_corrupt(broker):
    broker.script["Fetch"].append(response(data(broker, FIRST, record_batch(0)[:-1])))
    with pytest.raises(CorruptRecordBatch, match="orders-0, fetched from offset 0"):
        fetch(broker, (FIRST, 0, 10))


def test_offsets_that_are_gone_are_named_with_what_is_left(broker):
    broker.script["Fetch"].append(response(data(broker, SECOND, error_code=1)))
    with pytest.raises(DataLoss, match="orders-1: offsets from 5 to 10 were planned, but the broker has 20 to 30"):
        fetch(broker, (SECOND, 5, 10))


def test_a_leader_that_has_not_heard_of_its_successor_is_not_taken_for_data_loss(broker):
    outdated = response(data(broker, FIRST, error_code=1))  # its log ends at 30
    broker.script["Fetch"] += [outdated, outdated, log(broker), outdated, log(broker)]
    assert [f.next_offset for f in fetch(broker, (FIRST, 40, 60))] == [50, 60]
    assert len(broker.sent("Metadata")) == 4, "looked up again each time"


def test_a_log_that_stays_shorter_than_the_plan_is_data_loss_within_seconds(broker):
    broker.script["Fetch"] += [response(data(broker, FIRST, error_code=1))] * 1_000
    before = broker.clock.now
    with pytest.raises(DataLoss, match="orders-0: offsets from 40 to 60 were planned, but the broker has 20 to"):
        fetch(broker, (FIRST, 40, 60))
    assert 4 < broker.clock.now - before < 7


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 9, 56, 74, 75, 78, 100])
def test_a_passing_error_is_ridden_through(broker, code):
    broker.script["Fetch"] += [response(data(broker, FIRST, error_code=code)), *[log(broker)] * 10]
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 20))] == [10, 20]


@pytest.mark.parametrize("code", [-1, 7, 70, 71, 103, 106])
def test_a_passing_error_of_the_whole_request_is_ridden_through(broker, code):
    broker.script["Fetch"] += [response(error_code=code), *[log(broker)] * 10]
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 20))] == [10, 20]


def test_an_error_of_the_whole_request_that_no_retry_mends_is_raised(broker):
    broker.script["Fetch"].append(response(error_code=42))
    with pytest.raises(BrokerError, match="INVALID_REQUEST.*a request to broker:9092"):
        fetch(broker, (FIRST, 0, 20))


def _nothing(broker):
    return response(data(broker, FIRST, last_stable_offset=0))


def _moved(broker):
    return response(data(broker, FIRST, error_code=6))


def _lost(broker):
    return BrokerUnreachable("broker:9092: the broker closed the connection")


@pytest.mark.parametrize("trouble", [_nothing, _moved, _lost])
def test_the_time_that_the_reader_takes_counts_against_no_budget(broker, trouble):
    broker.script["Fetch"] += [log(broker), trouble(broker)] * 3 + [log(broker)] * 3
    found = []
    for part in Fetcher(broker.cluster()).fetch([OffsetRange(partition=FIRST, start=0, end=60)]):
        found.append(part.next_offset)
        broker.clock.now += 3_600
    assert found == [10, 20, 30, 40, 50, 60]


def test_the_time_that_the_reader_takes_does_not_settle_a_doubt(broker):
    def outdated(request):  # of the first partition, whose log ends at 30 there; the other one has something
        found = log(broker)(request).partitions
        return response(*(p if p.partition == 1 else data(broker, FIRST, error_code=1) for p in found))

    broker.script["Fetch"] += [outdated] * 5 + [log(broker)] * 10
    wanted = [OffsetRange(partition=FIRST, start=40, end=60), OffsetRange(partition=SECOND, start=0, end=60)]
    found = []
    for part in Fetcher(broker.cluster()).fetch(wanted):
        found.append((part.partition, part.next_offset))
        broker.clock.now += 3_600
    assert [offset for tp, offset in found if tp == FIRST] == [50, 60]
    assert [offset for tp, offset in found if tp == SECOND] == [10, 20, 30, 40, 50, 60]


def test_a_throttled_broker_is_not_taken_for_one_with_nothing_to_give(broker):
    broker.script["Fetch"] += [response(throttle_ms=30_000)] * 5 + [log(broker)]
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 10))] == [10]
    assert broker.clock.slept == [30.0] * 5, "waited out each time, and nothing else"


def test_the_response_of_a_throttled_broker_is_still_returned_at_once(broker):
    def throttled(request):
        return response(*log(broker)(request).partitions, throttle_ms=2_000)

    broker.script["Fetch"] += [throttled, log(broker)]
    fetching = Fetcher(broker.cluster()).fetch([OffsetRange(partition=FIRST, start=0, end=20)])
    next(fetching)
    assert (broker.clock.slept, len(broker.sent("Fetch"))) == ([], 1)
    broker.clock.now += 0.5  # what the reader takes is part of the wait
    next(fetching)
    assert broker.clock.slept == [1.5]


def test_a_moved_leader_is_looked_up_again(broker):
    broker.script["Fetch"] += [response(data(broker, FIRST, error_code=6)), log(broker)]
    fetch(broker, (FIRST, 0, 10))
    assert len(broker.sent("Metadata")) == 2


def test_what_came_with_another_partitions_error_is_kept(broker):
    mixed = response(data(broker, FIRST, record_batch(0)), data(broker, SECOND, error_code=6))
    broker.script["Fetch"] += [mixed, log(broker)]
    assert [f.partition for f in fetch(broker, (FIRST, 0, 10), (SECOND, 0, 10))] == [FIRST, SECOND]


def test_a_lost_connection_continues_where_it_was(broker, lost):
    broker.script["Fetch"] += [log(broker), lost, *[log(broker)] * 10]
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 30))] == [10, 20, 30]
    assert asked(broker) == [{0: 0}, {0: 10}, {0: 10}, {0: 20}]


def test_an_outage_longer_than_the_budget_is_an_error(broker, lost):
    broker.script["Fetch"] += [lost] * 1_000
    with pytest.raises(BrokerUnreachable, match="retried"):
        fetch(broker, (FIRST, 0, 30))


def test_progress_gives_the_whole_budget_again(broker, lost):
    def lost_after_six_seconds(request):
        broker.clock.now += 6
        return lost(request)

    for _ in range(3):
        broker.script["Fetch"] += [log(broker), lost_after_six_seconds]
    broker.script["Fetch"] += [log(broker)] * 10
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 60))] == [10, 20, 30, 40, 50, 60]


def test_a_range_that_no_broker_can_fill_ends_with_the_budget(broker):
    def nothing(request):
        broker.clock.now += 0.5
        return response(data(broker, FIRST))

    broker.script["Fetch"] += [nothing] * 1_000
    with pytest.raises(DataLoss, match="orders-0 from 0 to 30"):
        fetch(broker, (FIRST, 0, 30))


def test_a_topic_created_again_is_not_taken_for_the_same(broker):
    def gone(request):
        answer = response(data(broker, FIRST, error_code=100))
        broker.topic_id = uuid.UUID(int=8)
        return answer

    broker.script["Fetch"] += [log(broker), gone, log(broker)]
    with pytest.raises(DataLoss, match="'orders' was deleted and created again while orders-0 was read at offset 10"):
        fetch(broker, (FIRST, 0, 30))


def test_a_topic_id_known_from_before_this_range_may_be_outdated(broker):
    def gone(request):
        answer = response(data(broker, FIRST, error_code=100))
        broker.topic_id = uuid.UUID(int=8)
        return answer

    broker.script["Fetch"] += [gone, log(broker)]
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 10))] == [10]


def test_a_topic_created_again_since_the_plan_is_not_taken_for_the_same(broker):
    planned, broker.topic_id = broker.topic_id, uuid.UUID(int=8)
    broker.script["Fetch"] += [log(broker)]
    with pytest.raises(
        DataLoss, match=f"up to 30 of topic id {planned} were not read, the new topic id is {broker.topic_id}"
    ):
        fetch(broker, (FIRST, 0, 30), topic_id=planned)


def test_a_topic_id_newer_than_what_is_known_here_is_looked_up(broker):
    cluster = broker.cluster()
    cluster.topic("orders")
    broker.topic_id = uuid.UUID(int=8)
    broker.script["Fetch"] += [log(broker)] * 3
    wanted = OffsetRange(partition=FIRST, start=0, end=30, topic_id=broker.topic_id)
    assert [f.next_offset for f in Fetcher(cluster).fetch([wanted])] == [10, 20, 30]


def test_a_broker_that_does_not_know_the_new_topic_yet_is_asked_again(broker):
    planned = uuid.UUID(int=8)

    def catches_up(request):
        broker.topic_id = planned
        return broker._Metadata(request)

    broker.script["Metadata"] += [broker._Metadata] * 3 + [catches_up]
    broker.script["Fetch"] += [log(broker)] * 2
    assert [f.next_offset for f in fetch(broker, (FIRST, 0, 10), topic_id=planned)] == [10]


def test_each_request_names_the_leader_epoch_known_and_the_one_last_read(broker):
    broker.script["Fetch"] += [response(data(broker, FIRST, record_batch(0, epoch=3))), log(broker)]
    fetch(broker, (FIRST, 0, 20))
    named = [request.topics[0].partitions[0] for request in broker.sent("Fetch")]
    assert [(p.current_leader_epoch, p.last_fetched_epoch) for p in named] == [(5, -1), (5, 3)]


def test_a_truncated_log_is_data_loss(broker):
    truncated = data(broker, FIRST, diverging=EpochEndOffset(epoch=2, end_offset=7))
    broker.script["Fetch"] += [response(data(broker, FIRST, record_batch(0, epoch=3))), response(truncated)]
    with pytest.raises(DataLoss) as caught:
        fetch(broker, (FIRST, 0, 30))
    assert "orders-0: the leader's log was truncated" in caught.value.what
    assert "up to offset 10 of leader epoch 3 were read" in caught.value.what
    assert "epoch 2 only up to 7" in caught.value.what
    assert "failOnDataLoss" in caught.value.action


def test_a_missing_acl_names_the_partition(broker):
    broker.script["Fetch"].append(response(data(broker, FIRST, error_code=29)))
    with pytest.raises(AuthorizationFailed, match="orders-0 at offset 0"):
        fetch(broker, (FIRST, 0, 10))


def test_a_batch_that_ends_before_the_position_is_left_out(broker):
    broker.script["Fetch"].append(response(data(broker, FIRST, record_batch(0) + record_batch(10))))
    (found,) = fetch(broker, (FIRST, 15, 20))
    assert [header.base_offset for header in found.batches] == [10]


def test_nothing_but_batches_that_end_before_the_position_is_not_asked_for_for_ever(broker):
    broker.script["Fetch"] += [response(data(broker, FIRST, record_batch(0)))] * 3
    with pytest.raises(CorruptRecordBatch, match="from offset 15: .* no complete record batch"):
        fetch(broker, (FIRST, 15, 30))
    assert len(broker.sent("Fetch")) == 1


def test_batches_whose_offsets_go_back_are_refused(broker):
    broker.script["Fetch"].append(response(data(broker, FIRST, record_batch(0) + record_batch(5))))
    with pytest.raises(CorruptRecordBatch, match="offsets 5 to 14, expected 10"):
        fetch(broker, (FIRST, 0, 30))


def test_an_unrequested_partition_is_not_mistaken_for_a_requested_one(broker):
    stray = response(data(broker, SECOND, record_batch(0)))
    twice = response(data(broker, FIRST, record_batch(0)), data(broker, FIRST, record_batch(10)))
    broker.script["Fetch"] += [stray, twice, log(broker)]
    (found,) = fetch(broker, (FIRST, 0, 10))
    assert found.partition == FIRST
    assert len(broker.sent("Fetch")) == 3
