"""Where a stream begins and ends, against a cluster that is a table of offsets."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace

import pytest

from spark_kafka_eos.core.backoff import Budget
from spark_kafka_eos.errors import DataLoss, UnknownTopic
from spark_kafka_eos.model import UNRESOLVED, TopicPartition, offsets_from_json
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading import positions, sampling
from spark_kafka_eos.reading.positions import JsonOffsets, Positions

OPEN: JsonOffsets = {name: dict(offsets) for name, offsets in UNRESOLVED.items()}


class Brokers:
    """What a Cluster tells of topics, and `broker.offsets` of their offsets: `{topic: [(earliest, latest), …]}`."""

    def __init__(self, **topics):
        self.topics = topics
        self.asked = []
        self.seconds = 0.0
        self.ids = dict.fromkeys(topics, uuid.UUID(int=1))
        self.high_watermarks = {}  # where a transaction is open

    def create_again(self, name, *ends):
        self.topics[name], self.ids[name] = list(ends), uuid.UUID(int=self.ids[name].int + 1)
        self.seconds += 10.0

    def delete(self, name):
        del self.topics[name]
        self.seconds += 10.0

    def budget(self, milliseconds):
        return Budget(
            milliseconds=milliseconds,
            backoff_ms=100,
            backoff_max_ms=1_000,
            clock=lambda: self.seconds,
            jitter=lambda: 0.5,
        )

    def sleep(self, seconds):
        self.seconds += seconds

    def topic_names(self):
        return sorted(self.topics)

    def refresh(self, names):
        if unknown := set(names) - set(self.topics):
            raise UnknownTopic(f"topic {min(unknown)!r} does not exist")

    def topic(self, name):
        return SimpleNamespace(id=self.ids.setdefault(name, uuid.UUID(int=1)), partitions=range(len(self.topics[name])))

    def earliest(self, cluster, partitions):
        self.refresh({tp.topic for tp in partitions})
        return {tp: self.topics[tp.topic][tp.partition][0] for tp in partitions}

    def latest(self, cluster, partitions, *, isolation):
        self.asked.append(isolation)
        self.refresh({tp.topic for tp in partitions})
        if isolation == "read_uncommitted" and self.high_watermarks:
            return {tp: self.high_watermarks[tp] for tp in partitions}
        return {tp: self.topics[tp.topic][tp.partition][1] for tp in partitions}

    def at_times(self, cluster, times, *, isolation):
        return {tp: time if time < self.topics[tp.topic][tp.partition][1] else None for tp, time in times.items()}


@pytest.fixture
def open_positions(monkeypatch):
    def build(brokers, **given):
        monkeypatch.setattr(positions, "offsets", brokers)
        given = {"subscribe": "t"} | given if "subscribePattern" not in given and "assign" not in given else given
        options = source_options({"kafka.bootstrap.servers": "broker:9092"} | given)
        return Positions(options, brokers, clock=lambda: brokers.seconds)

    return build


def json_of(**offsets):
    return {topic: {str(number): offset for number, offset in enumerate(ends)} for topic, ends in offsets.items()}


def test_a_stream_from_the_earliest_offsets_says_so(open_positions):
    assert open_positions(Brokers(t=[(3, 10), (0, 5)]), startingOffsets="earliest").initial() == json_of(t=[3, 0])


def test_explicit_offsets_are_the_start(open_positions):
    start = open_positions(Brokers(t=[(3, 10), (1, 5)]), startingOffsets='{"t": {"0": 7, "1": -2}}').initial()
    assert start == json_of(t=[7, 1])


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "committed", "kafka.group.id": "g"},
        {"startingOffsets": '{"t": {"0": 7, "1": -1}}'},
        {"startingTimestamp": "4"},
    ],
)
def test_a_start_that_moves_is_left_to_the_first_batch(open_positions, given):
    assert open_positions(Brokers(t=[(0, 10), (0, 5)]), **given).initial() == UNRESOLVED


def test_the_first_batch_of_an_unresolved_start_ends_at_the_start_and_reads_nothing(open_positions):
    brokers = Brokers(t=[(0, 10), (0, 5)])
    source = open_positions(brokers)
    end = source.latest(OPEN, limited=False)
    brokers.topics["t"] = [(0, 99), (0, 99)]
    assert end == json_of(t=[10, 5])
    assert source.batch(source.initial(), end) == []
    assert source.latest(end, limited=False) == json_of(t=[99, 99])


def test_a_start_by_time_is_the_offset_found_for_it(open_positions):
    source = open_positions(Brokers(t=[(0, 10), (0, 5)]), startingTimestamp="4")
    assert source.latest(OPEN, limited=False) == json_of(t=[4, 4])


def test_nothing_new_is_the_very_same_text(open_positions):
    source = open_positions(Brokers(b=[(0, 1)], a=[(0, 2)] * 11), subscribePattern="[ab]")
    start = json.dumps(source.latest(OPEN, limited=False))
    assert json.dumps(source.latest(json.loads(start), limited=False)) == start


def test_the_limit_holds_unless_the_trigger_overrides_it(open_positions):
    source = open_positions(Brokers(t=[(0, 100), (0, 300)]), maxOffsetsPerTrigger="40")
    assert source.latest(json_of(t=[0, 0]), limited=True) == json_of(t=[10, 30])
    assert source.latest(json_of(t=[0, 0]), limited=False) == json_of(t=[100, 300])


class Weights:
    """In the place of `ends_by_weight`: every record weighs ten bytes. `asked` are the ranges, `errors` are raised."""

    def __init__(self, *errors):
        self.asked, self.errors = [], list(errors)

    def __call__(self, cluster, limit, ranges, isolation):
        self.asked.append([(str(one.partition), one.start, one.end) for one in ranges])
        if self.errors:
            raise self.errors.pop(0)
        return {one.partition: min(one.end, one.start + limit // 10) for one in ranges}


@pytest.fixture
def weights(monkeypatch):
    def build(*errors):
        made = Weights(*errors)
        monkeypatch.setattr(sampling, "ends_by_weight", made)
        return made

    return build


def test_the_limit_in_bytes_holds_unless_the_trigger_overrides_it(open_positions, weights):
    asked = weights().asked
    source = open_positions(Brokers(t=[(0, 100), (5, 5), (8, 10)]), maxBytesPerTrigger="70")
    assert source.latest(json_of(t=[4, 5, 0]), limited=True) == json_of(t=[11, 5, 10])
    assert asked == [[("t-0", 4, 100), ("t-2", 8, 10)]], "what is there and wanted is weighed"
    assert source.latest(json_of(t=[4, 5, 0]), limited=False) == json_of(t=[100, 5, 10])


@pytest.mark.parametrize(("offsets", "end"), [("3", 7), ("90", 11)])
def test_the_smaller_of_both_limits_holds(open_positions, weights, offsets, end):
    weights()
    source = open_positions(Brokers(t=[(0, 100)]), maxBytesPerTrigger="70", maxOffsetsPerTrigger=offsets)
    assert source.latest(json_of(t=[4]), limited=True) == json_of(t=[end])


def test_available_now_keeps_the_limit_in_bytes_up_to_its_end(open_positions, weights):
    weights()
    source = open_positions(Brokers(t=[(0, 10)]), maxBytesPerTrigger="70")
    source.pin()
    first = source.latest(json_of(t=[0]), limited=True)
    assert (first, source.latest(first, limited=True)) == (json_of(t=[7]), json_of(t=[10]))


def test_what_retention_deletes_while_it_is_weighed_fails_or_is_left_out(open_positions, weights):
    brokers, gone = Brokers(t=[(0, 100)]), DataLoss("t-0: offsets are gone")
    weights(gone)
    with pytest.raises(DataLoss):
        open_positions(brokers, maxBytesPerTrigger="70").latest(json_of(t=[0]), limited=True)
    weights(gone)
    tolerant = open_positions(brokers, maxBytesPerTrigger="70", failOnDataLoss="false")
    assert tolerant.latest(json_of(t=[0]), limited=True) == json_of(t=[7])


def test_too_few_offsets_are_waited_for_until_the_delay_is_over(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, minOffsetsPerTrigger="50", maxTriggerDelay="60s")
    assert source.latest(json_of(t=[90]), limited=True) == json_of(t=[100]), "the first batch never waits"
    brokers.topics["t"] = [(0, 110)]
    assert source.latest(json_of(t=[100]), limited=True) == json_of(t=[100])
    brokers.seconds = 59.9
    assert source.latest(json_of(t=[100]), limited=True) == json_of(t=[100])
    brokers.seconds = 60.0
    assert source.latest(json_of(t=[100]), limited=True) == json_of(t=[110])
    brokers.topics["t"] = [(0, 160)]
    assert source.latest(json_of(t=[110]), limited=True) == json_of(t=[160]), "enough are there"


def test_available_now_reads_up_to_what_was_there_and_no_further(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, maxOffsetsPerTrigger="60", minOffsetsPerTrigger="50")
    source.pin()
    brokers.topics["t"] = [(0, 1000), (0, 1000)]
    ends = [json_of(t=[0])]
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(source.latest(ends[-1], limited=True))
    assert ends == [json_of(t=[0]), json_of(t=[60]), json_of(t=[100]), json_of(t=[100])]


def test_available_now_does_not_start_behind_its_own_end(open_positions):
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers)
    source.pin()
    brokers.topics["t"] = [(0, 1000)]
    assert source.latest(OPEN, limited=False) == json_of(t=[100])


def test_an_added_partition_is_noticed_after_a_while_and_read_from_its_beginning(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    brokers.topics["t"] = [(0, 10), (0, 7)]
    brokers.seconds = 10.0
    end = source.latest(start, limited=False)
    [task] = source.batch(start, end)
    assert [(one.partition, one.start, one.end) for one in task] == [(TopicPartition("t", 1), 0, 7)]


def test_a_new_topic_that_matches_is_read_from_its_beginning(open_positions):
    brokers = Brokers()
    source = open_positions(brokers, subscribePattern="t.*")
    start = source.latest(OPEN, limited=False)
    assert start == {} != UNRESOLVED
    brokers.topics["t-2"] = [(0, 7)]
    brokers.seconds = 10.0
    assert source.batch(start, source.latest(start, limited=False)) != []


def test_a_pattern_matches_whole_names(open_positions):
    source = open_positions(Brokers(t=[(0, 1)], t2=[(0, 1)], xt=[(0, 1)]), subscribePattern="t")
    assert source.latest(OPEN, limited=False) == json_of(t=[1])


def test_assigned_partitions_are_the_only_ones(open_positions):
    source = open_positions(Brokers(t=[(0, 1), (0, 2), (0, 3)]), assign='{"t": [2, 0]}')
    assert source.latest(OPEN, limited=False) == {"t": {"0": 1, "2": 3}}


def test_an_assigned_partition_that_does_not_exist_is_named(open_positions):
    with pytest.raises(UnknownTopic, match="t-5.*assign"):
        open_positions(Brokers(t=[(0, 1)]), assign='{"t": [0, 5]}').latest(UNRESOLVED, limited=False)


def test_a_first_batch_that_runs_again_leaves_a_partition_added_since_to_the_next(open_positions):
    source = open_positions(Brokers(t=[(0, 10), (0, 7)]), startingOffsets="earliest")
    [task] = source.batch(source.initial(), json_of(t=[10]))
    assert [one.partition for one in task] == [TopicPartition("t", 0)]


def test_offsets_that_are_gone_fail_the_batch(open_positions):
    source = open_positions(Brokers(t=[(50, 100)]))
    with pytest.raises(DataLoss, match="t-0 from 10 to 50"):
        source.batch(json_of(t=[10]), json_of(t=[100]))


def test_offsets_that_are_gone_are_left_out_and_logged_on_request(open_positions, caplog):
    source = open_positions(Brokers(t=[(50, 100)]), failOnDataLoss="false")
    [[only]] = source.batch(json_of(t=[10]), json_of(t=[100]))
    assert (only.start, only.end) == (50, 100)
    assert "t-0 from 10 to 50" in caplog.text


def test_ends_are_asked_for_in_the_querys_isolation_level(open_positions):
    brokers = Brokers(t=[(0, 1)])
    open_positions(brokers, **{"kafka.isolation.level": "read_uncommitted"}).latest(UNRESOLVED, limited=False)
    open_positions(brokers).latest(UNRESOLVED, limited=False)
    assert brokers.asked == ["read_uncommitted", "read_committed"]


def test_the_ends_last_seen_are_reported(open_positions):
    source = open_positions(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="10")
    assert source.reported() is None, "a batch that runs again is planned without a look"
    source.latest(json_of(t=[0]), limited=True)
    assert source.reported() == json_of(t=[100])


def test_unresolved_reads_as_no_offsets_at_all():
    assert offsets_from_json(UNRESOLVED) == {}


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
    brokers.create_again("t", (0, 99))
    end = source.latest(source.latest(start, limited=False), limited=False)
    new, brokers.ids["t"] = brokers.ids["t"], uuid.UUID(int=1)
    for brokers.ids["t"] in (uuid.UUID(int=1), new):
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
        brokers.topics["t"] = [(0, 5)]
    assert ends[1:] == [json_of(t=[0]), json_of(t=[3]), json_of(t=[3])]


def test_available_now_forgets_the_end_of_a_topic_of_which_nothing_was_read_before_it_was_created_again(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    source.pin()
    brokers.create_again("t", (0, 3))
    assert source.latest(json_of(t=[0]), limited=True) == json_of(t=[3])


def test_ranges_name_the_topic_that_the_querys_offsets_belong_to(open_positions):
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers)
    start = source.latest(OPEN, limited=False)
    brokers.topics["t"] = [(0, 20)]
    end = source.latest(start, limited=False)
    brokers.create_again("t", (0, 30))  # after the batch was planned: its tasks must not read the new topic
    [[only]] = source.batch(start, end)
    assert only.topic_id == uuid.UUID(int=1)


def test_a_topic_deleted_while_the_query_runs_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u")
    start = source.latest(OPEN, limited=False)
    brokers.delete("t")
    end = source.latest(start, limited=False)
    assert end == json_of(u=[5])
    with pytest.raises(DataLoss, match=r"t-0 from 10 \(the partition is gone\)"):
        source.batch(start, end)


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
    brokers.create_again("t", (0, 3))
    after = source.latest(end, limited=False)
    assert after == json_of(t=[3], u=[5])
    [[only]] = source.batch(end, after)
    assert (only.start, only.end, only.topic_id) == (0, 3, brokers.ids["t"])


def test_a_topic_deleted_since_it_was_looked_up_is_left_out(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u", failOnDataLoss="false")
    start = source.latest(OPEN, limited=False)
    del brokers.topics["t"]
    assert source.latest(start, limited=False) == json_of(u=[5])
    assert source.batch(start, json_of(t=[12], u=[5])) == []


def test_a_deleted_partition_of_assign_is_data_loss_too(open_positions):
    brokers = Brokers(t=[(0, 10)], u=[(0, 5)])
    source = open_positions(brokers, assign='{"t": [0], "u": [0]}')
    start = source.latest(OPEN, limited=False)
    brokers.delete("t")
    with pytest.raises(DataLoss, match=r"t-0 from 10 \(the partition is gone\)"):
        source.batch(start, source.latest(start, limited=False))


def test_a_deleted_topic_that_is_there_again_after_a_restart_is_still_data_loss(open_positions):
    with pytest.raises(DataLoss, match="t-0 from 10"):
        open_positions(Brokers(t=[(0, 3)])).batch(json_of(t=[10]), {})


def test_a_misspelt_topic_is_unknown_whatever_may_be_lost(open_positions):
    source = open_positions(Brokers(u=[(0, 5)]), subscribe="t,u", failOnDataLoss="false")
    with pytest.raises(UnknownTopic, match="'t'"):
        source.latest(OPEN, limited=False)


def test_a_start_past_the_last_stable_offset_waits_for_the_transactions_there(open_positions):
    brokers = Brokers(t=[(0, 33)])
    brokers.high_watermarks[TopicPartition("t", 0)] = 38
    source = open_positions(brokers)
    assert source.latest(json_of(t=[38]), limited=False) == json_of(t=[38])
    brokers.topics["t"] = [(0, 40)]
    assert source.latest(json_of(t=[38]), limited=False) == json_of(t=[40])


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_leader_that_has_not_heard_of_its_successor_ends_no_batch_before_its_start(open_positions, isolation):
    class Outdated(Brokers):
        def refresh(self, names):
            super().refresh(names)
            if self.seconds > 0.3:
                self.topics["t"] = [(0, 50)]

    source = open_positions(Outdated(t=[(0, 33)]), **{"kafka.isolation.level": isolation, "failOnDataLoss": "false"})
    assert source.latest(json_of(t=[39]), limited=False) == json_of(t=[50])


def test_a_start_past_the_high_watermark_is_data_loss(open_positions):
    brokers = Brokers(t=[(0, 33)])
    brokers.high_watermarks[TopicPartition("t", 0)] = 38
    source = open_positions(brokers)
    with pytest.raises(DataLoss, match="t-0 from 39 .*ends at 33"):
        source.batch(json_of(t=[39]), source.latest(json_of(t=[39]), limited=False))
