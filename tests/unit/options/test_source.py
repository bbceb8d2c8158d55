"""The source's options, and what must hold between several of them."""

import pickle
from typing import Any

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition as TP
from spark_kafka_eos.options import SourceOptions, Timestamps, source_options
from spark_kafka_eos.options.values import LatestMinus

BROKER = {"kafka.bootstrap.servers": "a:1"}


def source(*, streaming: Any = True, **options: Any) -> SourceOptions:
    return source_options(BROKER | {"subscribe": "t"} | options, streaming=streaming)


def refused(option: str, why: str, *, streaming: Any = True, **options: Any) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        source(streaming=streaming, **options)
    assert caught.value.option == option


def test_defaults_are_those_of_the_built_in_source_save_for_isolation():
    options = source()
    assert (options.starting_offsets, options.fail_on_data_loss, options.include_headers) == ("latest", True, False)
    assert (options.fetch_max_bytes, options.fetch_max_wait_ms, options.max_trigger_delay) == (
        52_428_800,
        500,
        900_000,
    )
    assert options.isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"subscribe": "a,b"}, "subscribe", ("a", "b")),
        ({"subscribePattern": "a.*"}, "subscribe_pattern", "a.*"),
        ({"assign": '{"a": [0]}'}, "assign", (TP("a", 0),)),
    ],
)
def test_there_are_three_ways_to_say_what_to_read(options, field, value):
    assert getattr(source_options(BROKER | options), field) == value


def test_one_of_them_is_required():
    with pytest.raises(
        ConfigurationError, match=r"the topics to read are not set.*Set one of subscribe, subscribePattern, assign\."
    ):
        source_options(BROKER)


@pytest.mark.parametrize(
    "what", [{"subscribe": "a,kafka-eos-ledger"}, {"assign": '{"kafka-eos-ledger": [0]}'}], ids=["subscribe", "assign"]
)
def test_a_ledger_topic_is_only_read_by_who_means_it(what):
    with pytest.raises(ConfigurationError, match="names kafka-eos-ledger.*includeLedgerTopics=true") as error:
        source_options(BROKER | what)
    assert error.value.option in what
    assert source_options(BROKER | what | {"includeLedgerTopics": "true"}) is not None


def test_also_the_ledger_topic_of_the_querys_sink_is_one_if_it_is_on_the_same_cluster():
    own = {"subscribe": "books", "sink.kafka.transactional.id": "id", "sink.ledgerTopic": "books"}
    with pytest.raises(ConfigurationError, match="names books, but that is a ledger topic"):
        source_options(BROKER | own)
    assert source_options(BROKER | own | {"sink.kafka.bootstrap.servers": "elsewhere:1"}) is not None


def test_two_of_them_exclude_each_other():
    refused("subscribe", "subscribe and assign cannot be combined", assign='{"a": [0]}')


def test_a_batch_read_starts_at_the_earliest_offset():
    assert source(streaming=False).starting_offsets == "earliest"


@pytest.mark.parametrize("start", ["latest", '{"t": {"0": -1}}'])
def test_a_batch_read_cannot_start_at_the_latest_offset(start):
    refused("startingOffsets", "cannot start at the latest", streaming=False, startingOffsets=start)
    assert source(startingOffsets=start) is not None


@pytest.mark.parametrize("end", ["latest", '{"t": {"0": 5, "1": -1}}'])
def test_a_stream_does_not_end_at_the_latest_offset(end):
    refused("endingOffsets", r"it moves on.*availableNow", endingOffsets=end)
    assert source(streaming=False, endingOffsets=end) is not None


@pytest.mark.parametrize(
    ("name", "value", "end"),
    [
        ("endingOffsets", '{"t": {"0": 5}}', {TP("t", 0): 5}),
        ("endingTimestamp", "5", Timestamps(everywhere=5, if_none="latest")),
        ("endingOffsetsByTimestamp", '{"t": {"0": 5}}', Timestamps(partitions={TP("t", 0): 5}, if_none="latest")),
    ],
)
def test_a_stream_may_have_an_end(name, value, end):
    assert source(streaming=True, **{name: value}).ending_offsets == end


def test_partitions_that_the_start_does_not_list_may_have_a_start_of_their_own():
    some = {"startingOffsets": '{"t": {"0": 7}}'}
    assert source(**some).starting_offsets_strategy == "error"
    assert source(**some, startingOffsetsStrategy="Earliest").starting_offsets_strategy == "earliest"
    refused("startingOffsetsStrategy", "only to startingOffsets that list", startingOffsetsStrategy="latest")
    refused("startingOffsetsStrategy", "would be empty", streaming=False, startingOffsetsStrategy="latest", **some)


def test_a_batch_read_may_start_before_the_latest_offset():
    assert source(streaming=False, startingOffsets="latest-5").starting_offsets == LatestMinus(5)


def test_before_spark_says_whether_it_streams_neither_rule_is_applied():
    assert source(streaming=None, startingOffsets="latest", endingOffsets="latest").ending_offsets == "latest"


def test_the_committed_start_needs_the_group_whose_offsets_are_meant():
    refused("startingOffsets", r"requires kafka\.group\.id", startingOffsets="committed")
    assert source(startingOffsets="committed", **{"kafka.group.id": "g"}).group_id == "g"


def test_malformed_json_names_the_option_and_shows_the_shape():
    refused(
        "startingOffsets",
        r'expected earliest, latest, latest-100, committed, committed-or-earliest, committed-or-latest or \{"orders"',
        startingOffsets='{"t": 5}',
    )


def test_a_start_outside_the_assigned_partitions_is_refused():
    with pytest.raises(ConfigurationError, match="t-1 is not in assign"):
        source_options(BROKER | {"assign": '{"t": [0]}', "startingOffsets": '{"t": {"0": 1, "1": 1}}'})


def test_a_timestamp_wins_over_timestamps_by_partition_and_those_over_offsets():
    by_partition = {"startingOffsetsByTimestamp": '{"t": {"0": 7}}', "startingOffsets": "earliest"}
    assert source(startingTimestamp="5", **by_partition).starting_offsets == Timestamps(everywhere=5)
    assert source(**by_partition).starting_offsets == Timestamps(partitions={TP("t", 0): 7})


def test_what_happens_where_no_record_is_that_young_is_the_users_choice_for_a_start():
    start = source(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest").starting_offsets
    assert start == Timestamps(everywhere=5, if_none="latest")


def test_an_end_by_time_is_the_latest_offset_where_no_record_is_that_young():
    assert source(streaming=False, endingTimestamp="5").ending_offsets == Timestamps(everywhere=5, if_none="latest")


def test_limits_must_fit_each_other():
    refused(
        "minOffsetsPerTrigger",
        "5 is greater than maxOffsetsPerTrigger, 4",
        minOffsetsPerTrigger="5",
        maxOffsetsPerTrigger="4",
    )
    limits = source(minOffsetsPerTrigger="4", maxOffsetsPerTrigger="4", maxTriggerDelay="1m", minPartitions="8")
    assert (limits.min_offsets_per_trigger, limits.max_offsets_per_trigger) == (4, 4)
    assert (limits.max_trigger_delay, limits.min_partitions) == (60_000, 8)
    assert source(maxBytesPerTrigger="64m").max_bytes_per_trigger == 64 << 20


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"]
)
def test_a_limit_of_nothing_is_refused(name):
    refused(name, "0 is not between 1", **{name: "0"})


def test_committing_offsets_needs_a_group_and_a_stream():
    refused("commitOffsets", r"requires kafka\.group\.id", commitOffsets="true")
    group = {"kafka.group.id": "g"}
    refused("commitOffsets", "only supported in a streaming read", streaming=False, commitOffsets="true", **group)
    assert source(commitOffsets="true", **group).commit_offsets
    assert not source(streaming=False, commitOffsets="false").commit_offsets


def test_values_pickle_since_they_travel_to_the_executors():
    options = source(startingOffsets='{"t": {"0": 5}}')
    assert pickle.loads(pickle.dumps(options)) == options
