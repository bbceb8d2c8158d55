"""What needs no broker: the suites for offset ranges, JSON, offsets and the provider of the source.

The built-in connector's own classes are asked in the driver's JVM, this connector's functions in this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition, offsets_from_json, offsets_to_json
from spark_kafka_eos.options import parsers, source_options
from spark_kafka_eos.reading.task_split import split
from tests.spark.peer.case import Refusal, case
from tests.spark.peer.connector import Connector

RANGES, JSON = "KafkaOffsetRangeCalculatorSuite", "JsonUtilsSuite"
OFFSET, PROVIDER = "KafkaSourceOffsetSuite", "KafkaSourceProviderSuite"
Bounds = Sequence[tuple[str, int, int]]  # topic, first offset, last offset + 1


def java(connector: Connector, name: str) -> Any:
    """A class of the built-in connector."""
    return getattr(connector.spark.sparkContext._jvm.org.apache.spark.sql.kafka010, name)  # type: ignore[union-attr]


def case_insensitive(connector: Connector, options: dict[str, str]) -> Any:
    jvm: Any = connector.spark.sparkContext._jvm
    given = jvm.java.util.HashMap()
    for option, value in options.items():
        given.put(option, value)
    return jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(given)


def in_scala(connector: Connector, items: Sequence[Any]) -> Any:
    jvm: Any = connector.spark.sparkContext._jvm
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(list_in_java(jvm, items)).toSeq()


def list_in_java(jvm: Any, items: Sequence[Any]) -> Any:
    content = jvm.java.util.ArrayList()
    for item in items:
        content.add(item)
    return content


# -- tasks


def divided(connector: Connector, bounds: Bounds, options: dict[str, str]) -> list[tuple[str, int, int]]:
    """The pieces that these ranges are divided into, each with a task of its own."""
    if not connector.is_built_in:
        parsed = source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"} | options)
        ranges = [OffsetRange(partition=TopicPartition(topic, 1), start=a, end=b) for topic, a, b in bounds]
        tasks = split(
            ranges,
            min_partitions=parsed.min_partitions,
            max_records_per_partition=parsed.max_records_per_partition,
        )
        return sorted((piece.partition.topic, piece.start, piece.end) for task in tasks for piece in task)
    jvm: Any = connector.spark.sparkContext._jvm
    nowhere = jvm.scala.Option.empty()
    ranges = [
        java(connector, "KafkaOffsetRange")(jvm.org.apache.kafka.common.TopicPartition(topic, 1), a, b, nowhere)
        for topic, a, b in bounds
    ]
    calculator = java(connector, "KafkaOffsetRangeCalculator").apply(case_insensitive(connector, options))
    pieces = calculator.getRanges(in_scala(connector, ranges), in_scala(connector, []))
    parts = jvm.scala.jdk.javaapi.CollectionConverters.asJava(pieces)
    return sorted((part.topic(), part.fromOffset(), part.untilOffset()) for part in parts)


def ranges(
    sentence: str,
    minimum: int | None,
    bounds: Bounds,
    demand: Bounds,
    *,
    maximum: int | None = None,
    in_every_run: bool = False,
) -> None:
    options = {} if minimum is None else {"minPartitions": f"{minimum}"}
    options |= {} if maximum is None else {"maxRecordsPerPartition": f"{maximum}"}

    @case(RANGES, sorted(demand), *options or ["minPartitions"], sentence=sentence, in_every_run=in_every_run)
    def run(connector: Connector) -> object:
        return divided(connector, bounds, options)


ranges(
    "a_range_without_an_option_is_one_piece",
    None,
    [("t1", 1, 2)],
    [("t1", 1, 2)],
)
ranges(
    "an_empty_range_without_an_option_has_no_piece",
    None,
    [("t1", 1, 2), ("t2", 1, 1)],
    [("t1", 1, 2)],
)
ranges(
    "as_many_ranges_as_the_minimum_are_not_divided",
    3,
    [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)],
    [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)],
    in_every_run=True,
)
ranges(
    "one_range_is_divided_into_the_minimum",
    4,
    [("t1", 1, 5)],
    [("t1", 1, 2), ("t1", 2, 3), ("t1", 3, 4), ("t1", 4, 5)],
)
ranges(
    "the_larger_one_of_two_ranges_is_divided",
    4,
    [("t1", 1, 5), ("t2", 1, 21)],
    [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
)
ranges(
    "an_empty_range_leaves_its_share_to_the_others",
    4,
    [("t1", 1, 1), ("t2", 1, 21)],
    [("t2", 1, 6), ("t2", 6, 11), ("t2", 11, 16), ("t2", 16, 21)],
)
ranges(
    "a_very_small_range_stays_beside_a_very_large_one",
    4,
    [("t1", 1, 2), ("t2", 1, 1001)],
    [("t1", 1, 2), ("t2", 1, 334), ("t2", 334, 667), ("t2", 667, 1001)],
)
ranges(
    "a_minimum_below_the_number_of_ranges_divides_nothing",
    1,
    [("t1", 1, 5), ("t2", 1, 21)],
    [("t1", 1, 5), ("t2", 1, 21)],
)
ranges(
    "a_range_that_is_no_multiple_of_the_minimum_has_its_rest_in_the_last_piece",
    3,
    [("t1", 1, 11)],
    [("t1", 1, 4), ("t1", 4, 7), ("t1", 7, 11)],
)
ranges(
    "an_empty_range_beside_two_others_is_left_out",
    4,
    [("t1", 1, 5), ("t2", 1, 21), ("t3", 1, 1)],
    [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
)
ranges(
    "no_offset_is_dropped_where_ranges_are_divided",
    6,
    [("t1", 0, 10), ("t2", 0, 10), ("t3", 0, 1)],
    [("t1", 0, 3), ("t1", 3, 6), ("t1", 6, 10), ("t2", 0, 3), ("t2", 3, 6), ("t2", 6, 10), ("t3", 0, 1)],
)
ranges(
    "three_large_ranges_are_divided_by_their_sizes",
    9,
    [("t1", 0, 10000), ("t2", 0, 15000), ("t3", 0, 20000)],
    [
        *[("t1", at, at + 5000) for at in (0, 5000)],
        *[("t2", at, at + 5000) for at in (0, 5000, 10000)],
        *[("t3", at, at + 5000) for at in (0, 5000, 10000, 15000)],
    ],
)
ranges(
    "two_large_ranges_are_divided_beside_a_small_one",
    6,
    [("t1", 0, 500), ("t2", 0, 12000), ("t3", 0, 15001)],
    [
        ("t1", 0, 500),
        ("t2", 0, 6000),
        ("t2", 6000, 12000),
        ("t3", 0, 5000),
        ("t3", 5000, 10000),
        ("t3", 10000, 15001),
    ],
)
ranges(
    "one_large_range_is_divided_beside_two_small_ones",
    6,
    [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 10000)],
    [("t1", 0, 1), ("t2", 0, 1), *[("t3", at, at + 2500) for at in (0, 2500, 5000, 7500)]],
)
ranges(
    "a_range_of_two_offsets_is_divided_beside_two_of_one",
    4,
    [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 2)],
    [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 1), ("t3", 1, 2)],
)
ranges(
    "a_maximum_of_records_divides_a_range",
    None,
    [("t1", 0, 10)],
    [("t1", 0, 3), ("t1", 3, 6), ("t1", 6, 10)],
    maximum=4,
)
ranges(
    "a_minimum_of_tasks_and_a_maximum_of_records_both_hold",
    4,
    [("t1", 0, 10), ("t2", 0, 2)],
    [("t1", 0, 3), ("t1", 3, 6), ("t1", 6, 10), ("t2", 0, 2)],
    maximum=4,
)


# -- JSON


def partitions_of(connector: Connector, text: str) -> list[tuple[str, int]]:
    if not connector.is_built_in:
        return sorted((tp.topic, tp.partition) for tp in parsers.assign(text))
    return sorted((tp.topic(), tp.partition()) for tp in java(connector, "JsonUtils").partitions(text))


def offsets_of(connector: Connector, text: str) -> dict[tuple[str, int], int]:
    if not connector.is_built_in:
        parsed = parsers.starting_offsets(text)
        assert isinstance(parsed, dict)
        return {(tp.topic, tp.partition): offset for tp, offset in parsed.items()}
    jvm: Any = connector.spark.sparkContext._jvm
    parsed = jvm.scala.jdk.javaapi.CollectionConverters.asJava(java(connector, "JsonUtils").partitionOffsets(text))
    return {(tp.topic(), tp.partition()): parsed[tp] for tp in parsed}


@case(JSON, [("topicA", 0), ("topicA", 1), ("topicB", 4), ("topicB", 6)], "assign")
def partitions_are_read_from_lists_of_numbers(connector: Connector) -> object:
    return partitions_of(connector, '{"topicA":[0,1],"topicB":[4,6]}')


@case(JSON, {("topicA", 0): 23, ("topicA", 1): -1, ("topicB", 0): -2}, "startingOffsets", in_every_run=True)
def offsets_are_read_from_objects_with_minus_one_and_minus_two(connector: Connector) -> object:
    return offsets_of(connector, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')


def malformed(name: str, text: str, parse: Callable[[Connector, str], object], option: str) -> None:
    @case(JSON, Refusal("Expected e.g."), option, here=Refusal("; expected "), sentence=f"{name}_are_refused")
    def run(connector: Connector) -> object:
        return parse(connector, text)


malformed("offsets_that_are_a_word_of_another_kind", '{"topicA":"first"}', offsets_of, "startingOffsets")
malformed("offsets_that_are_earliest_for_a_topic", '{"topicA":"earliest"}', offsets_of, "startingOffsets")
malformed("offsets_that_are_a_list", '{"topicA":[0,1]}', offsets_of, "startingOffsets")
malformed("offsets_that_are_a_word_for_a_partition", '{"topicA":{"0":"earliest"}}', offsets_of, "startingOffsets")
malformed("offsets_of_no_topic", '"earliest"', offsets_of, "startingOffsets")
malformed("offsets_that_are_not_json", "not json", offsets_of, "startingOffsets")
malformed("partitions_that_are_offsets", '{"topicA":{"0":1}}', partitions_of, "assign")
malformed("partitions_that_are_a_number", '{"topicA":0}', partitions_of, "assign")
malformed("partitions_of_no_topic", "[0]", partitions_of, "assign")
malformed("partitions_that_are_not_json", "not json", partitions_of, "assign")


# -- offsets in a checkpoint


def checkpointed(connector: Connector, text: str) -> dict[tuple[str, int], int]:
    """What the text of an offset in a checkpoint means."""
    if not connector.is_built_in:
        return {(tp.topic, tp.partition): at for tp, at in offsets_from_json(json.loads(text)).items()}
    jvm: Any = connector.spark.sparkContext._jvm
    serialized = jvm.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset(text)
    ends = java(connector, "KafkaSourceOffset").apply(serialized).partitionToOffsets()
    ends = jvm.scala.jdk.javaapi.CollectionConverters.asJava(ends)
    return {(tp.topic(), tp.partition()): ends[tp] for tp in ends}


def written(connector: Connector, text: str) -> dict[str, Any]:
    """An offset of a checkpoint, written again by the connector."""
    if not connector.is_built_in:
        return {name: dict(ends) for name, ends in offsets_to_json(offsets_from_json(json.loads(text))).items()}
    jvm: Any = connector.spark.sparkContext._jvm
    serialized = jvm.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset(text)
    again: dict[str, Any] = json.loads(java(connector, "KafkaSourceOffset").apply(serialized).json())
    return again


OF_2_1 = '{"topic1":{"0":456,"1":789},"topic2":{"0":0}}'


@case(OFFSET, {("topic1", 0): 456, ("topic1", 1): 789, ("topic2", 0): 0})
def offsets_that_spark_2_1_wrote_are_read(connector: Connector) -> object:
    return checkpointed(connector, OF_2_1)


@case(OFFSET, json.loads(OF_2_1))
def offsets_that_were_read_are_written_as_they_were(connector: Connector) -> object:
    return written(connector, OF_2_1)


@case(OFFSET, {("t", 0): 1, ("T", 0): 0})
def topics_whose_names_differ_in_case_have_offsets_of_their_own(connector: Connector) -> object:
    return checkpointed(connector, '{"t":{"0":1},"T":{"0":0}}')


@case(OFFSET, True)
def offsets_of_one_more_partition_are_other_offsets(connector: Connector) -> object:
    return checkpointed(connector, '{"t":{"0":1}}') != checkpointed(connector, '{"t":{"0":1,"1":1}}')


@case(OFFSET, {("t", 0): 5}, in_every_run=True)
def what_this_connector_adds_to_offsets_is_ignored(connector: Connector) -> object:
    return checkpointed(connector, '{"t":{"0":5},"origin={\\"cluster\\":\\"c\\"}":{}}')
