"""Where a stream begins and ends, against the model of Kafka with a table of offsets for its logs."""

from __future__ import annotations

import json

import pytest

from spark_kafka_eos.errors import ConfigurationError, DataLoss, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.source_offset import UNRESOLVED, SourceOffset
from tests.unit.reading.brokers import OPEN, T0, T1, Brokers, Ends, first_batch, json_of, ranges, recorded


def test_a_stream_from_the_earliest_offsets_starts_there(open_positions):
    source = open_positions(Brokers(t=[(3, 10), (0, 5)]), startingOffsets="earliest")
    assert first_batch(source) == ({T0: 3, T1: 0}, {T0: 10, T1: 5}, {0: (3, 10), 1: (0, 5)})


def test_explicit_offsets_are_the_start(open_positions):
    source = open_positions(Brokers(t=[(3, 10), (1, 5)]), startingOffsets='{"t": {"0": 7, "1": -2}}')
    assert first_batch(source) == ({T0: 7, T1: 1}, {T0: 10, T1: 5}, {0: (7, 10), 1: (1, 5)})


def test_a_stream_from_the_latest_offsets_reads_what_comes(open_positions):
    brokers = Brokers(t=[(0, 10), (0, 5)])
    source = open_positions(brokers)
    assert first_batch(source) == ({T0: 10, T1: 5}, {T0: 10, T1: 5}, {})
    brokers.has(t=[(0, 99), (0, 99)])
    assert source.latest(json_of(t=[10, 5]), limited=False) == json_of(t=[99, 99])


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "committed-or-latest", "kafka.group.id": "g"},
        {"startingOffsets": '{"t": {"0": -1}}'},
        {"startingTimestamp": "100", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_latest_is_not_before_the_first_offset_although_an_open_transaction_began_there(open_positions, given):
    brokers = Brokers(t=[(7, 4, 9)])
    source = open_positions(brokers, **given)
    assert first_batch(source) == ({T0: 7}, {T0: 7}, {})
    brokers.has(t=[(7, 10)])
    at = source.latest(json_of(t=[7]), limited=False)
    assert ranges(source.batch(json_of(t=[7]), at)) == {0: (7, 10)}


def test_a_start_by_time_is_the_offset_found_for_it(open_positions):
    source = open_positions(Brokers(t=[(0, 10), (0, 5)]), startingTimestamp="4")
    assert first_batch(source) == ({T0: 4, T1: 4}, {T0: 10, T1: 5}, {0: (4, 10), 1: (4, 5)})


def test_the_first_batch_is_limited_as_any_other(open_positions):
    source = open_positions(Brokers(t=[(0, 100)]), startingOffsets="earliest", maxOffsetsPerTrigger="40")
    assert first_batch(source, limited=True) == ({T0: 0}, {T0: 40}, {0: (0, 40)})


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ({"startingOffsets": "earliest"}, {"startingOffsets": "earliest"}),
        ({"startingOffsets": "earliest"}, {"startingOffsets": "latest"}),
        ({"startingOffsets": '{"t": {"0": 0}}'}, {"startingOffsets": '{"t": {"0": 500}}'}),
        ({"startingTimestamp": "0"}, {"startingTimestamp": "500"}),
    ],
)
def test_a_repeated_first_batch_starts_where_it_was_planned_to_whatever_was_deleted_since(open_positions, given, moved):
    brokers = Brokers(t=[(0, 1_000)])
    first = open_positions(brokers, **given)
    end = recorded(first.latest(first.initial(), limited=False))
    brokers.has(t=[(0, 1_500)])
    again = open_positions(brokers, **moved)
    assert ranges(again.batch(recorded(again.initial()), end)) == {0: (0, 1_000)}
    brokers.has(t=[(500, 1_500)])
    unread = again.batch(recorded(again.initial()), end)
    assert ranges(unread) == {0: (0, 1_000)}, "whoever reads it raises DataLoss"


def test_where_the_first_batch_starts_means_nothing_to_later_batches(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers, startingOffsets="earliest")
    end = recorded(source.latest(source.initial(), limited=False))
    assert json.dumps(source.latest(end, limited=False)) == json.dumps(end), "Spark compares texts"
    brokers.has(t=[(5, 15)])
    following = source.latest(end, limited=False)
    assert following == json_of(t=[15])
    assert ranges(source.batch(end, following)) == {0: (10, 15)}


@pytest.mark.parametrize(
    ("given", "begins", "reads"),
    [
        ({"startingOffsets": "earliest"}, 0, {0: (0, 10)}),
        ({"startingOffsets": '{"t": {"0": -2, "1": -2}}'}, 0, {0: (0, 10)}),
        ({"startingOffsets": '{"t": {"0": 7, "1": -2}}'}, 3, {0: (7, 10)}),
        ({"startingOffsets": '{"t": {"0": 7}}', "startingOffsetsStrategy": "latest"}, 3, {0: (7, 10)}),
    ],
)
def test_a_first_batch_whose_start_is_not_recorded_starts_where_the_options_say(open_positions, given, begins, reads):
    source = open_positions(Brokers(t=[(begins, 20), (2, 5)]), **given)
    assert ranges(source.batch(source.initial(), json_of(t=[10]))) == reads, "t-1 was added since"


MOVED = [
    {"startingOffsets": "earliest"},
    {"startingOffsets": '{"t": {"0": -2, "1": 0}}'},
    {"startingOffsets": '{"t": {"1": 0}}', "startingOffsetsStrategy": "earliest"},
]


@pytest.mark.parametrize("given", MOVED, ids=str)
@pytest.mark.parametrize("begins", [3, 15], ids=["in the batch", "after it"])
def test_a_first_batch_whose_start_is_not_recorded_is_refused_where_its_beginning_may_be_deleted(
    open_positions, given, begins
):
    source = open_positions(Brokers(t=[(begins, 20), (0, 5)]), **given)
    said = f"may be deleted by now: t-0 begins at {begins}. .* Set startingOffsets to .* sources/0/0"
    with pytest.raises(ConfigurationError, match=said):
        source.batch(source.initial(), json_of(t=[10, 5]))
    kept = open_positions(Brokers(t=[(begins, 20), (0, 5)]), startingOffsets='{"t": {"0": 0, "1": 0}}')
    assert ranges(kept.batch(kept.initial(), json_of(t=[10, 5]))) == {0: (0, 10), 1: (0, 5)}, "the tasks look again"


@pytest.mark.parametrize("given", MOVED, ids=str)
def test_a_first_batch_whose_start_is_not_recorded_reads_what_is_there_on_request(open_positions, given, caplog):
    source = open_positions(Brokers(t=[(3, 20), (0, 5)]), failOnDataLoss="false", **given)
    assert ranges(source.batch(source.initial(), json_of(t=[10, 5]))) == {0: (3, 10), 1: (0, 5)}
    assert "reads t-0 from 3, and may have begun before" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingTimestamp": "4"},
        {"startingOffsets": '{"t": {"0": 7, "1": -1}}'},
        {"startingOffsets": '{"t": {"1": 2}}', "startingOffsetsStrategy": "latest"},
        {"startingOffsets": "committed-or-latest", "kafka.group.id": "g"},
    ],
    ids=str,
)
def test_a_first_batch_is_not_taken_for_empty_because_its_start_is_not_recorded(open_positions, given):
    source = open_positions(Brokers(t=[(3, 20), (0, 5)]), **given)
    with pytest.raises(ConfigurationError, match="does not say where it starts.*sources/0/0"):
        source.batch(source.initial(), json_of(t=[10]))


def test_nothing_new_is_the_very_same_text(open_positions):
    source = open_positions(Brokers(b=[(0, 1)], a=[(0, 2)] * 11), subscribePattern="[ab]")
    start = json.dumps(source.latest(OPEN, limited=False))
    assert json.dumps(source.latest(json.loads(start), limited=False)) == start


def test_the_limit_holds_unless_the_trigger_overrides_it(open_positions):
    source = open_positions(Brokers(t=[(0, 100), (0, 300)]), maxOffsetsPerTrigger="40")
    assert source.latest(json_of(t=[0, 0]), limited=True) == json_of(t=[10, 30])
    assert source.latest(json_of(t=[0, 0]), limited=False) == json_of(t=[100, 300])


def test_deleted_offsets_are_skipped_at_once_and_take_no_share_of_the_limit(open_positions, caplog):
    brokers = Brokers(t=[(99_000, 99_100), (0, 300)])
    source = open_positions(brokers, maxOffsetsPerTrigger="40", failOnDataLoss="false")
    start = json_of(t=[0, 0])
    read = []
    while (end := recorded(source.latest(start, limited=True))) != start:
        read.append(ranges(source.batch(start, end)))
        start = Ends(end)
    assert read[0] == {0: (99_000, 99_010), 1: (0, 30)}
    assert all(each.keys() == {0, 1} for each in read[:9]), "neither partition waits for the other"
    assert start == json_of(t=[99_100, 300])
    assert caplog.text.count("data was lost") == 1
    assert "t-0 from 0 to 99000 (deleted by retention, or by request): 99,000 offsets" in caplog.text


def test_a_query_that_must_not_lose_data_asks_for_no_earliest_offset_before_the_batch(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, maxOffsetsPerTrigger="40")
    assert source.latest(json_of(t=[10]), limited=True) == json_of(t=[50])
    assert len(brokers.sent("ListOffsets")) == 1


def test_deleted_offsets_are_nothing_to_start_a_batch_for(open_positions):
    source = open_positions(Brokers(t=[(90, 100)]), minOffsetsPerTrigger="50", failOnDataLoss="false")
    source.batch(OPEN, source.latest(OPEN, limited=True))
    assert source.latest(json_of(t=[0]), limited=True) == json_of(t=[0])


def test_the_limit_in_bytes_holds_unless_the_trigger_overrides_it(open_positions):
    brokers = Brokers(t=[(0, 100), (5, 5), (8, 10)])
    source = open_positions(brokers, maxBytesPerTrigger="700")
    assert source.latest(json_of(t=[4, 5, 0]), limited=True) == json_of(t=[10, 5, 9])
    assert brokers.sampled()[0] == [(0, 4), (2, 8)], "what is there and wanted is weighed"
    assert source.latest(json_of(t=[4, 5, 0]), limited=False) == json_of(t=[100, 5, 10])


@pytest.mark.parametrize(("offsets", "end"), [("3", 7), ("90", 11)])
def test_the_smaller_of_both_limits_holds(open_positions, offsets, end):
    source = open_positions(Brokers(t=[(0, 100)]), maxBytesPerTrigger="700", maxOffsetsPerTrigger=offsets)
    assert source.latest(json_of(t=[4]), limited=True) == json_of(t=[end])


def test_available_now_keeps_the_limit_in_bytes_up_to_its_end(open_positions):
    source = open_positions(Brokers(t=[(0, 10)]), maxBytesPerTrigger="700")
    source.pin()
    first = source.latest(json_of(t=[0]), limited=True)
    assert (first, source.latest(first, limited=True)) == (json_of(t=[7]), json_of(t=[10]))


def test_what_retention_deletes_while_it_is_weighed_fails_or_is_left_out(open_positions):
    brokers = Brokers(t=[(0, 100)])
    brokers.before("Fetch", lambda: brokers.has(t=[(50, 100)]))
    with pytest.raises(DataLoss):
        open_positions(brokers, maxBytesPerTrigger="700").latest(json_of(t=[0]), limited=True)
    brokers.has(t=[(0, 100)])
    brokers.before("Fetch", lambda: brokers.has(t=[(50, 100)]))
    tolerant = open_positions(brokers, maxBytesPerTrigger="700", failOnDataLoss="false")
    assert tolerant.latest(json_of(t=[0]), limited=True) == json_of(t=[57])


def test_too_few_offsets_are_waited_for_until_the_delay_is_over(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, minOffsetsPerTrigger="50", maxTriggerDelay="60s")
    assert source.latest(json_of(t=[90]), limited=True) == json_of(t=[100]), "the first batch never waits"
    brokers.has(t=[(0, 110)])
    assert source.latest(json_of(t=[100]), limited=True) == json_of(t=[100])
    brokers.seconds = 59.9
    assert source.latest(json_of(t=[100]), limited=True) == json_of(t=[100])
    brokers.seconds = 60.1
    assert source.latest(json_of(t=[100]), limited=True) == json_of(t=[110])
    brokers.has(t=[(0, 160)])
    assert source.latest(json_of(t=[110]), limited=True) == json_of(t=[160]), "enough are there"


def test_available_now_reads_up_to_what_was_there_and_no_further(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, maxOffsetsPerTrigger="60", minOffsetsPerTrigger="50")
    source.pin()
    ends = [json_of(t=[0]), source.latest(json_of(t=[0]), limited=True)]
    brokers.has(t=[(0, 1000), (0, 1000)])
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(source.latest(ends[-1], limited=True))
    assert ends == [json_of(t=[0]), json_of(t=[60]), json_of(t=[100]), json_of(t=[100])]


def test_available_now_does_not_start_after_its_own_end(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers)
    source.pin()
    end = recorded(source.latest(source.initial(), limited=False))
    brokers.has(t=[(0, 1000)])
    assert (SourceOffset.from_json(end).start, offsets_from_json(end)) == ({T0: 100}, {T0: 100})
    assert source.latest(end, limited=False) == end


def test_available_now_does_not_step_back_from_a_groups_offset_past_its_own_end(open_positions):
    brokers = Brokers(t=[(0, 10, 15)])
    brokers.group("g").commit_at_once({T0: (12, "")}, now_s=0.0)
    source = open_positions(brokers, startingOffsets="committed", **{"kafka.group.id": "g"})
    source.pin()
    assert first_batch(source) == ({T0: 12}, {T0: 12}, {})


def test_an_added_partition_is_noticed_after_a_while_and_read_from_its_beginning(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    brokers.has(t=[(0, 10), (0, 7)])
    brokers.seconds = 10.0
    end = source.latest(start, limited=False)
    [task] = source.batch(start, end)
    assert [(one.partition, one.start, one.end) for one in task] == [(T1, 0, 7)]


def test_a_new_topic_that_matches_is_read_from_its_beginning(open_positions):
    brokers = Brokers()
    source = open_positions(brokers, subscribePattern="t.*")
    start = source.latest(OPEN, limited=False)
    assert offsets_from_json(start) == {}
    assert start != UNRESOLVED
    brokers.has(**{"t-2": [(0, 7)]})
    brokers.seconds = 10.0
    assert source.batch(start, source.latest(start, limited=False)) != []


def test_a_pattern_is_found_anywhere_in_a_name(open_positions):
    source = open_positions(Brokers(t=[(0, 1)], t2=[(0, 1)], xt=[(0, 1)], u=[(0, 1)]), subscribePattern="t")
    assert offsets_from_json(source.latest(OPEN, limited=False)).keys() == {("t", 0), ("t2", 0), ("xt", 0)}


def without_mark(offsets):
    """As an earlier release wrote them, which selected topics by their whole names."""
    marked, unmarked = ',"pattern":"find"', ""
    [name] = [name for name in offsets if marked in name]
    return {(key.replace(marked, unmarked) if key == name else key): value for key, value in offsets.items()}


@pytest.mark.parametrize("form", [without_mark, lambda offsets: json_of(t=[10])], ids=["with an origin", "without"])
def test_topics_that_whole_names_left_out_are_not_added_to_an_older_checkpoint_without_a_word(open_positions, form):
    brokers = Brokers(t=[(0, 10)], t2=[(0, 20)], xt=[(0, 30)])
    start = form(recorded(open_positions(brokers, subscribePattern="^t$").latest(OPEN, limited=False)))
    with pytest.raises(ConfigurationError, match="found in t2, xt") as raised:
        open_positions(brokers, subscribePattern="t").latest(start, limited=False)
    assert raised.value.option == "subscribePattern"
    assert "^(?:pattern)$" in str(raised.value)
    assert ".*(?:pattern).*" in str(raised.value)
    as_before = open_positions(brokers, subscribePattern="^(?:t)$").latest(start, limited=False)
    assert offsets_from_json(as_before).keys() == {T0}
    all_of_them = open_positions(brokers, subscribePattern=".*(?:t).*").latest(start, limited=False)
    assert offsets_from_json(all_of_them).keys() == {("t", 0), ("t2", 0), ("xt", 0)}


def test_a_checkpoint_of_the_built_in_source_goes_on_with_the_topics_in_which_the_pattern_was_found(open_positions):
    brokers = Brokers(t=[(0, 10)], t2=[(0, 20)], xt=[(0, 30)])
    end = open_positions(brokers, subscribePattern="t").latest(json_of(t=[5], t2=[5]), limited=False)
    assert end == json_of(t=[10], t2=[20], xt=[30]), "it was found in part of a name before: xt is new"


def test_a_checkpoint_of_this_release_goes_on_with_whatever_topic_was_added_meanwhile(open_positions):
    brokers = Brokers(t=[(0, 10)])
    start = recorded(open_positions(brokers, subscribePattern="t").latest(OPEN, limited=False))
    brokers.has(t2=[(0, 20)])
    assert open_positions(brokers, subscribePattern="t").latest(start, limited=False) == json_of(t=[10], t2=[20])


OWN = {"sink.kafka.transactional.id": "id", "sink.ledgerTopic": "books"}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, {"t", "books"}),
        (OWN, {"t"}),
        (OWN | {"sink.kafka.bootstrap.servers": "elsewhere:1"}, {"t", "books"}),
        ({"includeLedgerTopics": "true"} | OWN, {"t", "books", "kafka-eos-ledger"}),
    ],
)
def test_a_pattern_leaves_ledger_topics_of_its_cluster_out_unless_they_are_meant(open_positions, given, read):
    brokers = Brokers(**{"t": [(0, 3)], "books": [(0, 5)], "kafka-eos-ledger": [(0, 9)]})
    source = open_positions(brokers, subscribePattern=".*", **given)
    assert {tp.topic for tp in source.partitions()} == read


def test_a_checkpoint_with_a_ledger_topic_goes_on_without_it(open_positions, caplog):
    brokers = Brokers(**{"t": [(0, 3)], "kafka-eos-ledger": [(0, 9)]})
    before = open_positions(brokers, subscribePattern=".*", includeLedgerTopics="true", startingOffsets="earliest")
    planned = recorded(before.latest(before.initial(), limited=False))
    brokers.has(**{"t": [(0, 4)], "kafka-eos-ledger": [(0, 11)]})
    now = open_positions(brokers, subscribePattern=".*", startingOffsets="earliest")
    assert ranges(now.batch(recorded(now.initial()), planned)) == {0: (0, 3)}
    end = now.latest(planned, limited=False)
    assert offsets_from_json(end) == {T0: 4}
    assert ranges(now.batch(planned, end)) == {0: (3, 4)}
    assert "goes on without kafka-eos-ledger" in caplog.text


def test_assigned_partitions_are_the_only_ones(open_positions):
    source = open_positions(Brokers(t=[(0, 1), (0, 2), (0, 3)]), assign='{"t": [2, 0]}')
    assert offsets_from_json(source.latest(OPEN, limited=False)) == {T0: 1, TopicPartition("t", 2): 3}


def test_an_assigned_partition_that_does_not_exist_is_named(open_positions):
    with pytest.raises(UnknownTopic, match="t-5.*assign"):
        open_positions(Brokers(t=[(0, 1)]), assign='{"t": [0, 5]}').latest(UNRESOLVED, limited=False)


def test_offsets_that_are_gone_fail_the_batch(open_positions):
    source = open_positions(Brokers(t=[(50, 100)]))
    end = source.latest(json_of(t=[10]), limited=False)
    with pytest.raises(DataLoss, match="t-0 from 10 to 50"):
        source.batch(json_of(t=[10]), end)


def test_a_batch_that_an_earlier_run_planned_needs_offsets_that_are_gone_only_if_it_is_read(open_positions):
    source = open_positions(Brokers(t=[(50, 100)]))
    assert ranges(source.batch(json_of(t=[10]), json_of(t=[100]))) == {0: (10, 100)}


def test_offsets_that_are_gone_are_left_out_and_logged_on_request(open_positions, caplog):
    source = open_positions(Brokers(t=[(50, 100)]), failOnDataLoss="false")
    [[only]] = source.batch(json_of(t=[10]), json_of(t=[100]))
    assert (only.start, only.end) == (50, 100)
    assert "t-0 from 10 to 50" in caplog.text


def test_ends_are_asked_for_in_the_querys_isolation_level(open_positions):
    brokers = Brokers(t=[(0, 1)])
    open_positions(brokers, **{"kafka.isolation.level": "read_uncommitted"}).latest(json_of(t=[0]), limited=False)
    open_positions(brokers).latest(json_of(t=[0]), limited=False)
    assert [
        request.isolation_level
        for request in brokers.sent("ListOffsets")
        if request.topics[0].partitions[0].timestamp == -1
    ] == [0, 1]


def test_the_ends_last_seen_are_reported(open_positions):
    source = open_positions(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="10")
    assert source.reported() is None, "a batch that runs again is planned without a look"
    source.latest(json_of(t=[0]), limited=True)
    assert source.reported() == json_of(t=[100])


def test_unresolved_reads_as_no_offsets_at_all():
    assert offsets_from_json(UNRESOLVED) == {}


# Tasks by size


def test_tasks_are_divided_by_sampled_bytes_which_count_for_a_while(open_positions):
    brokers = Brokers(t=[(0, 100_000), (0, 10)])
    source = open_positions(brokers, startingOffsets="earliest", maxBytesPerPartition="1000000")
    for _ in range(2):
        tasks = source.tasks({T0: 0, T1: 0}, {T0: 100_000, T1: 10})
        assert [[one.size for one in task] for task in tasks] == [[10_000]] * 10 + [[10]]
        assert brokers.sampled() == [[(0, 0), (1, 0)]]
    assert len(source.tasks({T0: 0}, {T0: 9_999})) == 1
    brokers.seconds += 61
    source.tasks({T0: 50_000}, {T0: 100_000})
    assert brokers.sampled()[1:] == [[(0, 50_000)]]


def test_what_cannot_be_sampled_is_divided_by_offsets(open_positions):
    brokers = Brokers(t=[(0, 100_000)])
    brokers.before("Fetch", lambda: brokers.has(t=[(50_000, 100_000)]))
    source = open_positions(brokers, startingOffsets="earliest", maxBytesPerPartition="1m")
    assert len(source.tasks({T0: 0}, {T0: 100_000})) == 1


# A stream with an end


@pytest.mark.parametrize(
    "end", [{"endingOffsets": '{"t": {"0": 20, "1": 5}}'}, {"endingOffsetsByTimestamp": '{"t": {"0": 20, "1": 5}}'}]
)
def test_a_stream_reads_to_its_end_and_no_further(open_positions, end):
    brokers = Brokers(t=[(0, 10), (0, 10)])
    source = open_positions(brokers, startingOffsets="earliest", **end)
    assert first_batch(source) == ({T0: 0, T1: 0}, {T0: 10, T1: 5}, {0: (0, 10), 1: (0, 5)})
    brokers.has(t=[(0, 30), (0, 30)])
    source.pin()
    assert source.latest(json_of(t=[10, 5]), limited=False) == json_of(t=[20, 5])
    brokers.has(t=[(0, 40), (0, 40)])
    last = json_of(t=[20, 5])
    assert source.latest(last, limited=False) == last


def test_a_stream_that_is_past_its_end_already_reads_nothing_more(open_positions):
    source = open_positions(Brokers(t=[(0, 30)]), endingTimestamp="5")
    at = json_of(t=[12])
    assert source.latest(at, limited=False) == at


def test_a_stream_does_not_read_a_partition_for_which_no_end_is_given(open_positions):
    source = open_positions(Brokers(t=[(0, 10), (0, 10)]), startingOffsets="earliest", endingOffsets='{"t": {"0": 5}}')
    with pytest.raises(ConfigurationError, match="does not list t-1"):
        source.latest(source.initial(), limited=False)


def test_a_stream_may_start_before_the_latest_offset(open_positions):
    source = open_positions(Brokers(t=[(0, 10), (8, 10)]), startingOffsets="latest-4")
    assert first_batch(source) == ({T0: 6, T1: 8}, {T0: 10, T1: 10}, {0: (6, 10), 1: (8, 10)})


def test_partitions_without_a_start_of_their_own_follow_the_strategy(open_positions):
    given = {"startingOffsets": '{"t": {"0": 7}}', "startingOffsetsStrategy": "earliest"}
    source = open_positions(Brokers(t=[(0, 10), (2, 10)]), **given)
    assert first_batch(source) == ({T0: 7, T1: 2}, {T0: 10, T1: 10}, {0: (7, 10), 1: (2, 10)})


# A batch read


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"t": {"0": 7, "1": 2}}', "endingOffsets": '{"t": {"0": 5, "1": 5}}'},
        {"startingOffsets": '{"t": {"0": 12, "1": 2}}'},
        {"startingOffsetsByTimestamp": '{"t": {"0": 7, "1": 2}}', "endingTimestamp": "5"},
    ],
)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_batch_read_that_would_start_after_its_end_is_refused(open_positions, given, loss):
    source = open_positions(Brokers(t=[(0, 10), (0, 5)]), failOnDataLoss=loss, **given)
    with pytest.raises(ConfigurationError, match=r"start after its end.*: t-0 starts at (7|12), its end is (5|10)"):
        source.batch_read()


def test_a_batch_read_that_starts_at_its_end_has_no_rows(open_positions):
    given = {"startingOffsets": '{"t": {"0": 7, "1": 5}}', "endingOffsets": '{"t": {"0": 7, "1": 5}}'}
    assert open_positions(Brokers(t=[(0, 10), (0, 5)]), **given).batch_read() == []


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"t": {"0": 7, "1": 2}}', "endingOffsets": '{"t": {"0": 5, "1": 5}}'},
        {"startingTimestamp": "4", "endingTimestamp": "3"},
    ],
)
def test_a_new_stream_that_would_start_after_its_end_is_refused(open_positions, given):
    source = open_positions(Brokers(t=[(0, 10), (0, 5)]), **given)
    with pytest.raises(ConfigurationError, match=r"start after its end.*: t-0 starts at (7|4), its end is (5|3)"):
        source.latest(source.initial(), limited=False)


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize("limited", [True, False])
def test_a_new_stream_that_would_start_past_the_end_of_the_log_is_refused_before_it_is_recorded(
    open_positions, loss, limited
):
    given = {"startingOffsets": '{"t": {"0": 1000, "1": -2}}', "failOnDataLoss": loss, "maxOffsetsPerTrigger": "5"}
    source = open_positions(Brokers(t=[(0, 10), (0, 5)]), **given)
    with pytest.raises(ConfigurationError, match=r"start after its end.*: t-0 starts at 1000, its end is 10. Nothing"):
        source.latest(source.initial(), limited=limited)


def test_a_new_stream_that_starts_behind_an_open_transaction_waits_for_its_end(open_positions):
    source = open_positions(Brokers(t=[(0, 10, 15)]), startingOffsets='{"t": {"0": 12}}')
    assert first_batch(source) == ({T0: 12}, {T0: 12}, {})


def test_a_new_stream_from_a_groups_offset_past_the_end_of_the_log_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 10)])
    brokers.group("g").commit_at_once({T0: (12, "")}, now_s=0.0)
    source = open_positions(brokers, startingOffsets="committed", **{"kafka.group.id": "g"})
    with pytest.raises(DataLoss, match="t-0 from 12 .*ends at 10"):
        first_batch(source)


def test_a_batch_read_from_a_groups_offset_past_the_last_stable_offset_has_no_rows(open_positions):
    brokers = Brokers(t=[(0, 10, 15)])
    brokers.group("g").commit_at_once({T0: (12, "")}, now_s=0.0)
    source = open_positions(brokers, startingOffsets="committed", **{"kafka.group.id": "g"})
    assert source.batch_read() == []


def test_a_batch_read_from_a_groups_offset_past_the_end_of_the_log_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 10)])
    brokers.group("g").commit_at_once({T0: (12, "")}, now_s=0.0)
    source = open_positions(brokers, startingOffsets="committed", **{"kafka.group.id": "g"})
    with pytest.raises(DataLoss, match="t-0 from 12 .*ends at 10"):
        source.batch_read()


def test_a_batch_read_whose_start_was_deleted_is_still_data_loss(open_positions):
    source = open_positions(Brokers(t=[(5, 10)]), startingOffsets='{"t": {"0": 3}}')
    with pytest.raises(DataLoss, match="t-0 from 3 to 5"):
        source.batch_read()


@pytest.mark.parametrize("ending", [{}, {"endingOffsets": '{"t": {"0": -1}}'}, {"endingTimestamp": "100"}])
def test_a_batch_read_has_no_rows_while_an_open_transaction_began_before_the_first_offset(open_positions, ending):
    for start in ({}, {"startingOffsets": '{"t": {"0": 7}}'}):
        assert open_positions(Brokers(t=[(7, 4, 9)]), **start, **ending).batch_read() == []


@pytest.mark.parametrize("wanted", ["earliest", "latest", '{"t": {"0": -2}}'])
def test_partitions_that_appear_while_the_start_is_looked_up_are_read_from_their_beginning(open_positions, wanted):
    brokers = Brokers(t=[(0, 10)])

    def grow(_request, answer):
        offsets = answer()
        brokers.has(t=[(0, 10), (0, 5)])
        brokers.seconds += 10.0
        return offsets

    brokers.meets["ListOffsets"] = grow
    assert list(open_positions(brokers, startingOffsets=wanted).starting()) == [T0]


# What is gone


def test_a_topic_created_again_is_noticed_even_if_it_has_more_records_than_the_old_one(open_positions, caplog):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    brokers.create_again("t", (0, 99))
    end = source.latest(start, limited=False)
    assert end == json_of(t=[0]), "back to the beginning of the new topic, in a batch of its own"
    assert "topic t was deleted and created again" in caplog.text
    with pytest.raises(DataLoss, match=r"t-0 from 10 .*created again"):
        source.batch(start, end)


def test_a_topic_created_again_is_noticed_before_any_of_its_offsets_is_planned(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    before = brokers.seconds
    brokers.create_again("t", (0, 99))
    brokers.seconds = before
    assert source.latest(start, limited=False) == json_of(t=[0])


def test_a_topic_created_again_stays_data_loss_after_a_restart(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    brokers.create_again("t", (0, 99))
    end = source.latest(start, limited=False)
    with pytest.raises(DataLoss, match=r"t-0 from 10 .*created again"):
        open_positions(brokers).batch(start, end)


def test_a_topic_created_again_is_read_from_its_beginning_on_request(open_positions, caplog):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u", failOnDataLoss="false")
    start = source.latest(OPEN, limited=False)
    brokers.create_again("t", (0, 99), (0, 7))
    end = source.latest(start, limited=False)
    assert end == json_of(t=[0], u=[5])
    assert source.batch(start, end) == []
    assert "t-0 from 10" in caplog.text
    after = source.latest(end, limited=False)
    assert after == json_of(t=[99, 7], u=[5])
    ranges = [one for task in source.batch(end, after) for one in task]
    assert [(one.partition.partition, one.start, one.end) for one in ranges] == [(0, 0, 99), (1, 0, 7)]


def test_a_broker_that_still_shows_the_old_topic_does_not_bring_it_back(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers, failOnDataLoss="false")
    start = source.latest(OPEN, limited=False)
    old = brokers.id_of("t")
    brokers.create_again("t", (0, 99))
    end = source.latest(source.latest(start, limited=False), limited=False)

    def outdated(_request, answer):
        metadata = answer()
        for topic in metadata.topics:
            topic.topic_id = old
        return metadata

    for meets in ({"Metadata": outdated}, {}):
        brokers.meets = meets
        brokers.seconds += 10
        assert source.latest(end, limited=False) == end == json_of(t=[99])


def test_available_now_reads_a_topic_created_again_up_to_what_is_there_when_it_is_noticed(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers, failOnDataLoss="false")
    source.pin()
    start = source.latest(OPEN, limited=False)
    brokers.create_again("t", (0, 3))
    ends = [start]
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(source.latest(ends[-1], limited=True))
        brokers.has(t=[(0, 5)])
    assert ends[1:] == [json_of(t=[0]), json_of(t=[3]), json_of(t=[3])]


def test_available_now_forgets_the_end_of_an_unread_topic_that_was_created_again(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    source.pin()
    assert source.latest(json_of(t=[10]), limited=True) == json_of(t=[10])
    brokers.create_again("t", (0, 3))
    assert source.latest(json_of(t=[0]), limited=True) == json_of(t=[3])


def test_ranges_name_the_topic_that_the_querys_offsets_belong_to(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    brokers.has(t=[(0, 20)])
    end = source.latest(start, limited=False)
    read = brokers.id_of("t")
    brokers.create_again("t", (0, 30))  # after the batch was planned: its tasks must not read the new topic
    [[only]] = source.batch(start, end)
    assert only.topic_id == read


def test_a_topic_deleted_while_the_query_runs_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u")
    start = source.latest(OPEN, limited=False)
    brokers.delete("t")
    with pytest.raises(DataLoss, match=r"t-0 from 10 \(the partition is gone\)"):
        source.latest(start, limited=False)


def test_a_topic_deleted_while_the_query_was_away_is_data_loss(open_positions):
    source = open_positions(Brokers(u=[(0, 5)]), subscribe="t,u")
    with pytest.raises(DataLoss, match=r"t-0 from 10 \(the partition is gone\)"):
        source.batch(json_of(t=[10], u=[5]), source.latest(json_of(t=[10], u=[5]), limited=False))


def test_a_deleted_topic_is_read_on_request_once_it_is_there_again(open_positions, caplog):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u", failOnDataLoss="false")
    start = source.latest(OPEN, limited=False)
    brokers.delete("t")
    end = source.latest(start, limited=False)
    assert source.batch(start, end) == []
    assert "t-0 from 10 (the partition is gone)" in caplog.text
    brokers.has(t=[(0, 3)])
    brokers.seconds += 10.0
    after = source.latest(end, limited=False)
    assert after == json_of(t=[3], u=[5])
    [[only]] = source.batch(end, after)
    assert (only.start, only.end, only.topic_id) == (0, 3, brokers.id_of("t"))


def test_a_topic_deleted_since_it_was_looked_up_is_left_out(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u", failOnDataLoss="false")
    start = source.latest(OPEN, limited=False)
    brokers.topics.delete("t")
    assert source.latest(start, limited=False) == json_of(u=[5])
    assert source.batch(start, json_of(t=[12], u=[5])) == []


def test_a_deleted_partition_of_assign_is_data_loss_too(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, assign='{"t": [0], "u": [0]}')
    start = source.latest(OPEN, limited=False)
    brokers.delete("t")
    with pytest.raises(DataLoss, match=r"t-0 from 10 \(the partition is gone\)"):
        source.batch(start, source.latest(start, limited=False))


SELECTED = [{"subscribe": "t,u"}, {"assign": '{"t": [0], "u": [0]}'}, {"subscribePattern": "^[tu]$"}]


@pytest.mark.parametrize("options", SELECTED)
def test_a_deleted_topic_is_given_up_whoever_has_planned_the_batch(open_positions, options):
    """The built-in source, and earlier releases, have recorded the plan before they refused it."""
    start, planned = json_of(t=[10], u=[5]), json_of(u=[8])
    with pytest.raises(DataLoss, match="set removedTopics=t"):
        open_positions(Brokers(u=[(0, 8)]), **options).batch(start, planned)
    source = open_positions(Brokers(u=[(0, 8)]), **options, removedTopics="t")
    assert source.batch(planned, planned) == []
    [[only]] = source.batch(start, planned)
    assert (only.partition.topic, only.start, only.end) == ("u", 5, 8)


@pytest.mark.parametrize("options", SELECTED)
def test_a_deleted_topic_that_is_there_again_after_a_restart_is_given_up_as_another_one(open_positions, options):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    start = open_positions(brokers, **options).latest(OPEN, limited=False)
    brokers.delete("t")
    with pytest.raises(DataLoss, match="set removedTopics=t"):
        open_positions(brokers, **options).latest(start, limited=False)
    brokers.has(t=[(0, 3)])
    source = open_positions(brokers, **options)
    back = source.latest(start, limited=False)
    with pytest.raises(DataLoss, match="created again.* 3 offsets of the new topic come before 10"):
        source.batch(start, back)
    source = open_positions(brokers, **options, failOnDataLoss="false")
    assert source.batch(start, back) == []
    [[only]] = source.batch(back, source.latest(back, limited=False))
    assert (only.partition.topic, only.start, only.end) == ("t", 0, 3)


def test_a_batch_that_was_planned_without_a_topic_that_exists_is_to_be_planned_again(open_positions):
    brokers = Brokers(t=[(0, 30)], u=[(0, 8)])
    start = json_of(t=[10], u=[5])
    source = open_positions(brokers, subscribe="t,u")
    with pytest.raises(DataLoss, match=r"in no batch's plan: t-0 from 10 .* it exists.*delete offsets/<n>") as raised:
        source.batch(start, json_of(u=[8]))
    assert "removedTopics" not in str(raised.value)
    assert ranges_of(source.batch(start, source.latest(start, limited=False))) == {"t": (10, 30), "u": (5, 8)}


def ranges_of(tasks):
    return {each.partition.topic: (each.start, each.end) for task in tasks for each in task}


# What the options no longer select


def test_a_topic_that_was_read_may_be_left_out(open_positions, caplog):
    brokers = Brokers(t=[(0, 10)], u=[(0, 9)])
    source = open_positions(brokers, subscribe="u")
    end = source.latest(json_of(t=[10], u=[5]), limited=False)
    assert end == json_of(u=[9])
    [[only]] = source.batch(json_of(t=[10], u=[5]), end)
    assert (only.partition.topic, only.start, only.end) == ("u", 5, 9)
    assert "goes on without t" in caplog.text


def test_a_topic_that_was_left_out_and_is_selected_again_is_read_from_its_beginning(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 9)])
    without = open_positions(brokers, subscribe="u").latest(json_of(t=[10], u=[5]), limited=False)
    source = open_positions(brokers, subscribe="t,u")
    end = source.latest(without, limited=False)
    assert end == json_of(t=[10], u=[9])
    [[only]] = source.batch(without, end)
    assert (only.partition.topic, only.start, only.end) == ("t", 0, 10)


@pytest.mark.parametrize("options", [{"subscribe": "u"}, {"subscribePattern": "u.*"}, {"assign": '{"u": [0]}'}])
def test_a_topic_with_unread_records_is_not_left_out(open_positions, options):
    source = open_positions(Brokers(t=[(0, 30)], u=[(0, 5)]), **options)
    start = json_of(t=[10], u=[5])
    with pytest.raises(ConfigurationError, match=r"t-0 from 10 to 30 \(it exists\)") as raised:
        source.batch(start, source.latest(start, limited=False))
    assert raised.value.option == next(iter(options))
    assert "removedTopics=t:" in str(raised.value)
    assert "failOnDataLoss" not in str(raised.value)


@pytest.mark.parametrize("options", [{"subscribe": "u"}, {"subscribePattern": "u.*"}, {"assign": '{"u": [0]}'}])
def test_a_topic_that_was_not_left_out_is_read_on_where_it_was_once_it_is_selected_again(open_positions, options):
    """Nothing is recorded before that is known: a plan without the topic would have it begin again."""
    brokers = Brokers(t=[(0, 30)], u=[(0, 8)])
    start = json_of(t=[10], u=[5])
    with pytest.raises(ConfigurationError, match="select them again"):
        open_positions(brokers, **options).latest(start, limited=False)
    source = open_positions(brokers, subscribe="t,u")
    assert ranges_of(source.batch(start, source.latest(start, limited=False))) == {"t": (10, 30), "u": (5, 8)}


def test_a_topic_that_is_no_longer_there_is_not_left_out_because_it_may_have_unread_records(open_positions):
    source = open_positions(Brokers(u=[(0, 5)]), subscribe="u")
    start = json_of(t=[10], u=[5])
    with pytest.raises(ConfigurationError, match=r"t-0 from 10 \(it does not exist any more"):
        source.batch(start, source.latest(start, limited=False))


def test_a_topic_that_another_has_replaced_is_not_left_out(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    both = open_positions(brokers, subscribe="t,u")
    start = recorded(both.latest(OPEN, limited=False))
    brokers.create_again("t", (0, 3))
    source = open_positions(brokers, subscribe="u")
    with pytest.raises(ConfigurationError, match=r"t-0 from 10 \(it does not exist any more"):
        source.batch(start, source.latest(start, limited=False))


@pytest.mark.parametrize("there", [{"t": [(0, 30)]}, {}], ids=["it exists", "it does not"])
def test_unread_records_of_a_removed_topic_are_given_up_on_request_and_no_others(open_positions, there):
    source = open_positions(Brokers(u=[(7, 9)], **there), subscribe="u", removedTopics="t")
    start = json_of(t=[10], u=[8])
    [[only]] = source.batch(start, source.latest(start, limited=False))
    assert (only.partition.topic, only.start, only.end) == ("u", 8, 9)
    start = json_of(t=[10], u=[5])
    with pytest.raises(DataLoss, match="u-0 from 5 to 7"):
        source.batch(start, source.latest(start, limited=False))


def test_a_deleted_topic_that_is_still_selected_is_given_up_on_request_and_read_if_it_comes_again(open_positions):
    brokers = Brokers(u=[(0, 9)])
    source = open_positions(brokers, subscribe="t,u", removedTopics="t")
    start = json_of(t=[10], u=[8])
    end = source.latest(start, limited=False)
    [[only]] = source.batch(start, end)
    assert (only.partition.topic, only.start, only.end) == ("u", 8, 9)
    brokers.has(t=[(0, 3)])
    brokers.seconds += 10.0
    after = source.latest(end, limited=False)
    [[only]] = source.batch(end, after)
    assert (only.partition.topic, only.start, only.end) == ("t", 0, 3)


def test_a_batch_that_an_earlier_run_planned_with_a_topic_is_not_run_without_it(open_positions):
    source = open_positions(Brokers(t=[(0, 30)], u=[(0, 9)]), subscribe="u")
    with pytest.raises(ConfigurationError, match=r"t-0 from 10 to 20 \(it exists\)"):
        source.batch(json_of(t=[10], u=[5]), json_of(t=[20], u=[9]))


def test_with_fail_on_data_loss_false_a_topic_is_left_out_with_a_warning(open_positions, caplog):
    source = open_positions(Brokers(t=[(0, 30)], u=[(0, 9)]), subscribe="u", failOnDataLoss="false")
    start = json_of(t=[10], u=[5])
    [[only]] = source.batch(start, source.latest(start, limited=False))
    assert only.partition.topic == "u"
    assert "data was lost and is skipped" in caplog.text


def test_a_deleted_topic_costs_a_wait_once(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u", failOnDataLoss="false")
    at = source.latest(OPEN, limited=False)
    brokers.delete("t")
    waited = []
    for end in (6, 7, 8):
        brokers.has(u=[(0, end)])
        before = brokers.seconds
        at = source.latest(at, limited=False)
        assert at == json_of(u=[end])
        waited.append(brokers.seconds - before)
    assert waited[0] >= 5
    assert max(waited[1:]) < 0.1


@pytest.mark.parametrize("options", [{"subscribe": "t,u"}, {"assign": '{"t": [0], "u": [0]}'}])
def test_available_now_continues_without_a_topic_that_was_deleted_while_the_query_was_away(open_positions, options):
    source = open_positions(Brokers(u=[(0, 5)]), failOnDataLoss="false", **options)
    source.pin()
    assert source.latest(json_of(t=[10], u=[4]), limited=False) == json_of(u=[5])


@pytest.mark.parametrize(
    "given", [{"subscribe": "t"}, {"assign": '{"t": [0, 1]}'}, {"subscribePattern": "t.*"}], ids=str
)
@pytest.mark.parametrize("missing", ["a partition", "the topic"])
def test_a_broker_that_has_not_heard_of_a_partition_does_not_make_it_deleted(open_positions, given, missing):
    brokers = Brokers(t=[(0, 20)], u=[(0, 1)])
    if missing == "the topic":
        brokers.topics.delete("t")
    brokers.world.after(0.05, "", lambda: brokers.has(t=[(0, 20), (0, 30)]))
    source = open_positions(brokers, failOnDataLoss="false", **given)
    assert source.latest(json_of(t=[10, 15]), limited=False) == json_of(t=[20, 30])
    assert brokers.seconds < 5


def test_a_topic_created_again_with_fewer_partitions_is_waited_for_once(open_positions):
    brokers = Brokers(t=[(0, 10), (0, 10)])
    source = open_positions(brokers, failOnDataLoss="false")
    at = source.latest(json_of(t=[10, 10]), limited=False)
    brokers.create_again("t", (0, 3))
    before = brokers.seconds
    end = source.latest(at, limited=False)
    assert source.batch(at, end) == []
    assert source.latest(end, limited=False) == json_of(t=[3])
    assert brokers.seconds - before < 6


def test_ranges_name_the_leader_epoch_that_they_were_planned_with(open_positions):
    brokers = Brokers(t=[(0, 10)])
    brokers.topics.leader_epoch[T0] = 4
    [[only]] = open_positions(brokers).batch(json_of(t=[0]), json_of(t=[10]))
    assert only.leader_epoch == 4


def test_a_misspelt_topic_is_unknown_even_if_data_loss_is_allowed(open_positions):
    source = open_positions(Brokers(u=[(0, 5)]), subscribe="t,u", failOnDataLoss="false")
    with pytest.raises(UnknownTopic, match="'t'"):
        source.latest(OPEN, limited=False)


def test_a_start_past_the_last_stable_offset_waits_for_the_transactions_there(open_positions):
    brokers = Brokers(t=[(0, 33, 38)])
    source = open_positions(brokers)
    assert source.latest(json_of(t=[38]), limited=False) == json_of(t=[38])
    brokers.has(t=[(0, 40)])
    assert source.latest(json_of(t=[38]), limited=False) == json_of(t=[40])


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_leader_that_has_not_heard_of_its_successor_ends_no_batch_before_its_start(open_positions, isolation_level):
    brokers = Brokers(t=[(0, 33)])
    brokers.world.after(0.3, "", lambda: brokers.has(t=[(0, 50)]))
    source = open_positions(brokers, **{"kafka.isolation.level": isolation_level, "failOnDataLoss": "false"})
    assert source.latest(json_of(t=[39]), limited=False) == json_of(t=[50])


def test_a_start_past_the_high_watermark_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 33, 38)])
    source = open_positions(brokers)
    with pytest.raises(DataLoss, match="t-0 from 39 .*ends at 33"):
        source.batch(json_of(t=[39]), source.latest(json_of(t=[39]), limited=False))


def test_a_new_query_on_a_topic_created_again_that_ends_before_the_committed_offset_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 10)])
    brokers.group("g").commit_at_once({T0: (12, "")}, now_s=0.0)
    source = open_positions(brokers, startingOffsets="committed-or-earliest", **{"kafka.group.id": "g"})
    with pytest.raises(DataLoss, match="t-0 from 12 .*ends at 10"):
        first_batch(source)


def test_a_new_query_whose_committed_offset_was_deleted_is_data_loss(open_positions):
    brokers = Brokers(t=[(15, 20)])
    brokers.group("g").commit_at_once({T0: (12, "")}, now_s=0.0)
    source = open_positions(brokers, startingOffsets="committed-or-earliest", **{"kafka.group.id": "g"})
    with pytest.raises(DataLoss, match="t-0 from 12 to 15"):
        first_batch(source)
