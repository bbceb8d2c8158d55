"""Batch reads: what KafkaRelationSuite demands, and what KafkaOffsetReaderSuite demands of their tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.producing import delete_records, end_transaction, transact
from tests.reading import await_stable
from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import Connector, numbers, values

SUITE, OFFSETS, OWN = "KafkaRelationSuite", "KafkaOffsetReaderSuite", "of this project"
FIRST = 1_700_000_000_000
SECOND, THIRD, LAST = FIRST + 1_000, FIRST + 2_000, FIRST + 3_000
NEVER = (1 << 63) - 1


def everywhere(topic: str, *at: int) -> str:
    """An option's JSON: these numbers for the topic's partitions 0, 1, …"""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(at)}})


def three_partitions(connector: Connector) -> str:
    """A topic with 0 to 9, 10 to 19 and 20."""
    return connector.topic(values(10), values(10, 20), [b"20"])


def three_times(connector: Connector) -> str:
    """A topic with 0 to 29 in three partitions, by the remainder of three: ten numbers of each of three times."""
    topic = connector.topic([], [], [])
    for timestamp, first in ((FIRST, 0), (SECOND, 10), (THIRD, 20)):
        for partition in range(3):
            content = [b"%d" % number for number in range(first, first + 10) if number % 3 == partition]
            connector.send(topic, content, partition=partition, timestamp=timestamp)
    return topic


def tasks(frame: DataFrame) -> list[tuple[int, int, int]]:
    """(partition, first offset, last offset + 1) of what each task reads."""
    bounds = frame.groupBy("partition", F.spark_partition_id().alias("task")).agg(F.min("offset"), F.max("offset"))
    return sorted((row[0], row[2], row[3] + 1) for row in bounds.collect())


# -- bounds by offset


@case(SUITE, [*range(21)], "subscribe", in_every_run=True)
def a_read_without_bounds_returns_every_record(connector: Connector) -> object:
    return numbers(connector.read(three_partitions(connector)))


@case(SUITE, [*range(21)], "startingOffsets", "endingOffsets")
def a_read_from_earliest_to_latest_returns_every_record(connector: Connector) -> object:
    topic = three_partitions(connector)
    return numbers(connector.read(topic, startingOffsets="earliest", endingOffsets="latest"))


@case(SUITE, [*range(30)], "endingOffsets")
def a_frame_that_is_loaded_again_reads_up_to_the_new_latest_offset(connector: Connector) -> object:
    topic = three_partitions(connector)
    numbers(connector.read(topic))
    connector.send(topic, values(21, 30), partition=2)
    return numbers(connector.read(topic))


@case(SUITE, [*range(21)], "startingOffsets", "endingOffsets")
def a_read_takes_earliest_latest_and_offsets_side_by_side(connector: Connector) -> object:
    topic = three_partitions(connector)
    given = {"startingOffsets": everywhere(topic, -2, -2, 0), "endingOffsets": everywhere(topic, -1, -1, 1)}
    return numbers(connector.read(topic, **given))


@case(SUITE, [*range(31)], "startingOffsets", "endingOffsets")
def an_end_that_is_an_offset_stays_and_one_that_is_latest_moves(connector: Connector) -> object:
    topic = three_partitions(connector)
    given = {"startingOffsets": everywhere(topic, -2, -2, 0), "endingOffsets": everywhere(topic, -1, -1, 1)}
    connector.send(topic, values(31, 40), partition=2)
    connector.send(topic, values(21, 31), partition=1)
    return numbers(connector.read(topic, **given))


@case(SUITE, [1, 2, 3])
def a_read_takes_the_offsets_from_its_start_up_to_but_not_including_its_end(connector: Connector) -> object:
    topic = connector.topic(values(10))
    return numbers(connector.read(topic, startingOffsets=everywhere(topic, 1), endingOffsets=everywhere(topic, 4)))


@case(SUITE, sorted([*range(11), *range(11)]))
def a_frame_united_with_itself_has_every_record_twice(connector: Connector) -> object:
    frame = connector.read(connector.topic(values(11)))
    return numbers(frame.union(frame))


@case(SUITE, [*range(10, 20)], "startingOffsets")
def a_frame_that_is_loaded_again_starts_at_the_new_earliest_offset(connector: Connector) -> object:
    topic = connector.topic(values(10))
    before = numbers(connector.read(topic))
    assert before == [*range(10)]
    delete_records(connector.kafka.bootstrap, topic, 10)
    connector.send(topic, values(10, 20))
    return numbers(connector.read(topic))


# -- headers


@case(SUITE, [(1, None), (2, [("a", b"b"), ("c", b"d")]), (3, [("e", b"f"), ("e", b"g")])], "includeHeaders")
def headers_are_a_column_that_is_null_where_there_are_none(connector: Connector) -> object:
    topic = connector.topic([b"1"], [], [])
    connector.send(topic, [b"2"], partition=1, headers=[("a", b"b"), ("c", b"d")])
    connector.send(topic, [b"3"], partition=2, headers=[("e", b"f"), ("e", b"g")])
    rows = connector.read(topic, includeHeaders="true").select("value", "headers").collect()
    return sorted(
        (int(row.value), row.headers and [(header.key, bytes(header["value"])) for header in row.headers])
        for row in rows
    )


@case(SUITE, ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"], "includeHeaders")
def without_the_option_there_is_no_column_of_headers(connector: Connector) -> object:
    return connector.read(connector.topic([])).columns


# -- bounds by time


def by_time(
    sentence: str,
    demand: object,
    of: Callable[[str], dict[str, Any]],
    *options: str,
    in_every_run: bool = False,
    here: object = ...,
) -> None:
    """Adds the case of a read of `three_times` with the options that `of` gives for its topic."""

    def run(connector: Connector) -> object:
        topic = three_times(connector)
        return numbers(connector.read(topic, **of(topic)))

    case(SUITE, demand, *options, here=here, sentence=sentence, in_every_run=in_every_run)(run)


STARTS, ENDS = "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
by_time(
    "a_read_is_bounded_by_a_time_for_each_partition",
    [*range(10, 20)],
    lambda topic: {STARTS: everywhere(topic, *[SECOND] * 3), ENDS: everywhere(topic, *[THIRD] * 3)},
    STARTS,
    ENDS,
    in_every_run=True,
)
by_time(
    "a_read_may_start_by_time_and_end_at_offsets",
    sorted([number for number in range(30) if number % 3 != 2] + [2]),
    lambda topic: {STARTS: everywhere(topic, *[FIRST] * 3), "endingOffsets": everywhere(topic, -1, -1, 1)},
    STARTS,
    "endingOffsets",
)
by_time(
    "a_read_may_start_at_offsets_and_end_by_time",
    [*range(20)],
    lambda topic: {"startingOffsets": everywhere(topic, -2, -2, 0), ENDS: everywhere(topic, *[THIRD] * 3)},
    "startingOffsets",
    ENDS,
)
by_time(
    "a_read_with_a_start_by_time_alone_goes_on_to_the_latest_offset",
    [*range(10, 30)],
    lambda topic: {STARTS: everywhere(topic, *[SECOND] * 3)},
    STARTS,
)
by_time(
    "a_read_with_an_end_by_time_alone_begins_at_the_earliest_offset",
    [*range(20)],
    lambda topic: {ENDS: everywhere(topic, *[THIRD] * 3)},
    ENDS,
)
by_time(
    "a_read_is_bounded_by_a_time_for_all_partitions",
    [*range(10, 20)],
    lambda topic: {"startingTimestamp": f"{SECOND}", "endingTimestamp": f"{THIRD}"},
    "startingTimestamp",
    "endingTimestamp",
)
by_time(
    "a_time_after_every_record_of_a_partition_is_no_start",
    Refusal("No offset matched from request"),
    lambda topic: {STARTS: everywhere(topic, SECOND, SECOND, NEVER)},
    STARTS,
    "startingOffsetsByTimestampStrategy",
    here=Refusal("-2 has no record with this timestamp or a later one"),
)
by_time(
    "a_time_after_every_record_of_a_partition_is_an_end_at_its_latest_offset",
    sorted([*range(10), *(number for number in range(10, 30) if number % 3 == 2)]),
    lambda topic: {ENDS: everywhere(topic, SECOND, SECOND, NEVER)},
    ENDS,
)
by_time(
    "a_time_for_all_partitions_counts_before_times_of_partitions_and_offsets",
    [*range(20, 30)],
    lambda topic: {
        "startingTimestamp": f"{THIRD}",
        STARTS: everywhere(topic, *[SECOND] * 3),
        "startingOffsets": "earliest",
    },
    "startingTimestamp",
    STARTS,
    "startingOffsets",
)
by_time(
    "times_of_partitions_count_before_offsets",
    [*range(10, 30)],
    lambda topic: {STARTS: everywhere(topic, *[SECOND] * 3), "startingOffsets": "earliest"},
    STARTS,
    "startingOffsets",
)
by_time(
    "a_time_for_all_partitions_counts_before_other_ends",
    [*range(10)],
    lambda topic: {
        "endingTimestamp": f"{SECOND}",
        ENDS: everywhere(topic, *[THIRD] * 3),
        "endingOffsets": "latest",
    },
    "endingTimestamp",
    ENDS,
    "endingOffsets",
)


# -- transactions


@case(
    SUITE,
    [[], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]],
    "kafka.isolation.level",
    in_every_run=True,
)
def read_committed_leaves_out_open_and_aborted_transactions(connector: Connector) -> object:
    return transactions(connector, "read_committed")


@case(
    SUITE,
    [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [*range(1, 11)], [*range(1, 16)]],
    "kafka.isolation.level",
)
def read_uncommitted_returns_open_and_aborted_transactions(connector: Connector) -> object:
    return transactions(connector, "read_uncommitted")


def transactions(connector: Connector, isolation_level: str) -> list[list[int]]:
    """What is read while a transaction is open, after it was committed, after one was aborted, after another commit."""
    bootstrap, topic = connector.kafka.bootstrap, connector.topic([])

    def seen() -> list[int]:
        return numbers(connector.read(topic, **{"kafka.isolation.level": isolation_level}))

    still_open = transact(bootstrap, topic, values(1, 6), "leave open")
    of_open = seen()
    end_transaction(still_open, bootstrap, topic, "commit")
    of_committed = seen()
    transact(bootstrap, topic, values(6, 11), "abort")
    of_aborted = seen()
    transact(bootstrap, topic, values(11, 16), "commit")
    await_stable(bootstrap, topic)
    return [of_open, of_committed, of_aborted, seen()]


@case(
    OFFSETS,
    [1, 2, 3],
    "kafka.isolation.level",
    here=[2, 3],
    documented=Documented(
        "Reading is read_committed", "it also returns records of transactions that are aborted later"
    ),
    in_every_run=True,
)
def without_an_isolation_level_uncommitted_records_are_read(connector: Connector) -> object:
    topic = connector.topic([])
    transact(connector.kafka.bootstrap, topic, [b"1"], "abort")
    connector.send(topic, values(2, 4))
    return numbers(connector.read(topic))


@case(
    OFFSETS,
    Refusal("for configuration isolation.level"),
    "kafka.isolation.level",
    here=Refusal("option 'kafka.isolation.level': 'intentionally' is not one of"),
)
def an_isolation_level_that_there_is_not_is_refused(connector: Connector) -> object:
    return numbers(connector.read(connector.topic([b"1"]), **{"kafka.isolation.level": "intentionally"}))


# -- tasks


@case(SUITE, (True, [*range(21)]), "minPartitions", in_every_run=True)
def min_partitions_divides_large_partitions_among_tasks(connector: Connector) -> object:
    frame = connector.read(three_partitions(connector), minPartitions="6")
    return frame.rdd.getNumPartitions() >= 6, numbers(frame)


@case(OFFSETS, [(0, 1, 2), (0, 2, 3), (0, 3, 4)], "minPartitions", "startingOffsets", "endingOffsets")
def tasks_divide_a_range_between_given_offsets(connector: Connector) -> object:
    topic = connector.topic(values(10))
    bounds = {"startingOffsets": everywhere(topic, 1), "endingOffsets": everywhere(topic, 4)}
    return tasks(connector.read(topic, minPartitions="3", **bounds))


@case(OFFSETS, [(0, 0, 1), (0, 1, 2), (0, 2, 4)], "minPartitions")
def tasks_divide_a_range_from_earliest_to_latest(connector: Connector) -> object:
    return tasks(connector.read(connector.topic(values(4)), minPartitions="3"))


@case(OFFSETS, [(0, 0, 33), (0, 33, 66), (0, 66, 100), (1, 0, 3)], "minPartitions")
def a_partition_that_is_small_stays_in_a_task(connector: Connector) -> object:
    topic = connector.topic(values(100), values(4))
    bounds = {"startingOffsets": everywhere(topic, -2, -2), "endingOffsets": everywhere(topic, -1, 3)}
    return tasks(connector.read(topic, minPartitions="4", **bounds))


@case(
    OFFSETS,
    [(0, 0, 10), (1, 0, 3)],
    "maxRecordsPerPartition",
    here=[(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3)],
    documented=Documented("Options", "Also in a batch read without `minPartitions`"),
)
def max_records_per_partition_limits_the_tasks_of_a_batch_read(connector: Connector) -> object:
    return tasks(connector.read(connector.topic(values(10), values(3)), maxRecordsPerPartition="4"))


@case(
    OFFSETS,
    3,
    "minPartitions",
    here=1,
    documented=Documented("Options", "The built-in source has one task per partition"),
)
def without_an_option_each_partition_has_a_task_of_its_own(connector: Connector) -> object:
    return connector.read(connector.topic(values(10), values(10), [b"0"])).rdd.getNumPartitions()


# -- bounds that do not fit


@case(
    SUITE,
    Refusal("should have the same topic-partitions"),
    "startingOffsets",
    "endingOffsets",
    here=Refusal("option 'endingOffsets': does not list .*-2"),
)
def a_start_and_an_end_of_other_partitions_are_refused(connector: Connector) -> object:
    topic = three_partitions(connector)
    bounds = {"startingOffsets": everywhere(topic, 1, 1, 1), "endingOffsets": everywhere(topic, 0, 0)}
    return numbers(connector.read(topic, **bounds))


@case(
    OFFSETS,
    Refusal("start offsets don't match what are assigned"),
    "startingOffsets",
    here=Refusal("option 'startingOffsets': does not list .*-2"),
)
def a_start_that_leaves_a_partition_out_is_refused(connector: Connector) -> object:
    topic = three_partitions(connector)
    bounds = {"startingOffsets": everywhere(topic, -2, -2), "endingOffsets": everywhere(topic, -1, 3)}
    return numbers(connector.read(topic, minPartitions="4", **bounds))


def times_of(count: int) -> None:
    @case(
        OFFSETS,
        Refusal("timestamp based start offsets don't match what are assigned"),
        STARTS,
        here=Refusal(f"option '{STARTS}': " + ("does not list .*-2" if count < 3 else "lists .*-3, which")),
        sentence=f"times_of_{count}_partitions_are_refused_for_a_topic_of_3",
    )
    def run(connector: Connector) -> object:
        topic = three_times(connector)
        return numbers(connector.read(topic, minPartitions="4", **{STARTS: everywhere(topic, *[FIRST] * count)}))


times_of(2)
times_of(4)


@case(
    SUITE,
    Refusal("start offset 1 is greater than the end offset 0"),
    "startingOffsets",
    "endingOffsets",
    here=Refusal("start after its end"),
)
def a_start_after_its_end_is_refused(connector: Connector) -> object:
    topic = three_partitions(connector)
    bounds = {"startingOffsets": everywhere(topic, 1, 1, 1), "endingOffsets": everywhere(topic, 0, 0, 0)}
    return numbers(connector.read(topic, **bounds))


@case(
    SUITE,
    Refusal("start offset 3 is greater than the resolved end offset 1"),
    "startingOffsets",
    ENDS,
    here=Refusal("start after its end"),
)
def a_start_after_an_end_by_time_is_refused(connector: Connector) -> object:
    topic = connector.topic([], [], [])
    for partition in range(3):
        connector.send(topic, [b"0"], partition=partition, timestamp=FIRST)
        connector.send(topic, [b"0"], partition=partition, timestamp=SECOND)
    bounds = {"startingOffsets": everywhere(topic, 3, 3, 3), ENDS: everywhere(topic, *[SECOND] * 3)}
    return numbers(connector.read(topic, **bounds))


@case(
    SUITE,
    Refusal("start offset .* is greater than the resolved end offset"),
    "startingOffsets",
    here=Refusal("start after its end"),
)
def a_start_after_the_latest_offset_is_refused(connector: Connector) -> object:
    topic = connector.topic([], [], [])
    return numbers(connector.read(topic, startingOffsets=everywhere(topic, 1, 1, 1)))


@case(
    SUITE,
    Refusal("start offset .* is greater than the resolved end offset"),
    "startingTimestamp",
    "endingTimestamp",
    here=Refusal("start after its end"),
)
def a_time_of_the_start_after_that_of_the_end_is_refused(connector: Connector) -> object:
    topic = three_times(connector)
    return numbers(connector.read(topic, startingTimestamp=f"{THIRD}", endingTimestamp=f"{SECOND}"))


# -- bounds by time and transactions


@case(
    OWN,
    [],
    "endingTimestamp",
    here=[1, 2, 3],
    documented=Documented("Options", "which may be [a transaction's marker or an aborted record]"),
)
def the_records_of_a_past_transaction_are_read_up_to_a_time_after_them(connector: Connector) -> object:
    topic = connector.topic([])
    transact(connector.kafka.bootstrap, topic, [b"0"], "abort")
    connector.send(topic, values(1, 4), timestamp=FIRST)
    bounds = {"endingTimestamp": f"{SECOND}", "kafka.isolation.level": "read_committed"}
    return numbers(connector.read(topic, **bounds))
