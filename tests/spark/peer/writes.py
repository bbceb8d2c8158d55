"""Batch writes and streaming sinks: what KafkaSinkSuite and its suites for batches and streams demand."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import Connector

STREAM, BATCH = "KafkaSinkStreamingSuite", "KafkaSinkBatchSuite"
OWN, SINK = "of this project", "The sink"


def texts(connector: Connector, topic: str) -> list[str]:
    """The values of a topic, in order."""
    return sorted(
        (message.value().decode() for message in connector.written(topic)), key=lambda text: (len(text), text)
    )


def frame_of(connector: Connector, *columns: str, rows: int = 5) -> DataFrame:
    """A frame with `n` from 1 on, of which these are expressions."""
    return connector.spark.range(1, rows + 1).selectExpr("CAST(id AS STRING) AS n").selectExpr(*columns)


# -- streams


def streamed(connector: Connector, *columns: str, topic: str = "", **options: Any) -> list[list[str]]:
    """What is in the topic after each of two batches of five lines; `{topic}` in a column is its name."""
    name = connector.topic([])
    lines, add = connector.lines()
    frame = lines.selectExpr(*(column.format(topic=name) for column in columns)) if columns else lines
    seen = []
    with connector.sink(frame, **options | ({"topic": name} if topic else {})) as query:
        for first in (1, 6):
            add([str(number) for number in range(first, first + 5)])
            query.processAllAvailable()
            seen.append(texts(connector, name))
    return seen


TEN = [[str(number) for number in range(1, 6)], [str(number) for number in range(1, 11)]]


@case(STREAM, TEN)
def a_stream_is_written_to_the_topic_that_its_rows_name(connector: Connector) -> object:
    return streamed(connector, "'{topic}' AS topic", "value")


@case(STREAM, TEN, "topic", in_every_run=True)
def a_stream_is_written_to_the_topic_of_the_option(connector: Connector) -> object:
    return streamed(connector, topic="option")


@case(STREAM, TEN, "topic")
def the_option_counts_before_the_topic_that_a_row_names(connector: Connector) -> object:
    return streamed(connector, "'foo' AS topic", "value", topic="option")


WRONG = {
    "a_stream_without_a_topic": (
        ["value AS key", "value"],
        "topic option required when no 'topic' attribute",
        "neither the option 'topic'",
    ),
    "a_stream_without_a_value": (
        ["'{topic}' AS topic", "value AS key"],
        "required attribute 'value' not found",
        "no column 'value'",
    ),
    "a_topic_that_is_a_number": (
        ["CAST('1' AS INT) AS topic", "value"],
        "topic must be a.n. string",
        "column 'topic' has type int",
    ),
    "a_value_that_is_a_number": (
        ["'{topic}' AS topic", "CAST(value AS INT) AS value"],
        "value must be a.n. string or binary",
        "column 'value' has type",
    ),
    "a_value_without_a_type": (
        ["'{topic}' AS topic", "NULL AS value"],
        "value must be a.n. string or binary",
        "column 'value' has type",
    ),
    "a_key_without_a_type": (
        ["'{topic}' AS topic", "NULL AS key", "value"],
        "key must be a.n. string or binary",
        "column 'key' has type",
    ),
    "a_key_that_is_a_number": (
        ["'{topic}' AS topic", "CAST(value AS INT) AS key", "value"],
        "key must be a.n. string or binary",
        "column 'key' has type",
    ),
    "a_partition_that_is_a_text": (
        ["'{topic}' AS topic", "value", "value AS partition"],
        "partition must be a.n. int",
        "column 'partition' has type",
    ),
    "headers_that_are_a_text": (
        ["'{topic}' AS topic", "value", "value AS headers"],
        "headers must be a.n. array",
        "column 'headers' has type",
    ),
}


def wrong_columns(name: str) -> None:
    columns, theirs, ours = WRONG[name]

    @case(
        STREAM,
        Refusal(theirs),
        here=Refusal(ours),
        sentence=f"{name}_is_refused",
        in_every_run=name == "a_value_that_is_a_number",
    )
    def run(connector: Connector) -> object:
        return streamed(connector, *columns)


for name in WRONG:
    wrong_columns(name)

for option in ("key", "value"):

    @case(
        STREAM,
        Refusal(f"{option}.serializer' is not supported"),
        f"kafka.{option}.serializer",
        here=Refusal(f"option 'kafka.{option}.serializer': "),
        sentence=f"a_{option}_serializer_is_refused",
    )
    def serializer(connector: Connector, option: str = option) -> object:
        return streamed(connector, topic="option", **{f"kafka.{option}.serializer": "foo"})


@case(STREAM, [3], "topic")
def the_progress_of_a_sink_counts_the_rows_that_were_written(connector: Connector) -> object:
    lines, add = connector.lines()
    with connector.sink(lines, topic=connector.topic([])) as query:
        add(["1", "2", "3"])
        query.processAllAvailable()
        return [progress.sink.numOutputRows for progress in query.recentProgress if progress.numInputRows]


@case(
    STREAM,
    ["1", "2", "3"],
    here=Refusal("kafka-eos does not support Update mode"),
    documented=Documented(SINK, "output mode `update`"),
)
def the_output_mode_may_be_update(connector: Connector) -> object:
    lines, add = connector.lines()
    topic = connector.topic([])
    add(["1", "2", "3"])
    with connector.sink(lines, "update", topic=topic) as query:
        query.processAllAvailable()
    return texts(connector, topic)


@case(
    STREAM,
    Refusal("Topic missing-.* not present in metadata"),
    "topic",
    here=Refusal("topic missing-.*: does not exist"),
)
def a_topic_that_does_not_exist_is_not_written_to(connector: Connector) -> object:
    lines, add = connector.lines()
    add(["1"])
    admin_config = {"topic": connector.name("missing")}
    with connector.sink(lines, **admin_config) as query:
        query.processAllAvailable()
    return "written"


# -- batch writes

HEADERS = {
    "1": [("a", b"b")],
    "2": [("c", b"d"), ("e", b"f")],
    "3": [("g", b"h"), ("g", b"i")],
    "4": None,
    "5": [("j", b"k"), ("j", b"l"), ("m", b"n")],
}


@case(BATCH, HEADERS, "topic", "includeHeaders", in_every_run=True)
def a_batch_is_written_with_its_headers(connector: Connector) -> object:
    topic = connector.topic([])
    rows = [(topic, value, headers) for value, headers in HEADERS.items()]
    schema = "topic string, value string, headers array<struct<key:string,value:binary>>"
    connector.write(connector.spark.createDataFrame(rows, schema), topic=topic)
    return {message.value().decode(): message.headers() for message in connector.written(topic)}


def partitions_written(connector: Connector, *columns: str, **options: Any) -> list[int]:
    """The partitions of four that five rows with keys get to."""
    topic = connector.topic([], [], [], [])
    connector.write(frame_of(connector, "n AS key", "n AS value", *columns), topic=topic, **options)
    return [message.partition() for message in sorted(connector.written(topic), key=lambda message: message.value())]


BY_KEY = [3, 0, 3, 1, 2]  # murmur2 of "1" to "5", over four partitions


@case(BATCH, BY_KEY, "key")
def keys_choose_the_partitions(connector: Connector) -> object:
    return partitions_written(connector)


@case(BATCH, [2, 2, 2, 2, 2], "partition", in_every_run=True)
def the_column_partition_counts_before_keys(connector: Connector) -> object:
    return partitions_written(connector, "2 AS partition")


@case(BATCH, BY_KEY, "partition")
def a_partition_that_is_null_leaves_the_choice_to_the_key(connector: Connector) -> object:
    return partitions_written(connector, "CAST(NULL AS INT) AS partition")


@case(
    BATCH,
    5,
    "kafka.partitioner.class",
    here=Refusal("partitioner.*is not one of"),
    documented=Documented(SINK, "other classes are refused"),
)
def a_class_of_ones_own_chooses_the_partitions(connector: Connector) -> object:
    uniform = "org.apache.kafka.clients.producer.UniformStickyPartitioner"
    return len(partitions_written(connector, **{"kafka.partitioner.class": uniform}))


@case(BATCH, Refusal("null topic"), "topic", here=Refusal("a row has a null 'topic'"))
def a_topic_that_is_null_is_refused(connector: Connector) -> object:
    connector.write(frame_of(connector, "CAST(NULL AS STRING) AS topic", "n AS value"))
    return "written"


for mode in ("ignore", "overwrite"):

    @case(
        BATCH,
        Refusal(f"Save mode {mode} not allowed for Kafka"),
        here=Refusal("a topic cannot be overwritten|cannot be written in the .ignore. mode"),
        sentence=f"the_mode_{mode}_is_refused",
    )
    def save_mode(connector: Connector, mode: str = mode) -> object:
        connector.write(frame_of(connector, "n AS value"), mode, topic=connector.topic([]))
        return "written"


@case(
    BATCH,
    ["1", "2", "3", "4", "5"],
    here=Refusal("cannot be written in the .ErrorIfExists. mode"),
    documented=Documented(SINK, "Spark refuses the default for Python data sources"),
)
def the_mode_may_be_left_out(connector: Connector) -> object:
    topic = connector.topic([])
    connector.write(frame_of(connector, "n AS value"), None, topic=topic)
    return texts(connector, topic)


@case(BATCH, 999, "topic")
def rows_of_json_are_written(connector: Connector) -> object:
    topic = connector.topic([])
    rows = connector.spark.range(1, 1000)
    connector.write(rows.select(F.to_json(F.struct("*")).alias("value")), topic=topic)
    return len(texts(connector, topic))


@case(BATCH, [15_000] * 1_000, "kafka.buffer.memory")
def much_data_goes_through_a_small_buffer(connector: Connector) -> object:
    topic = connector.topic([])
    frame = connector.spark.range(1_000).select(F.lit(b"\0" * 15_000).alias("value"))
    connector.write(frame, topic=topic, **{"kafka.buffer.memory": "16384"})
    return [len(message.value()) for message in connector.written(topic)]


@case(BATCH, [None, b""], "value")
def a_value_may_be_null_or_empty(connector: Connector) -> object:
    topic = connector.topic([])
    connector.write(connector.spark.createDataFrame([(None,), (b"",)], "value binary"), topic=topic)
    return sorted((message.value() for message in connector.written(topic)), key=lambda value: value is not None)


# -- what this sink is there for


@case(
    OWN,
    ["1"],
    here=Refusal("option 'kafka.transactional.id': is required"),
    documented=Documented(SINK, "required for streams: a stable name of the query"),
)
def a_stream_is_written_without_a_name_of_its_transactions(connector: Connector) -> object:
    lines, add = connector.lines()
    topic = connector.topic([])
    add(["1"])
    writer = lines.writeStream.format(connector.form).option("checkpointLocation", str(connector.folder / "unnamed"))
    query = writer.options(**{"kafka.bootstrap.servers": connector.kafka.bootstrap, "topic": topic}).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return texts(connector, topic)


@case(OWN, False, here=True, documented=Documented(SINK, "becomes the record's timestamp"))
def a_column_timestamp_is_the_time_of_the_record(connector: Connector) -> object:
    topic = connector.topic([])
    connector.write(frame_of(connector, "n AS value", "timestamp_millis(1700000000123) AS timestamp"), topic=topic)
    return {message.timestamp()[1] for message in connector.written(topic)} == {1_700_000_000_123}


for option, content in (("kafka.acks", "1"), ("kafka.enable.idempotence", "false")):

    @case(
        OWN,
        ["1", "2", "3", "4", "5"],
        option,
        here=Refusal(f"option '{option}': "),
        documented=Documented(SINK, "only `all` and `true`"),
        sentence=f"{option}={content}_is_accepted",
    )
    def weaker(connector: Connector, option: str = option, content: str = content) -> object:
        topic = connector.topic([])
        connector.write(frame_of(connector, "n AS value"), topic=topic, **{option: content})
        return texts(connector, topic)


@case(
    OWN,
    Refusal("Partition 9 .* is not present in metadata"),
    "partition",
    here=Refusal("a row has partition 9 .*, which has 1"),
)
def a_partition_that_the_topic_does_not_have_is_refused(connector: Connector) -> object:
    frame = frame_of(connector, "n AS value", "9 AS partition")
    connector.write(frame, topic=connector.topic([]), **{"kafka.max.block.ms": "3000"})
    return "written"


@case(OWN, ["1", "2", "3", "4", "5", "6"], "kafka.partitioner.class")
def rows_are_written_round_robin(connector: Connector) -> object:
    topic = connector.topic([], [], [])
    robin = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    connector.write(frame_of(connector, "n AS value", rows=6), topic=topic, **{"kafka.partitioner.class": robin})
    return texts(connector, topic)


@case(
    "KafkaMicroBatchSourceSuite",
    TEN[1],
    here=Refusal("kafka-eos does not support async progress tracking"),
    documented=Documented("Spark's settings", "`asyncProgressTrackingEnabled`"),
)
def progress_may_be_recorded_while_the_next_batch_runs(connector: Connector) -> object:
    topic = connector.topic([])
    source = connector.topic([b"%d" % number for number in range(1, 6)])
    options = {
        "topic": topic,
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "1000",
    }
    for first in (6, 11):
        frame = connector.stream(source, maxOffsetsPerTrigger="5").select("value")
        with connector.sink(frame, **options) as query:
            query.processAllAvailable()
        connector.send(source, [b"%d" % number for number in range(first, 11)])
    return sorted(set(texts(connector, topic)), key=int)
