"""Streams: what KafkaMicroBatchSourceSuite demands of micro-batches, limits, transactions, progress and checkpoints."""

from __future__ import annotations

import json
from datetime import datetime
from random import Random
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.producing import end_transaction, transact
from tests.reading import await_stable
from tests.spark.peer.batch_reads import everywhere
from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import BUILT_IN, Connector, numbers, values
from tests.waiting import until

SUITE = "KafkaMicroBatchSourceSuite"
PROGRESS = Documented("Spark's settings", "Spark does not offer them to Python data sources")


# -- triggers and restarts


@case(SUITE, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]], "maxOffsetsPerTrigger", in_every_run=True)
def available_now_ends_after_as_many_limited_batches_as_it_takes(connector: Connector) -> object:
    topic = connector.topic(values(15), [], [], [], [])
    return connector.query(connector.stream(topic, maxOffsetsPerTrigger="5")).run()


@case(SUITE, [[], [1, 2]], "startingOffsets")
def a_stream_that_stopped_before_its_first_record_goes_on_where_it_began(connector: Connector) -> object:
    topic = connector.topic([b"0"], [], [], [], [])
    query = connector.query(connector.stream(topic, startingOffsets="latest")).start()
    first = query.all()
    query.stop()
    connector.send(topic, values(1, 3), partition=3)
    return [first, query.start().all()]


@case(SUITE, True, "subscribePattern")
def a_stream_that_waits_for_records_is_stopped(connector: Connector) -> object:
    topic = connector.topic(values(5), [], name=connector.name())
    query = connector.query(connector.stream(None, subscribePattern=f"{topic}.*", startingOffsets="latest")).start()
    query.all()
    query.stop()
    assert query.running is not None
    return query.running.exception() is None and not query.running.isActive


@case(SUITE, [[[1, 2, 3], "error for 7"], "error for 7"], "subscribe")
def a_batch_that_failed_runs_again_with_available_now_although_a_partition_was_added(connector: Connector) -> object:
    topic = connector.topic(values(1, 8))

    def failing(frame: DataFrame) -> list[int]:
        seen = numbers(frame)
        if 7 in seen:
            raise RuntimeError("error for 7")
        return seen

    query = connector.query(connector.stream(topic, maxOffsetsPerTrigger="3"), read=failing)

    def failure() -> str:
        try:
            query.run()
        except StreamingQueryException as error:
            return "error for 7" if "error for 7" in str(error) else str(error)
        return "none"

    first = failure()
    connector.add_partitions(topic, 2)
    return [[query.batches[0], first], failure()]


# -- limits


@case(
    SUITE,
    [
        [1, 10, *range(100, 108)],
        [11, *range(108, 117)],
        [12, *range(117, 126)],
        [13, *range(126, 135)],
    ],
    "maxOffsetsPerTrigger",
)
def a_limit_is_divided_among_partitions_by_what_they_have_also_after_a_restart(connector: Connector) -> object:
    topic = connector.topic(values(100, 201), values(10, 21), [b"1"])
    query = connector.query(connector.stream(topic, maxOffsetsPerTrigger="10"))
    return [query.single_batch() for _ in range(4)]


LIMITS = {
    "maxOffsetsPerTrigger": {"maxOffsetsPerTrigger": "10"},
    "minOffsetsPerTrigger": {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h"},
    "both_limits": {"minOffsetsPerTrigger": "15", "maxTriggerDelay": "1h", "maxOffsetsPerTrigger": "20"},
}


def once(name: str) -> None:
    @case(SUITE, [[[*range(30)]], [[*range(30, 41)]]], *LIMITS[name], sentence=f"trigger_once_ignores_{name}")
    def run(connector: Connector) -> object:
        topic = connector.topic(values(20), values(20, 29), [b"29"])
        query = connector.query(connector.stream(topic, **LIMITS[name]))
        first = query.run(once=True)
        connector.send(topic, values(30, 41), partition=1)
        return [first, query.run(once=True)]


for name in LIMITS:
    once(name)


@case(SUITE, [5, 6, 7, 8, 9], "maxOffsetsPerTrigger")
def a_limit_of_the_largest_number_does_not_overflow(connector: Connector) -> object:
    topic = connector.topic(values(5))
    options = {"startingOffsets": everywhere(topic, 5), "maxOffsetsPerTrigger": f"{(1 << 63) - 1}"}
    query = connector.query(connector.stream(topic, **options)).start()
    assert query.all() == []
    connector.send(topic, values(5, 10))
    return query.all()


@case(SUITE, [[*range(16)], [*range(16, 34)]], "minOffsetsPerTrigger", "maxTriggerDelay")
def the_first_batch_takes_what_there_is_and_the_next_one_waits_for_the_minimum(connector: Connector) -> object:
    topic = connector.topic(values(10), values(10, 15), [b"15"])
    query = connector.query(connector.stream(topic, minOffsetsPerTrigger="15", maxTriggerDelay="1h")).start()
    until(lambda: len(query.so_far()) == 16)
    connector.send(topic, values(16, 22), partition=1)
    _await_triggers(query.running)
    assert len(query.batches) == 1, "fewer than the minimum"
    connector.send(topic, values(22, 34))
    until(lambda: len(query.so_far()) == 34)
    return [query.batches[number] for number in sorted(query.batches)]


@case(SUITE, [[*range(16)], [16, 17]], "minOffsetsPerTrigger", "maxTriggerDelay")
def less_than_the_minimum_is_read_when_the_delay_is_over(connector: Connector) -> object:
    topic = connector.topic(values(16))
    query = connector.query(connector.stream(topic, minOffsetsPerTrigger="15", maxTriggerDelay="2s")).start()
    until(lambda: len(query.so_far()) == 16)
    connector.send(topic, values(16, 18))
    until(lambda: len(query.so_far()) == 18)
    return [query.batches[number] for number in sorted(query.batches)]


@case(SUITE, [19, 19, 16], "minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay")
def a_batch_waits_for_the_minimum_and_takes_the_maximum(connector: Connector) -> object:
    topic = connector.topic(values(20), values(20, 31))
    limits = {"minOffsetsPerTrigger": "15", "maxTriggerDelay": "4s", "maxOffsetsPerTrigger": "20"}
    query = connector.query(connector.stream(topic, **limits)).start()
    until(lambda: len(query.so_far()) >= 19)
    connector.send(topic, values(31, 54))
    until(lambda: len(query.so_far()) == 54)
    return [len(query.batches[number]) for number in sorted(query.batches)]


def _await_triggers(query: Any, count: int = 3) -> None:
    """Until the query has looked for records this number of times more and had none: it waits for them."""
    for _ in range(count):
        until(lambda: not query.status["isTriggerActive"])
        until(lambda: query.status["isTriggerActive"])


@case(
    SUITE,
    [[*range(5), *range(100, 105)], [*range(5, 10), *range(105, 110)], [*range(110, 115)], [*range(115, 120)]],
    "maxOffsetsPerTrigger",
)
def a_limit_holds_for_each_of_two_sources_although_one_has_ended(connector: Connector) -> object:
    small, large = connector.topic(values(10)), connector.topic(values(100, 200))
    frames = [connector.stream(topic, maxOffsetsPerTrigger="5") for topic in (small, large)]
    query = connector.query(frames[0].union(frames[1]))
    return [query.single_batch() for _ in range(4)]


# -- transactions


def transactional(isolation_level: str, demand: list[list[list[int]]]) -> None:
    """Adds the case of a stream of three offsets a batch. The values are offsets: what is missing is a marker, or
    aborted.
    """

    @case(
        SUITE,
        demand,
        "kafka.isolation.level",
        "maxOffsetsPerTrigger",
        sentence=f"batches_of_a_topic_with_transactions_that_is_{isolation_level}",
    )
    def run(connector: Connector) -> object:
        bootstrap, topic = connector.kafka.bootstrap, connector.topic([])
        options = {"kafka.isolation.level": isolation_level, "maxOffsetsPerTrigger": "3"}
        query = connector.query(connector.stream(topic, **options))
        seen = []

        def batches() -> list[list[int]]:
            """Of this run, also those without a row."""
            first = max(query.batches, default=-1)
            query.run()
            return [query.batches[batch] for batch in sorted(query.batches) if batch > first]

        still_open = transact(bootstrap, topic, values(5), "leave open")
        seen.append(batches())
        end_transaction(still_open, bootstrap, topic, "commit")
        seen.append(batches())
        transact(bootstrap, topic, values(6, 11), "abort")
        await_stable(bootstrap, topic)
        seen.append(batches())
        transact(bootstrap, topic, values(12, 17), "commit")
        await_stable(bootstrap, topic)
        seen.append(batches())
        for start, end in ((18, 19), (20, 21), (22, 24)):
            transact(bootstrap, topic, values(start, end), "commit")
        await_stable(bootstrap, topic)
        seen.append(batches())
        return [[rows for rows in run if rows] for run in seen]


transactional(
    "read_committed",
    [[], [[0, 1, 2], [3, 4]], [], [[12, 13, 14], [15, 16]], [[18, 20], [22, 23]]],
)
transactional(
    "read_uncommitted",
    [[[0, 1, 2], [3, 4]], [], [[6, 7, 8], [9, 10]], [[12, 13, 14], [15, 16]], [[18, 20], [22, 23]]],
)


@case(SUITE, [[0, 1, 2, 3], [4, 5, 6, 7]], "kafka.isolation.level")
def a_batch_is_not_changed_by_records_that_come_while_it_is_read(connector: Connector) -> object:
    bootstrap, topic = connector.kafka.bootstrap, connector.topic([])
    transact(bootstrap, topic, values(4), "commit")

    def add(batch: int) -> None:
        if batch == 0:
            transact(bootstrap, topic, values(4, 8), "commit")

    query = connector.query(connector.stream(topic, **{"kafka.isolation.level": "read_committed"}), before=add).start()
    query.await_rows(8)
    return [query.batches[number] for number in sorted(query.batches) if query.batches[number]]


# -- rows


@case(SUITE, [("1", None), ("2", "4"), (None, "3"), (None, None)], "subscribe", in_every_run=True)
def keys_and_values_may_be_null(connector: Connector) -> object:
    topic = connector.topic([None])
    connector.send(topic, [b"3"])
    connector.send(topic, [None], key=b"1")
    connector.send(topic, [b"4"], key=b"2")

    def pairs(frame: DataFrame) -> list[Any]:
        texts = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        return [tuple(row) for row in texts.collect()]

    query = connector.query(connector.stream(topic), read=pairs)
    return sorted((row for batch in query.run() for row in batch), key=str)


@case(
    SUITE,
    [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ],
    "includeHeaders",
)
def the_columns_have_the_types_that_they_have(connector: Connector) -> object:
    return connector.stream(connector.topic([]), includeHeaders="true").dtypes


@case(SUITE, [(None, b"1", 0, 0, 1_700_000_000.123, 0, [("a", b"b"), ("c", b"d")])], "includeHeaders")
def a_record_is_a_row_with_its_place_time_and_headers(connector: Connector) -> object:
    topic = connector.topic([])
    connector.send(topic, [b"1"], timestamp=1_700_000_000_123, headers=[("a", b"b"), ("c", b"d")])

    def everything(frame: DataFrame) -> list[Any]:
        assert [row.topic for row in frame.collect()] in ([], [topic])
        return [
            (
                row.key,
                bytes(row.value),
                row.partition,
                row.offset,
                row.timestamp.timestamp(),
                row.timestampType,
                [(header.key, bytes(header["value"])) for header in row.headers],
            )
            for row in frame.collect()
        ]

    return connector.query(connector.stream(topic, includeHeaders="true"), read=everything).run()[0]


@case(SUITE, [(1_700_000_000, 1), (1_700_000_005, 2)], "subscribe")
def a_watermark_and_windows_follow_the_records_times(connector: Connector) -> object:
    topic = connector.topic([])
    for at in (1_700_000_001_000, 1_700_000_006_000, 1_700_000_007_000):
        connector.send(topic, [b"1"], timestamp=at)
    counts = (
        connector.stream(topic)
        .withWatermark("timestamp", "10 seconds")
        .groupBy(F.window("timestamp", "5 seconds").alias("window"))
        .agg(F.count("*").alias("count"))
    )
    rows: list[Any] = []
    query = counts.writeStream.outputMode("complete").foreachBatch(lambda frame, _: rows.extend(frame.collect()))
    query = query.option("checkpointLocation", str(connector.folder / "windows"))
    query.trigger(availableNow=True).start().awaitTermination()
    last: dict[datetime, int] = {row["window"].start: row["count"] for row in rows}
    return sorted((round(start.timestamp()), count) for start, count in last.items())


@case(
    SUITE,
    Refusal("ArithmeticException|long overflow|MALFORMED_RECORD_TIMESTAMP"),
    "subscribe",
    here=Refusal("errors.UndecodableRecord:"),
)
def a_timestamp_that_spark_cannot_hold_fails_the_query(connector: Connector) -> object:
    topic = connector.topic([], config={"message.timestamp.after.max.ms": (1 << 63) - 1})
    connector.send(topic, [b"value"], timestamp=1_712_345_678_123_456_789)
    return connector.query(connector.stream(topic), read=lambda frame: frame.collect()).run()


@case(SUITE, (True, [*range(21)]), "minPartitions")
def min_partitions_divides_the_partitions_of_a_micro_batch(connector: Connector) -> object:
    topic = connector.topic(values(10), values(10, 20), [b"20"])

    def counted(frame: DataFrame) -> list[Any]:
        return [(frame.rdd.getNumPartitions(), numbers(frame))]

    [[(tasks, read)]] = connector.query(connector.stream(topic, minPartitions="6"), read=counted).run()
    return tasks >= 6, read


# -- progress and checkpoints


@case(SUITE, 3, "subscribe")
def the_progress_counts_the_rows_that_were_read(connector: Connector) -> object:
    topic = connector.topic([b"-1"], [], [], [], [])
    query = connector.query(connector.stream(topic, startingOffsets="latest")).start()
    query.all()
    connector.send(topic, values(1, 4), partition=2)
    assert query.all() == [1, 2, 3]
    assert query.running is not None
    return sum(progress.numInputRows for progress in query.running.recentProgress)


BEHIND = ["avgOffsetsBehindLatest", "maxOffsetsBehindLatest", "minOffsetsBehindLatest"]
for limit, sentence in (("1", "with_a_limit"), ("", "without_a_limit")):

    @case(
        SUITE,
        BEHIND,
        here=[],
        documented=PROGRESS,
        sentence=f"the_progress_of_a_stream_{sentence}_has_offsets_behind_the_latest",
    )
    def offsets_behind(connector: Connector, limit: str = limit) -> object:
        topic = connector.topic(values(5), values(5, 10))
        query = connector.query(connector.stream(topic, **({"maxOffsetsPerTrigger": limit} if limit else {})))
        query.run()
        assert query.running is not None
        last = query.running.lastProgress
        assert last is not None
        return sorted(last.sources[0].metrics)


@case(SUITE, {"0": 5, "1": 5}, "subscribe")
def the_progress_names_the_offsets_of_each_partition(connector: Connector) -> object:
    topic = connector.topic(values(5), values(5, 10))
    query = connector.query(connector.stream(topic))
    query.run()
    assert query.running is not None
    return json.loads(query.running.recentProgress[0].sources[0].endOffset)[topic]


JOINED = [(1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)]


@case(SUITE, JOINED, "subscribe")
def a_stream_joined_with_itself_has_each_pair_once(connector: Connector) -> object:
    topic = connector.topic([], [])
    numbered = connector.stream(topic).selectExpr(
        "CAST(CAST(value AS STRING) AS INT) AS value", "CAST(CAST(value AS STRING) AS INT) % 5 AS key"
    )
    pairs = numbered.join(numbered.withColumnRenamed("value", "other"), "key")
    query = connector.query(pairs, read=lambda frame: [(row.key, row.value, row.other) for row in frame.collect()])
    query.start().all()
    connector.send(topic, values(1, 3))
    query.all()
    connector.send(topic, [b"6", b"3"], partition=1)
    return query.all()


@case(
    SUITE,
    True,
    here=False,
    documented=Documented("Another source", "in a file of its own"),
)
def the_start_is_recorded_in_a_file_that_begins_with_a_zero_byte(connector: Connector) -> object:
    query = connector.query(connector.stream(connector.topic([b"0"])))
    query.run()
    path = query.checkpoint / "sources" / "0" / "0"
    return path.exists() and path.read_bytes()[0] == 0


@case(SUITE, [1, 2, 32, 33], "includeHeaders")
def state_that_the_built_in_source_began_goes_on_without_headers(connector: Connector) -> object:
    topic = connector.topic(values(1, 3))
    began = Connector(
        form=BUILT_IN, spark=connector.spark, kafka=connector.kafka, folder=connector.folder, secured=connector.secured
    )
    first = began.query(began.stream(topic).dropDuplicates())
    first.run()
    connector.send(topic, values(32, 34), headers=[("a", b"b")])
    query = connector.query(connector.stream(topic).dropDuplicates())
    query.checkpoint, query.batches = first.checkpoint, dict(first.batches)
    query.run()
    return query.so_far()


INTERNALS = {
    "without_readers_of_the_second_version": (
        "spark.sql.streaming.disabledV2MicroBatchReaders",
        "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    ),
    "with_sources_of_the_first_version": ("spark.sql.sources.useV1SourceList", "kafka"),
    "with_sources_of_the_second_version": ("spark.sql.sources.useV1SourceList", ""),
}


def with_setting(name: str) -> None:
    setting, content = INTERNALS[name]

    @case(SUITE, [[0, 1, 2], [0, 1, 2]], "subscribe", sentence=f"a_session_{name}_reads_the_same")
    def run(connector: Connector) -> object:
        topic = connector.topic(values(3))
        before = connector.spark.conf.get(setting, None)
        connector.spark.conf.set(setting, content)
        try:
            return [numbers(connector.read(topic)), connector.query(connector.stream(topic)).run()[0]]
        finally:
            if before is None:
                connector.spark.conf.unset(setting)
            else:
                connector.spark.conf.set(setting, before)


for name in INTERNALS:
    with_setting(name)


@case(SUITE, [*range(60)], "subscribePattern", "failOnDataLoss")
def every_record_is_read_once_while_topics_and_partitions_come_and_go(connector: Connector) -> object:
    prefix, rng = connector.name("stress"), Random(20261127)
    topics = {connector.topic([], name=f"{prefix}-{number}"): 1 for number in range(3)}
    frame = connector.stream(
        None,
        subscribePattern=f"{prefix}-.*",
        failOnDataLoss="false",
        **{"kafka.request.timeout.ms": "3000", "kafka.default.api.timeout.ms": "3000"},
    )
    query = connector.query(frame).start()
    for step in range(12):
        match step % 4:
            case 1:
                topics[connector.topic([], [], name=f"{prefix}-new-{step}")] = 2
            case 2:
                grown = rng.choice(sorted(topics))
                topics[grown] += 2
                connector.add_partitions(grown, topics[grown])
            case 3:
                query.await_rows(5 * step)
                deleted = rng.choice(sorted(topics))
                del topics[deleted]
                connector.kafka.delete_topic(deleted)
        written = rng.choice(sorted(topics))
        connector.send(written, values(5 * step, 5 * step + 5), partition=rng.randrange(topics[written]))
    return query.await_rows(60)
