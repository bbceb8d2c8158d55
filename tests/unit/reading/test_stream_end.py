"""A stream that the options end: up to where it reads, and that it stays there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import ConfigurationError, DataLoss
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.source_offset import SourceOffset
from tests.unit.reading.brokers import OPEN, T0, T1, Brokers, json_of, ranges, recorded
from tests.unit.reading.test_by_time import Brokers as Transactional

BY_TIME = [{"endingTimestamp": "20"}, {"endingOffsetsByTimestamp": '{"t": {"0": 20}}'}]  # times are offsets here
T2 = TopicPartition("t", 2)
LISTED = ['{"t": {"0": 20}}', '{"t": {"0": 20, "1": 20}}']


def read_all(source, start=OPEN):
    """Run micro-batches until there is nothing to read: the last end, as Spark records it, and what each batch read."""
    batches = []
    while (end := recorded(source.latest(start, limited=True))) != start:
        batches.append(ranges(source.batch(start, end)))
        start = end
    return start, batches


@pytest.mark.parametrize("given", BY_TIME)
@pytest.mark.parametrize("tolerant", ["true", "false"])
def test_a_stream_that_has_ended_stays_there_after_retention_has_passed_its_end(open_positions, given, tolerant):
    given = given | {"startingOffsets": "earliest", "failOnDataLoss": tolerant}
    brokers = Brokers(t=[(0, 30)])
    end, batches = read_all(open_positions(brokers, **given))
    assert (end, batches) == (json_of(t=[20]), [{0: (0, 20)}])
    brokers.has(t=[(25, 60)])
    assert read_all(open_positions(brokers, **given), end) == (end, [])


def test_a_partition_that_has_ended_stays_there_while_others_are_read(open_positions):
    brokers = Brokers(t=[(0, 30), (0, 10)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20"}
    end, _ = read_all(open_positions(brokers, **given))
    assert end == json_of(t=[20, 10])
    brokers.has(t=[(25, 60), (0, 60)])
    assert read_all(open_positions(brokers, **given), end) == (json_of(t=[20, 20]), [{1: (10, 20)}])


def test_a_partition_past_its_end_in_offsets_loses_nothing_either(open_positions):
    brokers = Brokers(t=[(0, 30), (0, 10)])
    given = {"startingOffsets": "earliest", "endingOffsets": LISTED[1]}
    end, _ = read_all(open_positions(brokers, **given))
    brokers.has(t=[(25, 60), (0, 60)])
    assert read_all(open_positions(brokers, **given), end) == (json_of(t=[20, 20]), [{1: (10, 20)}])


def test_what_a_stream_has_not_read_of_its_part_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 30)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20", "maxOffsetsPerTrigger": "5"}
    source = open_positions(brokers, **given)
    end = recorded(source.latest(OPEN, limited=True))
    assert end == json_of(t=[5])
    brokers.has(t=[(25, 60)])
    with pytest.raises(DataLoss, match="t-0 from 5 to 25"):
        read_all(open_positions(brokers, **given), end)


def test_what_was_deleted_after_the_end_is_no_loss_of_a_query_that_may_lose_data(open_positions, caplog):
    brokers = Brokers(t=[(0, 30)])
    given = {"endingTimestamp": "20", "maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"}
    end = recorded(open_positions(brokers, startingOffsets="earliest", **given).latest(OPEN, limited=True))
    brokers.has(t=[(25, 60)])
    assert read_all(open_positions(brokers, **given), end) == (json_of(t=[20]), [{}])
    assert "t-0 from 5 to 20 (deleted by retention, or by request): 15 offsets" in caplog.text


def test_an_end_that_is_found_when_there_is_nothing_to_read_is_kept_by_one_batch_without_records(open_positions):
    brokers = Brokers(t=[(0, 20)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20"}
    source = open_positions(brokers, **given)
    end, _ = read_all(source)
    assert SourceOffset.from_json(end).bounds == {}, "no record has this time yet"
    brokers.has(t=[(0, 30)])
    end, batches = read_all(source, end)
    assert (end, batches) == (json_of(t=[20]), [{}])
    assert SourceOffset.from_json(end).bounds == {20: {T0: 20}}
    brokers.has(t=[(25, 60)])
    assert read_all(open_positions(brokers, **given), end) == (end, [])


def test_an_end_is_looked_up_once(open_positions):
    brokers = Brokers(t=[(0, 30)])
    end, _ = read_all(open_positions(brokers, startingOffsets="earliest", endingTimestamp="20"))
    brokers.requests.clear()
    source = open_positions(brokers, startingOffsets="earliest", endingTimestamp="20")
    assert source.latest(end, limited=True) == end
    asked = [one.timestamp for sent in brokers.sent("ListOffsets") for one in sent.topics[0].partitions]
    assert asked == [-1]


def test_every_batch_has_the_end_and_what_else_its_text_says(open_positions):
    brokers = Brokers(t=[(0, 30)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20", "maxOffsetsPerTrigger": "15"}
    source = open_positions(brokers, **given)
    first = recorded(source.latest(OPEN, limited=True))
    assert (SourceOffset.from_json(first).bounds, SourceOffset.from_json(first).start) == ({20: {T0: 20}}, {T0: 0})
    second = recorded(source.latest(first, limited=True))
    assert (SourceOffset.from_json(second).bounds, SourceOffset.from_json(second).start) == ({20: {T0: 20}}, None)
    assert SourceOffset.from_json(first).origin == SourceOffset.from_json(second).origin is not None
    assert offsets_from_json(second) == {T0: 20}, "what an earlier release and the built-in source read there"


def test_a_stream_without_an_end_by_time_writes_what_it_always_has(open_positions):
    brokers = Brokers(t=[(0, 30)])
    for given in ({}, {"endingOffsets": LISTED[0]}):
        source = open_positions(brokers, startingOffsets="earliest", **given)
        end = source.latest(json_of(t=[3]), limited=True)
        assert [name.partition("=")[0] for name in end] == ["origin", "t"]


def test_a_checkpoint_of_an_earlier_release_goes_on_and_has_the_end_from_then_on(open_positions):
    brokers = Brokers(t=[(0, 30)])
    end, batches = read_all(open_positions(brokers, endingTimestamp="20"), recorded(json_of(t=[7])))
    assert (end, batches) == (json_of(t=[20]), [{0: (7, 20)}])
    brokers.has(t=[(25, 60)])
    assert read_all(open_positions(brokers, endingTimestamp="20"), end) == (end, [])


def test_another_time_is_another_end(open_positions):
    brokers = Brokers(t=[(0, 60)])
    end, _ = read_all(open_positions(brokers, startingOffsets="earliest", endingTimestamp="20"))
    later, batches = read_all(open_positions(brokers, endingTimestamp="40"), end)
    assert batches == [{0: (20, 40)}]
    assert SourceOffset.from_json(later).bounds == {40: {T0: 40}}
    assert read_all(open_positions(brokers), later)[1] == [{0: (40, 60)}]


def test_without_the_option_nothing_new_is_the_same_text(open_positions):
    brokers = Brokers(t=[(0, 20)])
    end = recorded(open_positions(brokers, endingTimestamp="5").latest(json_of(t=[20]), limited=True))
    assert SourceOffset.from_json(end).bounds == {5: {T0: 5}}
    assert json.dumps(open_positions(brokers).latest(end, limited=True)) == json.dumps(end)


@pytest.mark.parametrize("read", [0, 3])
def test_a_topic_that_is_created_again_has_an_end_of_its_own(open_positions, read):
    brokers = Brokers(t=[(0, read)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20", "failOnDataLoss": "false"}
    end, _ = read_all(open_positions(brokers, **given))
    end = recorded(replace(SourceOffset.from_json(end), bounds={20: {T0: read}}).to_json())
    brokers.create_again("t", (0, 0))
    source = open_positions(brokers, **given)
    end, _ = read_all(source, end)
    brokers.has(t=[(0, 30)])
    end, batches = read_all(source, end)
    assert (end, batches) == (json_of(t=[20]), [{0: (0, 20)}])


def test_a_partition_that_is_gone_leaves_no_end_to_a_later_one(open_positions):
    brokers = Brokers(t=[(0, 30), (0, 30)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20", "failOnDataLoss": "false"}
    end, _ = read_all(open_positions(brokers, **given))
    assert SourceOffset.from_json(end).bounds == {20: {T0: 20, T1: 20}}
    brokers.create_again("t", (0, 30))
    source = open_positions(brokers, **given)
    end, batches = read_all(source, end)
    assert (batches, SourceOffset.from_json(end).bounds) == ([{}, {0: (0, 20)}], {20: {T0: 20}})
    brokers.has(t=[(0, 30), (25, 40)])
    brokers.seconds += 10
    assert SourceOffset.from_json(source.latest(end, limited=True)).bounds == {20: {T0: 20, T1: 25}}


def test_where_a_log_was_truncated_the_end_is_looked_up_again(open_positions):
    brokers = Brokers(t=[(0, 30)])
    given = {"startingOffsets": "earliest", "endingTimestamp": "20", "failOnDataLoss": "false"}
    end, _ = read_all(open_positions(brokers, **given))
    brokers.elect(T0, at=15)
    source = open_positions(brokers, **given)
    back = recorded(source.latest(end, limited=True))
    assert (back, SourceOffset.from_json(back).bounds) == (json_of(t=[15]), {})


def test_equal_ends_have_equal_texts():
    bounds = {20: {T1: 7, T0: 3}, 5: {T2: 9}}
    again = {time: dict(reversed(each.items())) for time, each in reversed(bounds.items())}
    one, other = (SourceOffset(offsets={T0: 1, T1: 2}, bounds=ends).to_json() for ends in (bounds, again))
    assert json.dumps(one) == json.dumps(other)
    assert SourceOffset.from_json(recorded(one)).bounds == bounds


# Starts


@pytest.mark.parametrize("given", [{"startingTimestamp": "10"}, {"startingOffsetsByTimestamp": '{"t": {"0": 10}}'}])
def test_a_start_by_time_stays_where_it_was_when_the_first_batch_runs_again(open_positions, given):
    brokers = Brokers(t=[(0, 30)])
    end = recorded(open_positions(brokers, **given).latest(OPEN, limited=True))
    brokers.has(t=[(15, 60)])
    assert ranges(open_positions(brokers, **given).batch(OPEN, end)) == {0: (10, 30)}, "its task raises DataLoss"


# Partitions that are added


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_an_added_partition_that_the_option_does_not_list_is_left_unread(open_positions, caplog, option):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers, startingOffsets="earliest", **{option: LISTED[0]})
    end, _ = read_all(source)
    brokers.has(t=[(0, 30), (0, 5)])
    brokers.seconds += 10
    end, batches = read_all(source, end)
    assert (end, batches) == (json_of(t=[20]), [{0: (10, 20)}])
    assert caplog.text.count("t-1") == 1
    assert f"{option} does not list t-1" in caplog.text
    again = open_positions(brokers, **{option: LISTED[0]})
    assert read_all(again, end) == (end, []), "nor after a restart"
    assert read_all(open_positions(brokers, **{option: LISTED[1]}), end)[1] == [{1: (0, 5)}], "until it is listed"


def test_an_added_partition_is_read_up_to_the_time_that_holds_for_all(open_positions):
    brokers = Brokers(t=[(0, 30)])
    source = open_positions(brokers, startingOffsets="earliest", endingTimestamp="20")
    end, _ = read_all(source)
    brokers.has(t=[(0, 30), (0, 30)])
    brokers.seconds += 10
    assert read_all(source, end)[1] == [{1: (0, 20)}]


def test_a_partition_that_was_read_must_be_listed(open_positions):
    source = open_positions(Brokers(t=[(0, 30), (0, 30)]), endingOffsets=LISTED[0])
    with pytest.raises(ConfigurationError, match="does not list t-1"):
        source.latest(json_of(t=[5, 5]), limited=True)


def test_a_partition_that_there_is_not_must_not_be_listed(open_positions):
    source = open_positions(Brokers(t=[(0, 30)]), endingOffsets=LISTED[1])
    with pytest.raises(ConfigurationError, match="lists t-1, which this query does not read"):
        source.latest(json_of(t=[5]), limited=True)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_end_by_time_of_a_topic_that_was_left_out_and_created_again_is_looked_up_from_its_beginning(
    open_positions, restarted
):
    brokers = Transactional()
    given = {"endingTimestamp": "100", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    source = open_positions(brokers, **given)
    for _ in range(10):
        brokers.write(10, 20)
    end = recorded(source.latest(OPEN, limited=False))
    assert end == json_of(t=[30]), "no record has this time"
    brokers.topics.delete("t")
    brokers.world.now += 10
    end = recorded(source.latest(end, limited=False))
    assert offsets_from_json(end) == {}
    brokers.topics.create("t", 1)
    brokers.world.now += 10
    for times in ((10, 20), (150, 160), (170, 180)):
        brokers.write(*times)
    if restarted:
        source = open_positions(brokers, **given)
    assert read_all(source, end) == (json_of(t=[3]), [{0: (0, 3)}])
